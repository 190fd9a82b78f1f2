package snapshot

import (
	"errors"
	"fmt"
	"io"
	"testing"
)

func TestEveryCauseHasALabelOfItsOwn(t *testing.T) {
	causes := []error{
		ErrTruncated, ErrTag, ErrTooShort, ErrType, ErrNil, ErrNegative, ErrNotFinite, ErrNotInteger, ErrOutOfRange,
		ErrTooDeep, ErrTrailingBytes, ErrNotLoad, ErrFrameCount, ErrEndless, ErrSeqSize, ErrEndOfStream, ErrPayloadSize,
	}
	seen := map[string]error{"": nil, "other": nil}
	for _, cause := range causes {
		label := Reason(fmt.Errorf("rank 3: %w", &DecodeError{Type: "LoadStat", Err: cause}))
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

func TestADecodeErrorSaysWhichFieldAndWhere(t *testing.T) {
	err := error(&DecodeError{Type: "LoadStat", Offset: 12, Field: "num_tokens", Err: ErrNegative})
	if got, want := err.Error(), "snapshot: LoadStat: num_tokens: negative number at byte 12"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	if !errors.Is(err, ErrNegative) || errors.Is(err, ErrType) {
		t.Error("does not unwrap to its cause alone")
	}
	for _, tt := range []struct {
		err  DecodeError
		want string
	}{
		{DecodeError{Type: "message", Err: ErrFrameCount}, "snapshot: message: message does not have three frames"},
		{DecodeError{Type: "LoadSnapshot", Err: ErrPayloadSize}, "snapshot: LoadSnapshot: payload is too large"},
		{DecodeError{Type: "LoadSnapshot", Offset: 7, Err: ErrTrailingBytes}, "snapshot: LoadSnapshot: bytes after the value at byte 7"},
	} {
		if got := tt.err.Error(); got != tt.want {
			t.Errorf("got %q, want %q", got, tt.want)
		}
	}
}
