package selector

import (
	"cmp"
	"encoding/json"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"time"

	"github.com/plimsoll-go/plimsoll/load"
)

// Explanation says how one pick came about: what each worker was compared by, and why
// others were not compared. It holds no part of the pick and may be kept; its workers
// are as they were at that moment.
type Explanation struct {
	Policy       string            `json:"policy"`
	Reason       Reason            `json:"reason,omitzero"`   // of the choice; 0: nothing was chosen
	PromptTokens load.Maybe[int64] `json:"prompt_tokens"`     // as the request says
	Tries        int               `json:"tries"`             // choices until no other pick was in the way
	Workers      []Considered      `json:"workers"`           // all in the table: the chosen one, then the others that were compared, best first
	Learned      *Learned          `json:"learned,omitempty"` // by a policy that learns
	Err          error             `json:"-"`                 // the pick's; its text is "error" in JSON
}

// MarshalJSON encodes the explanation with the text of its error.
func (x Explanation) MarshalJSON() ([]byte, error) {
	type plain Explanation
	out := struct {
		plain
		Err string `json:"error,omitempty"`
	}{plain: plain(x)}
	if x.Err != nil {
		out.Err = x.Err.Error()
	}
	return json.Marshal(out)
}

// Considered is a worker, or one of its ranks, in an Explanation.
type Considered struct {
	Worker *load.Worker `json:"-"`
	ID     string       `json:"worker"`
	Rank   int          `json:"rank"` // load.NoRank: the whole worker
	Chosen bool         `json:"chosen"`
	Out    Out          `json:"out"`     // why it was not compared; 0: it was
	Why    load.Why     `json:"reports"` // "trusted", or why they are not; of a worker that is not healthy, no_feed

	Basis Basis         `json:"basis"`
	Load  int64         `json:"load"`   // on that basis
	Age   time.Duration `json:"age_ns"` // of its oldest report

	// Cost is what it was compared by, and Terms are its summands, where the policy
	// compares something else than Load.
	Cost  time.Duration `json:"cost_ns,omitempty"`
	Terms []Term        `json:"terms,omitempty"`
}

// Term is one summand of a cost.
type Term struct {
	Name   string        `json:"name"`
	Amount float64       `json:"amount"` // of what the name says
	Cost   time.Duration `json:"cost_ns"`
}

// Out says why a worker was not compared.
type Out uint8

const (
	Compared    Out = iota
	NotHealthy      // by Worker.SetHealthy; or it came or went in this instant
	IsSetAside      // by Worker.SetAside, and others are not
	NotListed       // not among the request's candidates, or the request is pinned to another
	IsExcluded      // by the request
	FilteredOut     // by the request's filter
	LacksRank       // the request is pinned to a rank that it does not have
	NotDrawn        // the policy compares some at random
)

func (o Out) String() string {
	switch o {
	case Compared:
		return "compared"
	case NotHealthy:
		return "not_healthy"
	case IsSetAside:
		return "set_aside"
	case NotListed:
		return "not_listed"
	case IsExcluded:
		return "excluded"
	case FilteredOut:
		return "filtered_out"
	case LacksRank:
		return "lacks_rank"
	case NotDrawn:
		return "not_drawn"
	}
	return "unknown"
}

// MarshalText encodes it as its name.
func (o Out) MarshalText() ([]byte, error) { return []byte(o.String()), nil }

// PickExplained is Pick, and says how the pick came about, also where there is none.
// It goes over all workers of the table: it is for some picks, on demand. See
// Config.Explain for a sample.
func (s *Selector) PickExplained(r Request) (Pick, *Explanation, error) {
	x := new(Explanation)
	p, err := s.pick(&r, x)
	return p, x, err
}

// Explaining reports whether somebody wants to know what the policy compares. Then it
// may call Compared for each candidate that it has compared.
func (d *Decision) Explaining() bool { return d.explaining }

// Compared says that the policy has compared a candidate or, where rank is not
// load.NoRank, one of its ranks, and by what if not by its load. All candidates
// are taken to have been compared by their loads where a policy does not call it.
func (d *Decision) Compared(c Candidate, rank int, terms ...Term) {
	if !d.explaining {
		return
	}
	x := Considered{Rank: rank, Basis: c.Basis, Load: c.Load, Terms: terms}
	for _, t := range terms {
		x.Cost += t.Cost
	}
	x.describe(d, d.Entry(int(c.index)))
	d.considered = append(d.considered, x)
}

func (x *Considered) describe(d *Decision, e load.Entry) {
	x.Worker, x.ID = e.Worker(), e.Worker().ID()
	x.Why, x.Age = e.Why(), d.view.Age(e)
}

// explain fills in how the choice came about, right after it was made.
func (d *Decision) explain(x *Explanation, s *Selector, c Choice) {
	if len(d.considered) == 0 {
		for i := range d.Len() {
			d.Compared(d.Candidate(i), load.NoRank)
		}
	}
	x.Reason = c.Reason
	x.Workers = slices.Clone(d.considered)
	chosen := d.Entry(int(c.Candidate.index)).Worker()
	for i := range x.Workers {
		w := &x.Workers[i]
		w.Chosen = w.Worker == chosen && (w.Rank == load.NoRank || w.Rank == c.rank())
	}
	slices.SortStableFunc(x.Workers, func(a, b Considered) int {
		if a.Chosen != b.Chosen {
			if a.Chosen {
				return -1
			}
			return 1
		}
		return cmp.Or(cmp.Compare(a.Cost, b.Cost), cmp.Compare(a.Load, b.Load))
	})
	if l, ok := s.policy.(Learner); ok {
		learned := l.Learned()
		x.Learned = &learned
	}
	d.explainOthers(x, s.table.Workers())
}

