package vllm

import (
	"fmt"
	"testing"
)

// go test -run '^$' -bench . -count 10 ./snapshot/vllm

func BenchmarkDecode(b *testing.B) {
	for _, n := range []int{0, 1, 16, 256, 1024} {
		b.Run(fmt.Sprint(n), func(b *testing.B) { benchmarkDecode(b, step(n)) })
	}
	b.Run("reply", func(b *testing.B) {
		benchmarkDecode(b, message(0, list(), nil, 1.5, list(7, nil, list(nil, true)), nil, nil, nil, nil))
	})
	b.Run("as-many-end-as-may", func(b *testing.B) {
		ids := list()
		for i := range MaxRequests {
			ids = append(ids, fmt.Sprint(i))
		}
		benchmarkDecode(b, message(0, nil, nil, nil, nil, ids))
	})
	b.Run("all-of-256-end", func(b *testing.B) {
		outputs, ids := list(), list()
		for i := range 256 {
			id := fmt.Sprintf("chatcmpl-%032x", i)
			outputs, ids = append(outputs, out(id, 1, 7)), append(ids, id)
		}
		benchmarkDecode(b, message(0, outputs, nil, 1.5, nil, ids))
	})
}

func benchmarkDecode(b *testing.B, payload []byte) {
	var o Outputs
	b.ReportAllocs()
	b.SetBytes(int64(len(payload)))
	for b.Loop() {
		if err := o.Decode(payload); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkTokens(b *testing.B) {
	var o Outputs
	if err := o.Decode(step(256)); err != nil {
		b.Fatal(err)
	}
	var tokens []int64
	b.ReportAllocs()
	for b.Loop() {
		for i := range o.Len() {
			var err error
			if tokens, err = o.At(i).AppendTokens(tokens[:0]); err != nil {
				b.Fatal(err)
			}
		}
	}
}
