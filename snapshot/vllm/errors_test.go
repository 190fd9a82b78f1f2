package vllm

import (
	"errors"
	"fmt"
	"io"
	"testing"
)

func TestEveryCauseHasALabelOfItsOwn(t *testing.T) {
	causes := []error{
		ErrEngineDead, ErrFrameCount, ErrPayloadSize, ErrTruncated, ErrTooShort, ErrType, ErrNil, ErrNegative, ErrNotFinite,
		ErrNotInteger, ErrOutOfRange, ErrTooDeep, ErrTrailingBytes,
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

func TestADecodeErrorSaysWhichFieldAndWhere(t *testing.T) {
	for _, tt := range []struct {
		err  DecodeError
		want string
	}{
		{DecodeError{12, "request_id", ErrType}, "vllm: request_id: unexpected type at byte 12"},
		{DecodeError{12, "", ErrTrailingBytes}, "vllm: bytes after the value at byte 12"},
		{DecodeError{Err: ErrFrameCount}, "vllm: message has no frames"},
		{DecodeError{Err: ErrEngineDead}, "vllm: engine is dead"},
		{DecodeError{Err: ErrPayloadSize}, "vllm: payload is too large"},
	} {
		if got := tt.err.Error(); got != tt.want {
			t.Errorf("got %q, want %q", got, tt.want)
		}
		if !errors.Is(&tt.err, tt.err.Err) || errors.Is(&tt.err, ErrNegative) {
			t.Error("does not unwrap to its cause alone")
		}
	}
}
