package tokenspeed

import (
	"errors"
	"fmt"
	"io"
	"testing"
)

func TestEveryCauseHasALabelOfItsOwn(t *testing.T) {
	causes := []error{
		ErrRagged, ErrTag, ErrTooShort, ErrNil, ErrTruncated, ErrType, ErrNegative, ErrNotFinite, ErrNotInteger, ErrOutOfRange,
		ErrTooDeep, ErrTrailingBytes, ErrPayloadSize, ErrFrameCount, ErrEngineDead,
	}
	seen := map[string]error{"": nil, "other": nil}
	for _, cause := range causes {
		label := Reason(fmt.Errorf("rank 3: %w", &DecodeError{Err: cause}))
		if other, ok := seen[label]; ok {
			t.Errorf("%q is the label of %v and of %v", label, other, cause)
		}
		seen[label] = cause
		if Reason(cause) != label {
			t.Errorf("%v: label %q alone and %q when wrapped", cause, Reason(cause), label)
		}
	}
	if got := Reason(nil); got != "" {
		t.Errorf("no error has the label %q", got)
	}
	if got := Reason(io.EOF); got != "other" {
		t.Errorf("a foreign error has the label %q", got)
	}
}

func TestADecodeErrorSaysWhichColumnAndWhere(t *testing.T) {
	for _, tt := range []struct {
		err  DecodeError
		want string
	}{
		{DecodeError{26, "output_ids", ErrRagged}, "tokenspeed: output_ids: column differs from rids in length at byte 26"},
		{DecodeError{0, "", ErrTruncated}, "tokenspeed: payload ends too early at byte 0"},
		{DecodeError{Err: ErrEngineDead}, "tokenspeed: engine is dead"},
		{DecodeError{Err: ErrFrameCount}, "tokenspeed: message has no frames"},
		{DecodeError{Err: ErrPayloadSize}, "tokenspeed: payload is too large"},
	} {
		if got := tt.err.Error(); got != tt.want {
			t.Errorf("got %q, want %q", got, tt.want)
		}
		if !errors.Is(&tt.err, tt.err.Err) || errors.Is(&tt.err, ErrNil) {
			t.Errorf("%v does not unwrap to its cause alone", &tt.err)
		}
	}
}
