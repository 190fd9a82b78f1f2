package main

import (
	"io"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/plimsoll-go/plimsoll/examples/internal/simengine/batch"
	"github.com/plimsoll-go/plimsoll/load"
	"github.com/plimsoll-go/plimsoll/tokenspeed"
)

// simulation plays traffic to a connector and the schedulers of its ranks in
// simulated time: what the program does, without the sockets, and the same each
// time.
type simulation struct {
	t         *testing.T
	connector *load.Connector
	ranks     []simulatedRank
	flying    []*simulatedRequest
	now       time.Duration
}

type simulatedRank struct {
	core     *batch.Core
	stepping bool
	end      time.Duration // of the step under way
	formed   batch.Load    // the load when it began
}

type simulatedRequest struct {
	answer
	number batch.ID
	place  load.Reservation
	start  time.Duration
}

// simulate returns what becomes of the traffic.
func simulate(t *testing.T, traffic traffic, believe bool) *result {
	t.Helper()
	connector, err := newConnector("", traffic.ranks, believe)
	if err != nil {
		t.Fatal(err)
	}
	s := &simulation{t: t, connector: connector}
	for range traffic.ranks {
		s.ranks = append(s.ranks, simulatedRank{core: batch.New(batch.Config{})})
	}
	var sent []*simulatedRequest
	idle := newIdleness(traffic.ranks)
	for phase, plan := range traffic.plan() {
		start := s.now
		for len(plan) > 0 || len(s.flying) > 0 {
			next, act := s.next()
			if len(plan) > 0 && (act == nil || start+plan[0].at <= next) {
				next, act = start+plan[0].at, func() {
					sent = append(sent, s.send(plan[0], len(sent)))
					plan = plan[1:]
				}
			}
			if phase == phaseChat && len(plan) > 0 {
				idle.look(next, s.connector.Status().Ranks)
			}
			s.now = next
			act()
		}
	}
	answers := make([]answer, len(sent))
	for i, r := range sent {
		answers[i] = r.answer
	}
	return newResult(traffic, answers, s.connector.Status(), idle, nil)
}

// next returns what happens next if nothing more is sent: a step ends, or a client
// leaves.
func (s *simulation) next() (at time.Duration, act func()) {
	for i := range s.ranks {
		if r := &s.ranks[i]; r.stepping && (act == nil || r.end < at) {
			at, act = r.end, func() { s.finish(i) }
		}
	}
	for _, r := range s.flying {
		if end := r.start + r.stays; act == nil || end < at {
			at, act = end, func() { s.leave(r) }
		}
	}
	return at, act
}

func (s *simulation) send(q request, number int) *simulatedRequest {
	place, err := s.connector.Reserve(q.id, int64(q.prompt))
	if err != nil {
		s.t.Fatal(err)
	}
	r := &simulatedRequest{number: batch.ID(number), place: place, start: s.now}
	r.answer = answer{request: q, outcome: outcome{rank: place.Rank()}, sent: true}
	place.Dispatched()
	if err := s.ranks[r.rank].core.Add(r.number, int64(q.prompt), int64(q.output)); err != nil {
		s.t.Fatal(err)
	}
	s.flying = append(s.flying, r)
	s.begin(r.rank)
	return r
}

func (s *simulation) begin(rank int) {
	r := &s.ranks[rank]
	if r.stepping {
		return
	}
	d, ok := r.core.Begin()
	r.stepping, r.end, r.formed = ok, s.now+d, r.core.Load()
}

// finish ends a step, and has the connector see the batch that comes of it.
func (s *simulation) finish(rank int) {
	r := &s.ranks[rank]
	r.stepping = false
	tokens := r.core.Finish(nil)
	b := tokenspeed.Summary{Elements: 14, EngineIndex: rank, Load: tokenspeed.Load{
		Known: true, Running: r.formed.Running + r.formed.Waiting, Waiting: r.formed.Waiting,
		KVActivePages: r.formed.KVUsed, KVTotalPages: r.core.Config().KVTokens,
	}}
	for _, token := range tokens {
		i := slices.IndexFunc(s.flying, func(f *simulatedRequest) bool { return f.number == token.ID })
		f := s.flying[i]
		if token.N == 1 {
			f.first = s.now - f.start
		}
		if token.Last {
			b.Finished = append(b.Finished, []byte(f.id))
			s.flying = slices.Delete(s.flying, i, i+1)
		}
	}
	if len(tokens) > 0 {
		if err := s.connector.Observe(load.FromTokenSpeed(&b, nil)); err != nil {
			s.t.Fatal(err)
		}
	}
	s.begin(rank)
}

func (s *simulation) leave(r *simulatedRequest) {
	r.left = true
	r.place.Abort()
	s.ranks[r.rank].core.Abort(r.number)
	s.flying = slices.DeleteFunc(s.flying, func(f *simulatedRequest) bool { return f == r })
}

// The default traffic is to show the flaw whatever it is drawn from. That needs all
// of the burst in the last word of a shunned rank, and less than that ever in flight
// elsewhere.
func TestEverySeedShows(t *testing.T) {
	for args, seeds := range map[string]uint64{"": 20, "-ranks 2": 5, "-ranks 5": 5} {
		o, err := parse(strings.Fields(args), io.Discard)
		if err != nil {
			t.Fatal(err)
		}
		for seed := range seeds {
			o.traffic.seed = seed
			believed, counted := simulate(t, o.traffic, true), simulate(t, o.traffic, false)
			if n := len(believed.shunned()); n != o.group.ranks/2 {
				t.Errorf("%s, seed %d: %d ranks were shunned", args, seed, n)
			}
			for _, rank := range believed.shunned() {
				k := believed.ranks[rank]
				if last, _ := k.status.Running.Get(); k.chat != 0 || last != int64(o.traffic.burst-1) {
					t.Errorf("%s, seed %d: rank %d got %d requests after saying that it had %d", args, seed, rank, k.chat, last)
				}
			}
			if counted.shunned() != nil || counted.first50 >= believed.first50 || counted.first99 >= believed.first99 {
				t.Errorf("%s, seed %d: %s", args, seed, compared(believed, counted))
			}
		}
	}
}
