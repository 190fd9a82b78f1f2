package gateway

import (
	"testing"

	"github.com/plimsoll-go/plimsoll/load"
)

func TestPromptTokens(t *testing.T) {
	known, unknown := load.Known[int64], load.Maybe[int64]{}
	for body, want := range map[string]load.Maybe[int64]{
		`{"prompt":"eight ch"}`:                known(2),
		`{"prompt":"nine char"}`:               known(3),
		`{"prompt":"éééé"}`:                    known(1),
		`{"prompt":["four","four"]}`:           known(2),
		`{"prompt":[1,2,3]}`:                   known(3),
		`{"prompt":[[1,2,3],[4,5]]}`:           known(5),
		`{"input":"four"}`:                     known(1),
		`{"messages":[{"content":"four"},{}]}`: known(1),
		`{"messages":[{"content":null}]}`:      unknown,
		`{"messages":[{"content":[{"type":"text","text":"four"},{"type":"image_url"}]}]}`: known(1),
		`{"prompt":""}`: unknown,
		`{"prompt":7}`:  unknown,
		`{}`:            unknown,
		`{"prompt":`:    unknown,
		``:              unknown,
	} {
		if got := promptTokens([]byte(body)); got != want {
			t.Errorf("%s: got %v, want %v", body, got, want)
		}
	}
}
