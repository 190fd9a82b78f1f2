package gateway

import (
	"runtime"
	"strings"
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
		`{"messages":[{"content":[{"type":"text","text":"four"},{"type":"image_url"}]}]}`:                               known(1),
		`{"messages":[{"content":[{"type":"image_url","image_url":{"url":"long","text":"long"}}]}]}`:                    unknown,
		` { "text" : "x" , "prompt" : [ "fo\"r" , "\u00e9\n\\\"" , [ -1 , 2 ] ] , "input" : { "text" : [ "four" ] } } `: known(5),
		`{"messages":{"prompt":"four","text":"four"},"user":["four",1]}`:                                                unknown,
		`{"prompt":[true,null,{},[],{"a":{"text":"b"}}]}`:                                                               unknown,
		`[{"prompt":"four"}]`:  unknown,
		`"four"`:               unknown,
		`{"prompt":"four"} {}`: unknown,
		`{"prompt":""}`:        unknown,
		`{"prompt":7}`:         unknown,
		`{}`:                   unknown,
		`{"prompt":`:           unknown,
		``:                     unknown,
	} {
		if got, _, _ := look([]byte(body)); got != want {
			t.Errorf("%s: got %v, want %v", body, got, want)
		}
	}
}

func TestStream(t *testing.T) {
	for body, want := range map[string]bool{
		`{"prompt":"x","stream":true}`:                 true,
		` { "stream" : true , "prompt" : [ "x" ] } `:   true,
		`{"stream":false,"stream":true}`:               true, // what engines make of it
		`{"stream":true,"stream":false}`:               false,
		`{"prompt":"x","stream":false}`:                false,
		`{"prompt":"x"}`:                               false,
		`{"stream":null}`:                              false,
		`{"messages":[{"stream":true}]}`:               false,
		`{"extra":{"stream":true},"input":["stream"]}`: false,
		`[{"stream":true}]`:                            false,
		`{"stream":true`:                               false,
		"--x\r\nContent-Disposition: form-data; name=\"stream\"\r\n\r\ntrue\r\n--x--": false,
		``: false,
	} {
		if _, got, _ := look([]byte(body)); got != want {
			t.Errorf("%s: got %v", body, got)
		}
		if got := unstreamed("/v1/chat/completions", want); got == want {
			t.Errorf("%s: unstreamed is %v", body, got)
		}
	}
	if unstreamed("/v1/embeddings", false) {
		t.Error("an embedding is taken for an answer of many tokens")
	}
}

// A body is anybody's. What it costs to look at must not depend on its shape.
func TestLookAtAHostileBody(t *testing.T) {
	const size = 1 << 20
	fill := func(before, piece, after string) []byte {
		return []byte(before + strings.Repeat(piece, size/len(piece)) + after)
	}
	for name, body := range map[string][]byte{
		"deep":          fill(`{"prompt":`, "[", ""),
		"deep and done": []byte(`{"prompt":` + strings.Repeat("[", 9_000) + strings.Repeat("]", 9_000) + `}`),
		"deep objects":  []byte(`{"prompt":` + strings.Repeat(`{"text":`, 9_000) + `""` + strings.Repeat("}", 9_000) + `}`),
		"deep and wide": []byte(`{"prompt":` + strings.Repeat("[", 1_000) + strings.Repeat("1,", size/2) + "1" + strings.Repeat("]", 1_000) + `}`),
		"many lists":    fill(`{"prompt":[`, "[],", `[]]}`),
		"many ids":      fill(`{"prompt":[`, "1,", `1]}`),
		"many messages": fill(`{"messages":[`, `{"content":""},`, `{}]}`),
		"long keys":     fill(`{"`, "x", `":1}`),
		"long text":     fill(`{"prompt":"`, "x", `"}`),
	} {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		look(body)
		runtime.ReadMemStats(&after)
		if n := after.TotalAlloc - before.TotalAlloc; n > size {
			t.Errorf("%s: %d bytes of %d allocated", name, n, len(body))
		}
	}
}
