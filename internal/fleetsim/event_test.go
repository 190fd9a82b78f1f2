package fleetsim

import (
	"math/rand/v2"
	"slices"
	"testing"
)

func TestTheAgendaIsInOrderOfTimeAndThenOfEntry(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	var q agenda
	var last event
	awaited, taken := 0, 0
	for added := 0; taken < 5000; {
		if added < 5000 && random.IntN(3) > 0 {
			kind := eventKind(random.IntN(int(sampleDue) + 1))
			if kind.awaited() {
				awaited++
			}
			q.add(last.at+random.Int64N(20), kind, int32(added), 0)
			added++
			continue
		}
		if len(q.heap) == 0 {
			continue
		}
		at, ok := q.next()
		e := q.take()
		if !ok || e.at != at || e.before(&last) {
			t.Fatalf("%+v comes after %+v", e, last)
		}
		if e.kind.awaited() {
			awaited--
		}
		if q.awaited != awaited {
			t.Fatalf("%d events are awaited, want %d", q.awaited, awaited)
		}
		last = e
		taken++
	}
	if _, ok := q.next(); ok {
		t.Error("there is something left")
	}
}

func TestEndingsAreInOrder(t *testing.T) {
	random := rand.New(rand.NewPCG(3, 4))
	var h endings
	var want []ending
	for i := range 1000 {
		e := ending{random.Int64N(100), int32(i)}
		h.add(e)
		want = append(want, e)
	}
	slices.SortFunc(want, func(a, b ending) int {
		if a.before(b) {
			return -1
		}
		return 1
	})
	for i, w := range want {
		if got := h.take(); got != w {
			t.Fatalf("ending %d is %+v, want %+v", i, got, w)
		}
	}
}

func TestTheQueueTakesItsHeadBack(t *testing.T) {
	random := rand.New(rand.NewPCG(5, 6))
	var q queue
	var want []int32
	for i := range int32(20_000) {
		switch {
		case random.IntN(2) == 0:
			q.push(i)
			want = append(want, i)
		case random.IntN(4) == 0:
			q.pushFront(i)
			want = slices.Insert(want, 0, i)
		case len(want) > 0:
			if front, got := q.front(), q.pop(); got != want[0] || front != got {
				t.Fatalf("got %d, want %d", got, want[0])
			}
			want = want[1:]
		}
		if q.len() != len(want) {
			t.Fatalf("%d in the queue, want %d", q.len(), len(want))
		}
	}
	if len(q.items) > 10*q.len()+200 {
		t.Errorf("%d places for %d", len(q.items), q.len())
	}
}