// explainOthers fills in the workers that were not compared.
func (d *Decision) explainOthers(x *Explanation, all []*load.Worker) {
	have := make(map[*load.Worker]bool, len(x.Workers))
	for i := range x.Workers {
		have[x.Workers[i].Worker] = true
	}
	compared := len(x.Workers)
	for _, w := range all {
		if !have[w] {
			x.Workers = append(x.Workers, d.out(w))
		}
	}
	slices.SortFunc(x.Workers[compared:], func(a, b Considered) int {
		return cmp.Or(cmp.Compare(a.Out, b.Out), cmp.Compare(a.ID, b.ID))
	})
}

// out says why a worker was not compared. It does not ask the request's filter, which is
// called once for each worker and was.
func (d *Decision) out(w *load.Worker) Considered {
	x := Considered{Worker: w, ID: w.ID(), Rank: load.NoRank}
	place, ok := d.view.Position(w)
	if !ok {
		x.Out, x.Why = NotHealthy, load.NoFeed
		return x
	}
	e := d.view.At(place)
	x.describe(d, e)
	r := &d.Request
	rank, pinned := r.Rank.Get()
	switch _, candidate := slices.BinarySearch(d.places, int32(place)); {
	case d.some && candidate, !d.some && place < d.view.Len():
		x.Out = NotDrawn
	case r.Worker != nil && r.Worker != w, r.Worker == nil && r.Candidates != nil && !slices.Contains(r.Candidates, w):
		x.Out = NotListed
	case pinned && rank != load.NoRank && !hasRank(e, rank):
		x.Out = LacksRank
	case r.Worker == nil && slices.Contains(r.Exclude, w):
		x.Out = IsExcluded
	case place >= d.view.Len() && (!d.some || len(d.places) > 0 && int(d.places[0]) < d.view.Len()):
		x.Out = IsSetAside
	default:
		x.Out = FilteredOut
	}
	return x
}

// String tells the explanation in lines, of which the first is for the whole and each
// other for one worker. Of those that were not compared it only counts how many.
func (x *Explanation) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s: %s, prompt of %v tokens", x.Policy, x.outcome(), x.PromptTokens)
	if x.Tries > 1 {
		fmt.Fprintf(&b, ", at the %d. try", x.Tries)
	}
	for i := range x.Workers {
		if w := &x.Workers[i]; w.Out == Compared {
			fmt.Fprintf(&b, "\n%s", w)
		}
	}
	for _, c := range x.outs() {
		fmt.Fprintf(&b, "\n  %s: %v", c.Key, c.Value)
	}
	return b.String()
}

func (x *Explanation) outcome() string {
	if x.Err != nil {
		return x.Err.Error()
	}
	return x.Reason.String()
}

// outs counts the workers that were not compared, by the reason.
func (x *Explanation) outs() (counts []slog.Attr) {
	n := make(map[Out]int)
	for i := range x.Workers {
		n[x.Workers[i].Out]++
	}
	for o := Compared + 1; o <= NotDrawn; o++ {
		if n[o] > 0 {
			counts = append(counts, slog.Int(o.String(), n[o]))
		}
	}
	return counts
}

// String tells in one line what the worker was compared by.
func (x Considered) String() string {
	var b strings.Builder
	mark := ' '
	if x.Chosen {
		mark = '*'
	}
	fmt.Fprintf(&b, "%c %s", mark, x.ID)
	if x.Rank != load.NoRank {
		fmt.Fprintf(&b, " rank %d", x.Rank)
	}
	if x.Out != Compared {
		fmt.Fprintf(&b, ": %v", x.Out)
		return b.String()
	}
	fmt.Fprintf(&b, ": load %d (%v)", x.Load, x.Basis)
	if x.Terms != nil {
		fmt.Fprintf(&b, ", cost %v", roundedWait(x.Cost))
		sep := " = "
		for _, t := range x.Terms {
			fmt.Fprintf(&b, "%s%v %s (%.4g)", sep, roundedWait(t.Cost), t.Name, t.Amount)
			sep = " + "
		}
	}
	if x.Why != load.Trusted {
		fmt.Fprintf(&b, ", reports: %v", x.Why)
	} else if x.Age > 0 {
		fmt.Fprintf(&b, ", reported %v ago", x.Age.Round(time.Millisecond))
	}
	return b.String()
}

func roundedWait(d time.Duration) time.Duration { return d.Round(10 * time.Microsecond) }

// logged is how many workers are worth a log record.
const logged = 4

// LogValue gives slog the chosen worker and the best of the others.
func (x *Explanation) LogValue() slog.Value {
	attrs := []slog.Attr{slog.String("policy", x.Policy), slog.String("reason", x.outcome())}
	if n, ok := x.PromptTokens.Get(); ok {
		attrs = append(attrs, slog.Int64("prompt_tokens", n))
	}
	compared := 0
	for i := range x.Workers {
		if w := &x.Workers[i]; w.Out == Compared {
			if compared++; compared <= logged {
				attrs = append(attrs, slog.String(fmt.Sprint(compared), strings.TrimSpace(w.String())))
			}
		}
	}
	attrs = append(attrs, slog.Int("compared", compared))
	if outs := x.outs(); len(outs) > 0 {
		attrs = append(attrs, slog.Attr{Key: "out", Value: slog.GroupValue(outs...)})
	}
	return slog.GroupValue(attrs...)
}
