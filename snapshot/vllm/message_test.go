package vllm

import (
	"errors"
	"testing"
)

func TestSplitTakesTheFirstFrame(t *testing.T) {
	payload, dead := []byte{0x90}, []byte(EngineDead)
	for _, tt := range []struct {
		name   string
		frames [][]byte
		want   []byte
	}{
		{"one frame", [][]byte{payload}, payload},
		{"tensors behind it", [][]byte{payload, {1, 2, 3}, dead}, payload},
		{"a tensor above the limit behind it", [][]byte{payload, make([]byte, MaxPayload+1)}, payload},
		{"an empty frame, which is for Decode to refuse", [][]byte{nil}, nil},
		{"the largest payload", [][]byte{make([]byte, MaxPayload)}, make([]byte, MaxPayload)},
		{"last words that are not alone", [][]byte{dead, nil}, dead},
		{"last words with something behind them", [][]byte{[]byte(EngineDead + "\n")}, []byte(EngineDead + "\n")},
	} {
		got, err := Split(tt.frames)
		if err != nil || string(got) != string(tt.want) {
			t.Errorf("%s: got %.40q, %v", tt.name, got, err)
		}
	}
}

func TestSplitTellsDeathAndRefusesWhatIsNoMessage(t *testing.T) {
	for _, tt := range []struct {
		name   string
		frames [][]byte
		want   error
	}{
		{"no frames", nil, ErrFrameCount},
		{"an engine that has died", [][]byte{[]byte("ENGINE_CORE_DEAD")}, ErrEngineDead},
		{"a payload above the limit", [][]byte{make([]byte, MaxPayload+1)}, ErrPayloadSize},
	} {
		payload, err := Split(tt.frames)
		d, ok := errors.AsType[*DecodeError](err)
		if !ok || d.Err != tt.want || payload != nil {
			t.Errorf("%s: got %.40q, %v, want %v", tt.name, payload, err, tt.want)
		}
	}
}
