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
	start  time.Duration // of the chat
	length time.Duration // of it
	rate   float64       // of it, per rank and second, on average
}

// request is one request of the plan.
type request struct {
	id     string
	at     time.Duration // since the start
	chat   bool
	prompt int           // tokens
	output int           // tokens
	stays  time.Duration // how long its client waits for the whole answer
}

// The requests of the burst are alike, as those of an evaluation are, or the samples
// of one prompt. All that get into one step of a rank end in one step, and the
// rank's last word counts them all. An opener on each rank sees to that: a long
// prompt and a single token, which has a step to itself, and a quarter of a second of
// it. The others come meanwhile, and fit into the next.
const (
	chunk        = 8_192 // prompt tokens that a rank computes in one step
	openerPrompt = chunk
	burstAt      = 50 * time.Millisecond // after the openers
	burstPrompt  = 256                   // at most
	burstOutput  = 24
)

// A chat request takes a rank about 0.1 s of prefill. Some clients leave before
// they have their answer, or even its first token.
const (
	promptLeast = 1_500
	promptMost  = 4_500
	outputLeast = 16
	outputMost  = 64
	leaveShare  = 0.05
	leaveLatest = 400 * time.Millisecond
	stay        = time.Hour // of the others
)

// plan returns the requests in the order in which they are sent. The same traffic
// always gives the same plan.
func (t traffic) plan() (plan []request) {
	for i := range t.burst * t.ranks {
		r := request{id: fmt.Sprint("burst-", i), at: burstAt, prompt: min(burstPrompt, chunk/t.burst), output: burstOutput, stays: stay}
		if i < t.ranks {
			r.at, r.prompt, r.output = 0, openerPrompt, 1
		}
		plan = append(plan, r)
	}
	rng := rand.New(rand.NewPCG(t.seed, 0))
	between := func(least, most int) int { return least + rng.IntN(most-least+1) }
	rate := t.rate * float64(t.ranks)
	at := t.start
	for i := 0; ; i++ {
		at += time.Duration(rng.ExpFloat64() / rate * float64(time.Second))
		if at >= t.start+t.length {
			return plan
		}
		r := request{
			id: fmt.Sprint("chat-", i), at: at, chat: true, stays: stay,
			prompt: between(promptLeast, promptMost), output: between(outputLeast, outputMost),
		}
		if rng.Float64() < leaveShare {
			r.stays = time.Duration(rng.Int64N(int64(leaveLatest)))
		}
		plan = append(plan, r)
	}
}
