package selector

import "testing"

func TestRandomTakesTheWorkerThatTheNumberFallsOn(t *testing.T) {
	table, workers := withDepths(t, 1000, 0, silent, 7)
	for _, tt := range []struct {
		random uint64
		want   int
	}{
		{0, 0}, {1<<62 - 1, 0}, {1 << 62, 1}, {2 << 62, 2}, {3 << 62, 3}, {1<<64 - 1, 3},
	} {
		s := New(table, Config{Policy: Random(), Rand: fixed(tt.random)})
		if p := mustPick(t, s, Request{}); p.Worker != workers[tt.want] || p.Reason != Chance || p.Policy != RandomName {
			t.Errorf("%#x: %v, want worker %s", tt.random, p, workers[tt.want].ID())
		}
	}
}

func TestRandomIsEvenWhateverTheLoads(t *testing.T) {
	table, workers := withDepths(t, 1000, 0, silent, 7, 3)
	hold(t, workers[1], 50)
	s := New(table, Config{Policy: Random(), Rand: seeded(11)})
	wantUniform(t, pickAndDone(t, s, Request{}, 10_000), workers)
	wantUniform(t, pickAndDone(t, s, Request{Candidates: workers[1:4]}, 9000), workers[1:4])
}
