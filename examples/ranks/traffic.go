package main

import (
	"fmt"
	"math/rand/v2"
	"time"
)

// traffic is what the group is sent.
type traffic struct {
	ranks  int
	seed   uint64
	burst  int           // requests for each rank, at once
	length time.Duration // of the chat
	rate   float64       // of it, per rank and second, on average
	drain  time.Duration // how long the last answers of a phase may take
}

// request is one request of the plan.
type request struct {
	id     string
	at     time.Duration // since its phase began
	chat   bool
	prompt int           // tokens
	output int           // tokens
	stays  time.Duration // how long its client waits for the whole answer
}

// The traffic has three phases. Each begins when all of the one before are answered,
// so that what the ranks have said last does not depend on how fast they are.
const (
	phaseBurst = iota
	phaseFirst // of the chat
	phaseChat
	phases
)

// The requests of the burst are alike, as those of an evaluation are, or the samples
// of one prompt. It is the worst case of a burst: all of a rank's requests end in
// one step, and its last word counts them all. An opener on each rank sees to that: a
// long prompt and a single token, which has two steps to itself, and half a second
// of them. The others come meanwhile, and fit into the next.
const (
	chunk        = 8_192 // prompt tokens that a rank computes in one step
	openerPrompt = 2 * chunk
	burstAt      = 50 * time.Millisecond // after the openers
	burstPrompt  = 256                   // at most
	burstOutput  = 24
)

// A chat request takes a rank about 0.1 s of prefill. Some clients leave before
// they have their answer, or even its first token.
const (
	lull        = 500 * time.Millisecond // before the first, for the ranks to be seen idle
	promptLeast = 1_500
	promptMost  = 4_500
	outputLeast = 8
	outputMost  = 32
	leaveShare  = 0.05
	leaveLatest = 400 * time.Millisecond
	stay        = time.Hour // of the others
)

// plan returns the requests of each phase in the order in which they are sent. The
// same traffic always gives the same plan.
func (t traffic) plan() (plan [phases][]request) {
	for i := range t.burst * t.ranks {
		r := request{id: fmt.Sprint("burst-", i), at: burstAt, prompt: min(burstPrompt, chunk/t.burst), output: burstOutput, stays: stay}
		if i < t.ranks {
			r.at, r.prompt, r.output = 0, openerPrompt, 1
		}
		plan[phaseBurst] = append(plan[phaseBurst], r)
	}
	rng := rand.New(rand.NewPCG(t.seed, 0))
	between := func(least, most int) int { return least + rng.IntN(most-least+1) }
	chat := func(i int, at time.Duration) request {
		return request{
			id: fmt.Sprint("chat-", i), at: at, chat: true, stays: stay,
			prompt: between(promptLeast, promptMost), output: between(outputLeast, outputMost),
		}
	}
	// Ranks whose last words are alike get a request each before any of them has
	// spoken again. Left to chance that may be all of them; here it is every second.
	first := (t.ranks + 1) / 2
	for i := range first {
		plan[phaseFirst] = append(plan[phaseFirst], chat(i, lull))
	}
	rate := t.rate * float64(t.ranks)
	at := time.Duration(0)
	for i := first; ; i++ {
		at += time.Duration(rng.ExpFloat64() / rate * float64(time.Second))
		if at >= t.length {
			return plan
		}
		r := chat(i, at)
		if rng.Float64() < leaveShare {
			r.stays = time.Duration(rng.Int64N(int64(leaveLatest)))
		}
		plan[phaseChat] = append(plan[phaseChat], r)
	}
}
