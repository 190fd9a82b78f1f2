package main

import (
	"encoding/json"
	"fmt"
	"os"
	"time"

	"github.com/plimsoll-go/plimsoll/internal/fleetsim"
)

// document is all that the lab has found out, as it stands in the JSON. Whatever
// is printed or drawn is made from this alone. Times are in seconds.
type document struct {
	Seeds       int           `json:"seeds"`
	Contestants []contestant  `json:"contestants"`
	Missing     []string      `json:"missing_traces,omitempty"`
	Cells       []*cellResult `json:"cells"`
	Closing     []closing     `json:"closing"`
	Behind      []behind      `json:"behind"`
	Took        seconds       `json:"took"`
}

// cellResult is a cell and what each contestant made of it, in their order.
type cellResult struct {
	cell
	Results []*result `json:"results"`
}

// result is what one contestant made of a cell.
type result struct {
	Contestant string    `json:"contestant"`
	Seeds      []measure `json:"seeds"`
	Ratio      interval  `json:"ratio"` // of p99 times to first token, to the better oracle's
	Curve      []seconds `json:"curve"` // times to first token of the first seed, at curveShares
	Heat       *heat     `json:"heat,omitempty"`

	chooser fleetsim.Chooser // nil: was there already
}

// measure is one run in numbers.
type measure struct {
	Seed        int       `json:"seed"`
	Requests    int       `json:"requests"`
	Failed      int       `json:"failed"`
	Retried     int       `json:"retried"`
	Retractions int       `json:"retractions"`
	TTFT        quantiles `json:"ttft"`
	TPOT        quantiles `json:"tpot"`
	Response    quantiles `json:"response"`
	MaxOverMean float64   `json:"max_over_mean"`
	CacheHits   float64   `json:"cache_hits"`
	Ratio       float64   `json:"ratio"`
}

type quantiles struct {
	Mean seconds `json:"mean"`
	P50  seconds `json:"p50"`
	P90  seconds `json:"p90"`
	P99  seconds `json:"p99"`
	Max  seconds `json:"max"`
}

func newQuantiles(q fleetsim.Quantiles) quantiles {
	return quantiles{inSeconds(q.Mean), inSeconds(q.P50), inSeconds(q.P90), inSeconds(q.P99), inSeconds(q.Max)}
}

func newMeasure(seed int, s fleetsim.Summary) measure {
	return measure{
		Seed:     seed,
		Requests: s.Requests, Failed: s.Failed, Retried: s.Retried, Retractions: s.Retractions,
		TTFT: newQuantiles(s.TTFT), TPOT: newQuantiles(s.TPOT), Response: newQuantiles(s.Response),
		MaxOverMean: s.MaxOverMean, CacheHits: s.CacheHits,
	}
}

func (c *cellResult) find(contestant string) *result {
	for _, r := range c.Results {
		if r.Contestant == contestant {
			return r
		}
	}
	return nil
}

func (d *document) write(file string) error {
	b, err := json.Marshal(d)
	if err != nil {
		return err
	}
	return os.WriteFile(file, append(b, '\n'), 0o644)
}

func readDocument(file string) (*document, error) {
	b, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	d := new(document)
	if err := json.Unmarshal(b, d); err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	return d, nil
}

func (s seconds) String() string { return fmt.Sprint(s.duration().Round(time.Microsecond)) }
