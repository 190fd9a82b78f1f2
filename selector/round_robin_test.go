package selector

import (
	"testing"

	"github.com/plimsoll-go/plimsoll/load"
)

func TestRoundRobinGivesEachWorkerItsTurnWhateverItsLoad(t *testing.T) {
	table, workers := withDepths(t, 1000, 0, silent, 7)
	hold(t, workers[1], 50)
	s := New(table, Config{Policy: RoundRobin()})
	first := mustPick(t, s, Request{})
	at, _ := table.View().Position(first.Worker)
	for i := 1; i < 25; i++ {
		p := mustPick(t, s, Request{})
		if want := workers[(at+i)%len(workers)]; p.Worker != want || p.Reason != Turn || p.Policy != RoundRobinName {
			t.Fatalf("pick %d is %v, want worker %s", i, p, want.ID())
		}
	}
}

func TestRoundRobinIsExactlyEvenOverWholeRounds(t *testing.T) {
	table, workers := withDepths(t, 1, 2, 3, 4, 5)
	within(t, pickAndDone(t, New(table, Config{Policy: RoundRobin()}), Request{}, 35), workers, 7, 7)
}

func TestRoundRobinGoesOnWhenWorkersComeAndGo(t *testing.T) {
	table, workers := withDepths(t, 0, 0, 0)
	s := New(table, Config{Policy: RoundRobin()})
	pickAndDone(t, s, Request{}, 2)
	table.Remove(workers[1])
	d := table.Add("d", "")
	within(t, pickAndDone(t, s, Request{}, 30), []*load.Worker{workers[0], workers[2], d}, 10, 10)
}

func TestRoundRobinAmongSomeIsNearlyEven(t *testing.T) {
	table, workers := withDepths(t, 0, 0, 0, 0, 0)
	s := New(table, Config{Policy: RoundRobin()})
	counts := pickAndDone(t, s, Request{Candidates: workers[1:4]}, 300)
	within(t, counts, workers[1:4], 96, 104)
}

func TestRoundRobinFromManyGoroutinesIsExactlyEven(t *testing.T) {
	table, workers := withDepths(t, 0, 0, 0, 0)
	s := New(table, Config{Policy: RoundRobin()})
	within(t, pickFromManyGoroutines(t, s, 8, 100), workers, 200, 200)
}
