package main

import (
	"cmp"
	"math/rand/v2"
	"slices"
	"strings"
	"time"
)

// traffic is what the engines get while a policy is measured: the requests that
// come to the gateway, and foreign ones that it never sees. Both are open loop,
// which means that requests come when they come, whether the earlier ones have
// been answered or not. Users do not wait for each other.
type traffic struct {
	seed   uint64
	length time.Duration
	rate   float64 // requests per second to the gateway, on average
	batch  int     // requests in each foreign batch
}

// request is one request of the plan.
type request struct {
	at     time.Duration // since the start
	to     int           // the engine that it is sent straight to, or toGateway
	prompt int           // tokens
	output int           // tokens
}

// toGateway is where requests go that a policy has to find an engine for.
const toGateway = -1

// A burst at twice the average rate opens each cycle.
const (
	cycle      = 2 * time.Second
	burst      = 600 * time.Millisecond
	burstRate  = 2.0
	calmRate   = (float64(cycle) - burstRate*float64(burst)) / float64(cycle-burst)
	longShare  = 0.15
	shortLeast = 100
	shortMost  = 600
	longLeast  = 2_000
	longMost   = 6_000
)

// Foreign traffic is a job that knows of no gateway: it hands its requests to an
// engine as fast as it can and comes again when the engine has dealt with them,
// to another one.
const (
	batchFirst  = 500 * time.Millisecond // at that time
	batchPeriod = 4500 * time.Millisecond
	batchLength = time.Second // of sending; a full batch is several times as much work
	batchOnto   = 2           // engines in turn, one of either wire
)

// plan returns the requests in the order in which they are sent. The same
// traffic always gives the same plan: no policy is to have an easier time than
// another.
func (t traffic) plan() []request {
	plan := slices.Concat(t.own(), t.foreign())
	slices.SortStableFunc(plan, func(a, b request) int { return cmp.Compare(a.at, b.at) })
	return plan
}

// own returns the requests to the gateway.
func (t traffic) own() (plan []request) {
	rng := rand.New(rand.NewPCG(t.seed, 0))
	var at time.Duration
	for {
		rate := t.rate * calmRate
		if at%cycle < burst {
			rate = t.rate * burstRate
		}
		at += time.Duration(rng.ExpFloat64() / rate * float64(time.Second))
		if at >= t.length {
			return plan
		}
		plan = append(plan, newRequest(rng, at, toGateway))
	}
}

// foreign returns the requests that go straight to an engine. Their sizes are
// those of everybody's.
func (t traffic) foreign() (plan []request) {
	rng := rand.New(rand.NewPCG(t.seed, 1))
	for n := 0; ; n++ {
		start := batchFirst + time.Duration(n)*batchPeriod
		if start+batchLength > t.length {
			return plan
		}
		for range t.batch {
			plan = append(plan, newRequest(rng, start+time.Duration(rng.Int64N(int64(batchLength))), n%batchOnto))
		}
	}
}

func newRequest(rng *rand.Rand, at time.Duration, to int) request {
	between := func(least, most int) int { return least + rng.IntN(most-least+1) }
	if rng.Float64() < longShare {
		return request{at, to, between(longLeast, longMost), between(32, 96)}
	}
	return request{at, to, between(shortLeast, shortMost), between(16, 64)}
}

// text returns a prompt of so many tokens, at four characters each.
func text(tokens int) string { return strings.Repeat("sea ", tokens) }
