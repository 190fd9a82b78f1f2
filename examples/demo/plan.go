package main

import (
	"math/rand/v2"
	"strings"
	"time"
)

// traffic is what is sent to the gateway: open loop, which means that requests
// come when they come, whether the earlier ones have been answered or not. Users
// do not wait for each other.
type traffic struct {
	seed   uint64
	rate   float64 // requests per second, on average
	length time.Duration
}

// request is one request of the plan.
type request struct {
	at     time.Duration // since the start
	prompt int           // tokens
	output int           // tokens
}

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

// plan returns the requests in the order in which they are sent. The same
// traffic always gives the same plan: no policy is to have an easier time than
// another.
func (t traffic) plan() []request {
	rng := rand.New(rand.NewPCG(t.seed, 0))
	between := func(least, most int) int { return least + rng.IntN(most-least+1) }
	var plan []request
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
		r := request{at: at, prompt: between(shortLeast, shortMost), output: between(16, 64)}
		if rng.Float64() < longShare {
			r.prompt, r.output = between(longLeast, longMost), between(32, 96)
		}
		plan = append(plan, r)
	}
}

// text returns a prompt of so many tokens, at four characters each.
func text(tokens int) string { return strings.Repeat("sea ", tokens) }
