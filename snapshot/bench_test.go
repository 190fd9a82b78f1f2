package snapshot

import "testing"

// go test -run '^$' -bench . -count 10 ./snapshot/

func benchmarkDecode(b *testing.B, payload []byte, decode func([]byte) error) {
	b.ReportAllocs()
	b.SetBytes(int64(len(payload)))
	for b.Loop() {
		if err := decode(payload); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkLoadStat(b *testing.B) {
	var s LoadStat
	b.Run("6", func(b *testing.B) { benchmarkDecode(b, fullStat(6), s.Decode) })
	b.Run("11", func(b *testing.B) { benchmarkDecode(b, fullStat(11), s.Decode) })
}

func BenchmarkLoadSnapshot(b *testing.B) {
	full := fullSnapshot()
	core := *full
	core.DecodeMoments = nil
	core.Memory, core.Speculative, core.LoRA = MemorySection{}, SpeculativeSection{}, LoRASection{}
	core.Disaggregation, core.Queues = DisaggregationSection{}, QueuesSection{}

	var s LoadSnapshot
	b.Run("idle", func(b *testing.B) { benchmarkDecode(b, new(LoadSnapshot).Append(nil), s.Decode) })
	b.Run("core", func(b *testing.B) { benchmarkDecode(b, core.Append(nil), s.Decode) })
	b.Run("full", func(b *testing.B) { benchmarkDecode(b, full.Append(nil), s.Decode) })
}

func BenchmarkReading(b *testing.B) {
	var r Reading
	b.Run("LoadStat", func(b *testing.B) { benchmarkDecode(b, fullStat(11), r.Decode) })
	b.Run("LoadSnapshot", func(b *testing.B) { benchmarkDecode(b, fullSnapshot().Append(nil), r.Decode) })
}

func BenchmarkAppend(b *testing.B) {
	buf := make([]byte, 0, 2048)
	b.Run("LoadStat", func(b *testing.B) {
		var s LoadStat
		b.ReportAllocs()
		for b.Loop() {
			buf = s.Append(buf[:0])
		}
	})
	b.Run("LoadSnapshot", func(b *testing.B) {
		s := fullSnapshot()
		b.ReportAllocs()
		for b.Loop() {
			buf = s.Append(buf[:0])
		}
	})
}
