package tokenspeed

import "testing"

// go test -run '^$' -bench . -count 10 ./tokenspeed/

func benchmarkDecode(b *testing.B, payload []byte, decode func([]byte) error) {
	b.ReportAllocs()
	b.SetBytes(int64(len(payload)))
	for b.Loop() {
		if err := decode(payload); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkSummary(b *testing.B) {
	var s Summary
	b.Run("plain", func(b *testing.B) { benchmarkDecode(b, step(false).Append(nil), s.Decode) })
	b.Run("logprobs", func(b *testing.B) { benchmarkDecode(b, step(true).Append(nil), s.Decode) })
}

func BenchmarkBatch(b *testing.B) {
	var batch Batch
	b.Run("plain", func(b *testing.B) { benchmarkDecode(b, step(false).Append(nil), batch.Decode) })
	b.Run("logprobs", func(b *testing.B) { benchmarkDecode(b, step(true).Append(nil), batch.Decode) })
}

func BenchmarkAppend(b *testing.B) {
	batch := step(true)
	buf := batch.Append(nil)
	b.ReportAllocs()
	for b.Loop() {
		buf = batch.Append(buf[:0])
	}
}
