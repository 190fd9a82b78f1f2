package trace

import (
	"math"
	"math/rand/v2"
	"time"
)

// Class is one kind of requests of a mix. Lengths are log-normal: half are below
// the median, and Sigma is the standard deviation of their logarithm.
type Class struct {
	Weight       float64 // share of the requests, relative to the other classes
	PromptMedian float64
	PromptSigma  float64
	PromptMax    int
	OutputMedian float64
	OutputSigma  float64
	OutputMax    int
}

// Mix describes a synthetic trace.
type Mix struct {
	Seed     uint64
	Requests int
	Rate     float64 // requests per second, on average; 0 means 10
	Classes  []Class // nil means LongTail

	// Arrivals are a Poisson process whose rate changes between a calm and a burst
	// one, each lasting for an exponential time. BurstRate is the latter relative to
	// the former; 0 or 1 is a plain Poisson process. Calm and Burst are the mean
	// times, in mean intervals between arrivals; 0 means 200 and 40.
	BurstRate   float64
	Calm, Burst float64
}

// LongTail is a mix of short chats, long documents and long answers, with means
// of some 2,100 prompt and 400 output tokens.
var LongTail = []Class{
	{Weight: 0.70, PromptMedian: 350, PromptSigma: 0.9, PromptMax: 8_000, OutputMedian: 180, OutputSigma: 0.8, OutputMax: 2_000},
	{Weight: 0.18, PromptMedian: 6_000, PromptSigma: 0.9, PromptMax: 60_000, OutputMedian: 200, OutputSigma: 0.7, OutputMax: 2_000},
	{Weight: 0.12, PromptMedian: 500, PromptSigma: 0.8, PromptMax: 8_000, OutputMedian: 1_300, OutputSigma: 0.6, OutputMax: 6_000},
}

// Generate returns a synthetic trace. Equal mixes give equal traces.
func Generate(name string, m Mix) *Trace {
	if m.Classes == nil {
		m.Classes = LongTail
	}
	rate := or(m.Rate, 10)
	burst := or(m.BurstRate, 1)
	calmFor, burstFor := or(m.Calm, 200), or(m.Burst, 40)

	sizes := rand.New(rand.NewPCG(m.Seed, 1))
	times := rand.New(rand.NewPCG(m.Seed, 2))
	var total float64
	for _, c := range m.Classes {
		total += c.Weight
	}
	// In units of the mean interval: so much of it is calm that the mean rate is 1.
	calmRate := (calmFor + burstFor) / (calmFor + burst*burstFor)
	rates := [2]float64{calmRate, calmRate * burst}
	lasts := [2]float64{calmFor, burstFor}

	var now, until float64
	state := 1
	requests := make([]Request, m.Requests)
	for i := range requests {
		for {
			if now >= until {
				state = 1 - state
				until = now + times.ExpFloat64()*lasts[state]
			}
			// The process has no memory, so that what was drawn before the rate
			// changed can be thrown away.
			next := now + times.ExpFloat64()/rates[state]
			if next < until {
				now = next
				break
			}
			now = until
		}
		c := m.Classes[pick(m.Classes, sizes.Float64()*total)]
		requests[i] = Request{
			At:     time.Duration(now / rate * float64(time.Second)),
			Prompt: length(sizes, c.PromptMedian, c.PromptSigma, c.PromptMax),
			Output: length(sizes, c.OutputMedian, c.OutputSigma, c.OutputMax),
		}
	}
	return newTrace(name, requests)
}

func pick(classes []Class, at float64) int {
	for i, c := range classes {
		if at -= c.Weight; at < 0 {
			return i
		}
	}
	return len(classes) - 1
}

func length(r *rand.Rand, median, sigma float64, limit int) int {
	n := median * math.Exp(sigma*r.NormFloat64())
	return max(1, int(min(n, float64(limit))))
}

func or(v, def float64) float64 {
	if v == 0 {
		return def
	}
	return v
}
