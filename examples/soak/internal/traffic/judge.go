package traffic

import (
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/plimsoll-go/plimsoll/examples/soak/internal/truth"
)

// slack is how long after the end of a fault it may still be felt: a connection that
// the death of an engine has cut is found to be so when it is used next.
const slack = time.Second

// noEngine is what the gateway calls it when it has no engine to pick.
const noEngine = "no_engine"

// judge says what became of a request, and how many of its attempts are excused.
// Whether that is right it tells the checks.
func (t *Traffic) judge(r request, a answer, attempts []truth.Attempt) (o Outcome, excused int) {
	if a.left {
		if a.status == 0 {
			return LeftEarly, 0
		}
		return LeftLater, 0
	}
	wrong, excused := t.lost(r, a, attempts)
	if a.worker != "" {
		ever := t.config.World.List.Ever(a.worker, a.began, a.ended, t.config.List)
		t.config.Checks.Listed.That(ever, "%s: %s went to %s, which was not in the list", t.config.Name, describe(r, a, attempts), a.worker)
		wrong = wrong || !ever
	}
	refused := a.status == http.StatusServiceUnavailable && a.code == noEngine
	wrong = t.refused(r, a, attempts, refused) || wrong
	wrong = t.failed(r, a, attempts, refused) || wrong
	switch {
	case wrong:
		return Wrong, excused
	case refused:
		return NoEngine, excused
	case a.whole && r.stream:
		return Streamed, excused
	case a.whole:
		return InOne, excused
	case a.status == http.StatusOK:
		return CutShort, excused
	case a.status == http.StatusBadRequest:
		return RankGone, excused
	}
	return Failed, excused
}

// lost looks at every attempt that was accepted.
func (t *Traffic) lost(r request, a answer, attempts []truth.Attempt) (wrong bool, excused int) {
	c := t.config.Checks.Lost
	served := -1
	if a.whole {
		for i := range attempts {
			if attempts[i].Engine.ID == a.worker {
				served = i // the newest
			}
		}
		if served < 0 {
			c.Broken("%s: %s was answered, and %q never accepted it", t.config.Name, describe(r, a, attempts), a.worker)
			return true, 0
		}
	}
	for i, at := range attempts {
		switch {
		case i == served:
			c.Held(1)
			continue
		case t.excused(at, a):
			c.Held(1)
			excused++
			continue
		}
		c.Broken("%s: %s was accepted by %s, which was well all the while, and its answer was lost", t.config.Name, describe(r, a, attempts), at.Engine.Name)
		wrong = true
	}
	return wrong, excused
}

// excused says whether it is the engine's own fault that its answer did not arrive. An
// engine that hangs is given up after Silence; in half of that it did not hang enough.
// What it is asked while it hangs it may accept when it does no more, and nobody waits
// for that any longer.
func (t *Traffic) excused(at truth.Attempt, a answer) bool {
	return at.Engine.Had(truth.Dying, at.At, a.ended) || at.Engine.Hung(a.began, a.ended) >= t.config.Silence/2
}

// refused looks at whether there was an engine to pick.
func (t *Traffic) refused(r request, a answer, attempts []truth.Attempt, refused bool) (wrong bool) {
	c := t.config.Checks.Refused
	if !refused {
		c.Held(1)
		return false
	}
	if e := t.config.World.Healthy(a.began, a.ended, t.config.Settle, t.config.List); e != nil {
		c.Broken("%s: %s was refused, and %s was there", t.config.Name, describe(r, a, attempts), e.Name)
		return true
	}
	c.Held(1)
	return false
}

// failed looks at whose fault it is that there is no whole answer.
func (t *Traffic) failed(r request, a answer, attempts []truth.Attempt, refused bool) (wrong bool) {
	c := t.config.Checks.Failed
	if a.whole || refused {
		c.Held(1)
		return false
	}
	e := t.config.World.Engine(a.worker)
	if e == nil {
		c.Broken("%s: %s failed on no engine at all", t.config.Name, describe(r, a, attempts))
		return true
	}
	faults, since := truth.Dying|truth.Down|truth.Frozen|truth.Failing, a.began.Add(-slack)
	if a.status == http.StatusBadRequest && strings.Contains(a.err.Error(), ": this engine has ") {
		faults, since = truth.Dying, a.began.Add(-t.config.Birth) // and it was another life that had the rank
	}
	if !e.Had(faults, since, a.ended) {
		c.Broken("%s: %s failed on %s, which was well all the while", t.config.Name, describe(r, a, attempts), e.Name)
		return true
	}
	c.Held(1)
	return false
}

// describe tells all that there is to know of a request.
func describe(r request, a answer, attempts []truth.Attempt) string {
	var b strings.Builder
	fmt.Fprintf(&b, "request %s (%s, stream %v, %d tokens; status %d, worker %s, took %v, %v; accepted", r.id, r.path(), r.stream, r.output, a.status, a.worker, a.ended.Sub(a.began), a.err)
	if len(attempts) == 0 {
		b.WriteString(" by none")
	}
	for _, at := range attempts {
		fmt.Fprintf(&b, " by %s after %v", at.Engine.Name, at.At.Sub(a.began))
		switch {
		case at.Ended.IsZero():
			b.WriteString(", not over;")
		case at.Whole:
			fmt.Fprintf(&b, ", written by %v;", at.Ended.Sub(a.began))
		default:
			fmt.Fprintf(&b, ", broken off at %v;", at.Ended.Sub(a.began))
		}
	}
	return strings.TrimSuffix(b.String(), ";") + ")"
}
