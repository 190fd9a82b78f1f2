package tokenspeed

import (
	"errors"
	"testing"
)

func TestSplitTakesTheFirstFrameAndKnowsADeadEngine(t *testing.T) {
	batch, dead := wire(two()...), []byte(EngineDead)
	for _, tt := range []struct {
		name   string
		frames [][]byte
		want   string
		err    error
	}{
		{"a batch", [][]byte{batch}, string(batch), nil},
		{"a batch and frames beside it", [][]byte{batch, {1}, nil}, string(batch), nil},
		{"an empty frame", [][]byte{nil}, "", nil},
		{"the largest payload", [][]byte{make([]byte, MaxPayload)}, string(make([]byte, MaxPayload)), nil},
		{"no frames", nil, "", ErrFrameCount},
		{"a dead engine", [][]byte{dead}, "", ErrEngineDead},
		{"a dead engine and something else", [][]byte{dead, nil}, EngineDead, nil}, // no batch either, which Decode will say
		{"nearly a dead engine", [][]byte{append(dead, '!')}, EngineDead + "!", nil},
		{"a payload above the limit", [][]byte{make([]byte, MaxPayload+1)}, "", ErrPayloadSize},
	} {
		payload, err := Split(tt.frames)
		if !errors.Is(err, tt.err) || string(payload) != tt.want {
			t.Errorf("%s: %.40x, %v, want %v", tt.name, payload, err, tt.err)
		}
		var d *DecodeError
		if err != nil && !errors.As(err, &d) {
			t.Errorf("%s: %v is not a DecodeError", tt.name, err)
		}
	}
}
