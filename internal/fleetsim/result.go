package fleetsim

import (
	"fmt"
	"math"
	"slices"
	"time"
)

// Result is what has become of a run.
type Result struct {
	Requests []Outcome // in the order of their arrival
	Series   Series
	Ranks    []RankTotals
	End      time.Duration // when the last request was over

	warm int // requests before this one are not measured
}

// Outcome is the fate of one request. Times are since the beginning of the run, as
// the request's gateway saw them, or would have if the answer had been streamed.
type Outcome struct {
	Arrived    time.Duration
	FirstToken time.Duration // 0: it never came
	Over       time.Duration

	Gateway int
	Engine  int // the last that it was sent to; -1: none
	Rank    int // within that engine

	Prompt, Output int // tokens
	Cached         int // of the prompt, found in the engine's cache
	Retractions    int
	Attempts       int  // times that it was sent
	Hidden         bool // it went past the gateways
	Unstreamed     bool // its answer came whole
	Failed         bool
}

// TTFT is the time to the first token.
func (o *Outcome) TTFT() time.Duration { return o.FirstToken - o.Arrived }

// Response is the time to the last token.
func (o *Outcome) Response() time.Duration { return o.Over - o.Arrived }

// TPOT is the mean time between two tokens; 0 where there is one only.
func (o *Outcome) TPOT() time.Duration {
	if o.Output < 2 {
		return 0
	}
	return (o.Over - o.FirstToken) / time.Duration(o.Output-1)
}

// Series holds how many requests each engine had, waiting or running, at regular
// times from the beginning on.
type Series struct {
	Every   time.Duration
	Engines int
	Loads   []int32 // of all engines at the first time, then at the second, and so on
}

// Len returns the number of times.
func (s *Series) Len() int { return len(s.Loads) / max(s.Engines, 1) }

// At returns the loads of all engines at the i-th time.
func (s *Series) At(i int) []int32 { return s.Loads[i*s.Engines : (i+1)*s.Engines] }

// RankTotals is what a rank has done since its engine last started.
type RankTotals struct {
	Engine, Rank  int
	PrefillTokens int64
	Stepping      time.Duration
}

// Quantiles of a time.
type Quantiles struct {
	Mean, P50, P90, P99, Max time.Duration
}

// Summary is a Result in a few numbers. It is about the requests that arrived
// after the warm-up and did not go past the gateways; times are of those that did
// not fail.
type Summary struct {
	Requests    int
	Failed      int
	Retried     int // requests that were sent more than once
	Retractions int

	TTFT     Quantiles
	TPOT     Quantiles // of requests with more than one token
	Response Quantiles

	// MaxOverMean is the load of the most loaded engine, in units of the mean of all,
	// on average over the time of the arrivals; 0 if there was no load.
	MaxOverMean float64

	CacheHits float64 // share of prompt tokens found in the engines' caches
}

// Summary returns the summary of the run.
func (r *Result) Summary() Summary {
	var s Summary
	var ttft, tpot, response []time.Duration
	var prompt, cached int
	for i := r.warm; i < len(r.Requests); i++ {
		o := &r.Requests[i]
		if o.Hidden {
			continue
		}
		s.Requests++
		s.Retractions += o.Retractions
		if o.Attempts > 1 {
			s.Retried++
		}
		if o.Failed {
			s.Failed++
			continue
		}
		prompt += o.Prompt
		cached += o.Cached
		ttft = append(ttft, o.TTFT())
		response = append(response, o.Response())
		if o.Output > 1 {
			tpot = append(tpot, o.TPOT())
		}
	}
	s.TTFT, s.TPOT, s.Response = quantiles(ttft), quantiles(tpot), quantiles(response)
	if prompt > 0 {
		s.CacheHits = float64(cached) / float64(prompt)
	}
	s.MaxOverMean = r.maxOverMean()
	return s
}

func (r *Result) maxOverMean() float64 {
	if r.warm >= len(r.Requests) {
		return 0
	}
	from, to := r.Requests[r.warm].Arrived, r.Requests[len(r.Requests)-1].Arrived
	var total float64
	var n int
	for i := range r.Series.Len() {
		if at := time.Duration(i) * r.Series.Every; at < from || at > to {
			continue
		}
		var sum, highest int32
		for _, l := range r.Series.At(i) {
			sum += l
			highest = max(highest, l)
		}
		if sum > 0 {
			total += float64(highest) * float64(r.Series.Engines) / float64(sum)
			n++
		}
	}
	if n == 0 {
		return 0
	}
	return total / float64(n)
}

// quantiles sorts the times. A quantile is the smallest time that so large a share
// of all does not exceed.
func quantiles(times []time.Duration) Quantiles {
	n := len(times)
	if n == 0 {
		return Quantiles{}
	}
	slices.Sort(times)
	var sum float64
	for _, t := range times {
		sum += float64(t)
	}
	at := func(q float64) time.Duration {
		return times[max(int(math.Ceil(q*float64(n)))-1, 0)]
	}
	return Quantiles{time.Duration(sum / float64(n)), at(0.5), at(0.9), at(0.99), times[n-1]}
}

func (s *sim) result() *Result {
	r := &Result{
		Requests: make([]Outcome, len(s.flights)),
		Series:   Series{s.config.Sample, len(s.engines), s.series},
		End:      time.Duration(s.now),
		warm:     int(s.config.WarmUp.Or(0) * float64(len(s.flights))),
	}
	for i := range s.flights {
		f := &s.flights[i]
		o := &r.Requests[i]
		*o = Outcome{
			Arrived:    time.Duration(f.arrived),
			FirstToken: time.Duration(f.firstToken),
			Over:       time.Duration(f.over),
			Gateway:    int(f.gateway),
			Engine:     int(f.engine),
			Prompt:     int(f.prompt), Output: int(f.output), Cached: int(f.cached),
			Retractions: int(f.retractions),
			Attempts:    int(f.attempts),
			Hidden:      f.hidden,
			Unstreamed:  f.unstreamed,
			Failed:      f.failed,
		}
		if f.rank >= 0 {
			o.Rank = s.ranks[f.rank].index
		}
	}
	for _, k := range s.ranks {
		r.Ranks = append(r.Ranks, RankTotals{int(k.engine.index), k.index, k.prefilled, time.Duration(k.stepping)})
	}
	return r
}

// check looks for what no run may leave behind.
func (s *sim) check() error {
	for _, r := range s.ranks {
		if r.requests() != 0 || r.coming != 0 || r.decoding != 0 || len(r.prefilling) != 0 || r.kvUsed() != 0 || r.kvRead != 0 ||
			r.waitingTokens != 0 || r.prefillTokens != 0 || r.comingTokens != 0 || r.outputTokens != 0 || r.comingOutput != 0 {
			return fmt.Errorf("fleetsim: rank %d is not empty at the end: %+v", r.number, r)
		}
	}
	for _, g := range s.gateways {
		workers := g.table.Workers()
		if len(workers) != len(g.engines) {
			return fmt.Errorf("fleetsim: gateway %d knows %d workers, and its table %d", g.index, len(g.engines), len(workers))
		}
		for _, w := range workers {
			if own := w.Own(); own.InFlight != 0 || own.Unstarted != 0 || own.PendingTokens != 0 {
				return fmt.Errorf("fleetsim: gateway %d, %s: books are %+v at the end", g.index, w.ID(), own)
			}
			if e := g.engines[w]; e == nil || g.targets[e.index].worker != w {
				return fmt.Errorf("fleetsim: gateway %d has lost track of %s", g.index, w.ID())
			}
		}
	}
	return nil
}
