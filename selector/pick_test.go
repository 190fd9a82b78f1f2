package selector

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/plimsoll-go/plimsoll/load"
)

func TestAPickSaysWhatItWasMadeOn(t *testing.T) {
	table, clock := newTestTable()
	a, b := table.Add("a", ""), table.Add("b", "")
	fa := a.Advertise(2)
	mustPut(t, fa, 0, load.Report{Running: 1})
	clock.advance(300 * time.Millisecond)
	mustPut(t, fa, 1, load.Report{Waiting: 2})
	mustPut(t, b.Advertise(2), 0, load.Report{Running: 100})
	clock.advance(700 * time.Millisecond)

	s := New(table, Config{Policy: LeastDepth(LeastDepthConfig{})})
	p := mustPick(t, s, Request{Rank: load.Known(1), Candidates: []*load.Worker{a}})
	if p.Load != 3 || p.Basis != Engine || p.Age != time.Second || p.Candidates != 1 {
		t.Errorf("%+v", p)
	}
	if got, want := p.String(), "a by least_depth: least_loaded of 1, load 3 (engine), reported 1s ago, rank 1"; got != want {
		t.Errorf("it prints as %q, want %q", got, want)
	}
	p = mustPick(t, s, Request{Worker: b})
	if got, want := p.String(), "b by least_depth: pinned of 1, load 0 (local)"; got != want {
		t.Errorf("it prints as %q, want %q", got, want)
	}
	for _, policy := range []Policy{RoundRobin(), Random()} { // look at no load, and name none
		p := mustPick(t, New(table, Config{Policy: policy}), Request{Candidates: []*load.Worker{a}})
		if p.Basis != None || p.Load != 0 || p.Age != 0 || p.Worker != a {
			t.Errorf("%s: %+v", policy.Name(), p)
		}
		if got, want := p.String(), "a by "+policy.Name()+": "+p.Reason.String()+" of 1"; got != want {
			t.Errorf("it prints as %q, want %q", got, want)
		}
	}
	if got := (Pick{}).String(); got != "no pick" {
		t.Errorf("the zero pick prints as %q", got)
	}
	if b, err := json.Marshal(struct {
		Reason Reason
		Basis  Basis
	}{p.Reason, p.Basis}); err != nil || string(b) != `{"Reason":"pinned","Basis":"local"}` {
		t.Errorf("its reason and basis are encoded as %s (%v)", b, err)
	}
}

func TestTheZeroPickIsInert(t *testing.T) {
	var p Pick
	p.Dispatched()
	p.FirstToken()
	p.Done()
	p.Done()
}

func TestMarksOfAPickShowInTheBooksOfItsWorker(t *testing.T) {
	table, workers := withDepths(t, 0)
	s := New(table, Config{})
	p := mustPick(t, s, Request{PromptTokens: load.Known[int64](500)})
	q := p
	for _, step := range []struct {
		mark func()
		want load.Own
	}{
		{func() {}, load.Own{InFlight: 1, Unstarted: 1, PendingTokens: 500}},
		{p.Dispatched, load.Own{InFlight: 1, Unstarted: 1, PendingTokens: 500}},
		{q.FirstToken, load.Own{InFlight: 1}},
		{p.FirstToken, load.Own{InFlight: 1}},
		{q.Done, load.Own{}},
		{p.Done, load.Own{}},
	} {
		step.mark()
		if got := workers[0].Own(); got != step.want {
			t.Errorf("the books are %+v, want %+v", got, step.want)
		}
	}
}

func TestAPromptOfUnknownLengthIsPickedAndPendsNothing(t *testing.T) {
	table, workers := withDepths(t, 0)
	s := New(table, Config{Policy: PowerOfTwo()})
	for _, tokens := range []load.Maybe[int64]{{}, load.Known[int64](0), load.Known[int64](-1)} {
		p := mustPick(t, s, Request{PromptTokens: tokens})
		if got := workers[0].Own(); got != (load.Own{InFlight: 1, Unstarted: 1}) {
			t.Errorf("%v tokens: the books are %+v", tokens, got)
		}
		p.Done()
	}
}
