package selector

import (
	"fmt"
	"math"
)

// Signal says what a candidate's load is where some candidates have a fresh and
// complete report and some have not. Comparing an engine's queue depth, which
// counts everybody's requests, with this gateway's own count, which does not,
// makes the silent worker look idle.
type Signal uint8

const (
	// Calibrated estimates the depth of a worker without a fresh report, by the
	// workers that have one: the larger of its own in-flight count times their
	// depth per own request, and of its own count plus what others have on each of
	// them on average. The first alone would call a worker idle that none of our
	// requests is on, and one of ten requests would keep it at a tenth: the fewer
	// we sent it, the more it would get.
	Calibrated Signal = iota

	// Mixed takes each worker on what there is of it: engine depth where it is
	// trusted, own count where it is not.
	Mixed

	// Uniform takes all candidates on their own counts as soon as one of them
	// has no fresh report.
	Uniform
)

var signalNames = [...]string{Calibrated: "calibrated", Mixed: "mixed", Uniform: "uniform"}

func (s Signal) String() string {
	if int(s) < len(signalNames) {
		return signalNames[s]
	}
	return "unknown"
}

// MarshalText encodes the signal as its name.
func (s Signal) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// UnmarshalText decodes a signal's name, for configuration files and flags.
func (s *Signal) UnmarshalText(b []byte) error {
	for i, name := range signalNames {
		if name == string(b) {
			*s = Signal(i)
			return nil
		}
	}
	return fmt.Errorf("selector: unknown signal %q (have calibrated, mixed, uniform)", b)
}

// Basis says what a load was made of.
type Basis uint8

const (
	// None: nothing; the policy does not look at load.
	None Basis = iota
	// Local: this gateway's own requests in flight.
	Local
	// Engine: what the engine reported, fresh and complete, plus the own requests
	// that it cannot have counted.
	Engine
	// Estimated: own requests in flight on the scale of engine reports.
	Estimated
)

func (b Basis) String() string {
	switch b {
	case None:
		return "none"
	case Local:
		return "local"
	case Engine:
		return "engine"
	case Estimated:
		return "estimated"
	}
	return "unknown"
}

// MarshalText encodes the basis as its name.
func (b Basis) MarshalText() ([]byte, error) { return []byte(b.String()), nil }

// scale turns own counts into engine depths. The zero scale leaves them as they
// are, for decisions in which nothing is to be estimated.
type scale struct {
	perOwn float64 // engine depth for each own request; 0: there are none
	others float64 // depth of a worker that is not ours
	on     bool
}

func newScale(workers int, depth, own int64) scale {
	if workers == 0 {
		return scale{}
	}
	s := scale{others: max(float64(depth)-float64(own), 0) / float64(workers), on: true}
	if own > 0 {
		s.perOwn = float64(depth) / float64(own)
	}
	return s
}

// depth estimates the depth of a worker with so many own requests in flight. It
// is never below that number.
func (s scale) depth(own int64) int64 { return rounded(s.estimate(float64(own))) }

func (s scale) estimate(own float64) float64 { return max(own*s.perOwn, own+s.others) }

// rounded is a count of requests, also where it was more than there can be.
func rounded(n float64) int64 {
	if n = math.Round(n); n >= math.MaxInt64 {
		return math.MaxInt64
	}
	return int64(n)
}
