package selector

import (
	"math"
	"testing"

	"github.com/plimsoll-go/plimsoll/load"
)

// A decision that can be followed by hand; DESIGN.md tells it in words.
//
// Two workers have reported this instant. Nothing has been learned yet: a prompt token
// takes 50 µs and a request is worth 40 of them, 2 ms.
//
//	          reported            own at the report    others
//	worker    depth  waiting tok  requests  tokens     requests  tokens
//	a         12     3,000        2         1,000      10        2,000
//	b          4     6,000        0             0       4        6,000
//	mean of the others                                  7        4,000
//
// With one gateway g is 1/2: requests of others count half of what they differ from
// the mean (8.5 and 5.5), tokens all of it. The request has 1,000 tokens.
//
//	a: 50 µs · (1,000 own + 2,000 + 1,000) + 2 ms · (2 own + 8.5 + 1) = 200 + 23 ms
//	b: 50 µs · (    0 own + 6,000 + 1,000) + 2 ms · (0 own + 5.5 + 1) = 350 + 13 ms
func TestLeastWorkByHand(t *testing.T) {
	table, _ := newTestTable()
	a, b := table.Add("a", ""), table.Add("b", "")
	for range 2 {
		k := a.Reserve(load.NoRank, 500)
		t.Cleanup(k.Done)
		k.Dispatched()
	}
	mustPut(t, a.Advertise(1), 0, load.Report{Running: 10, Waiting: 2, WaitingTokens: load.Known[int64](3000)})
	mustPut(t, b.Advertise(1), 0, load.Report{Running: 1, Waiting: 3, WaitingTokens: load.Known[int64](6000)})

	policy := LeastWork(LeastWorkConfig{}).(*leastWork)
	s := New(table, Config{Policy: policy, Peers: func() (int, int) { return 0, 1 }})
	p := mustPick(t, s, Request{PromptTokens: load.Known[int64](1000)})
	if p.Worker != a || p.Basis != Engine || p.Reason != LeastWaiting {
		t.Fatalf("%v, want a", p)
	}
	m := policy.model.Load()
	for i, want := range []float64{0.200 + 0.023, 0.350 + 0.013} {
		c := &m.cells[i]
		count := c.worker.Count()
		if i == 0 { // as it was before the pick
			count.Picked--
			count.TokensPicked -= 1000
		}
		if got := c.cost(count, 1000); math.Abs(got-want) > 1e-9 {
			t.Errorf("%s costs %v s, want %v", c.worker.ID(), got, want)
		}
	}
}

func TestLeastWorkIsThePolicyOfASelectorThatIsGivenNone(t *testing.T) {
	table, _ := withDepths(t, 0, 0)
	if p := mustPick(t, New(table, Config{}), Request{}); p.Policy != LeastWorkName {
		t.Errorf("the default policy is %s", p.Policy)
	}
}
