package selector

import (
	"encoding/json"
	"fmt"
	"log/slog"
	"time"

	"github.com/plimsoll-go/plimsoll/load"
)

// Pick is a choice that was made, and the request's place in the books of the
// worker. It may be copied; the copies share one state. The zero Pick is inert.
//
// The embedded Ticket is what the host marks, idempotently and from any
// goroutine: Dispatched when the request has been written to the engine, FirstToken
// with the first byte of its answer, and Done, deferred, when it is over in any
// way. A retry is a pick of its own.
type Pick struct {
	load.Ticket

	Worker *load.Worker
	Rank   int // load.NoRank: the engine chooses

	// Why this worker.
	Policy     string
	Reason     Reason
	Basis      Basis
	Load       int64         // on that basis, before this request
	Wait       time.Duration // expected, by a policy that expects some
	Age        time.Duration // of the oldest report that Load is made of, where Basis is Engine
	Candidates int           // workers that took part
}

// LogValue makes slog print what String does.
func (p Pick) LogValue() slog.Value { return slog.StringValue(p.String()) }

// MarshalJSON encodes what the fields say, with the worker as its id.
func (p Pick) MarshalJSON() ([]byte, error) {
	var worker string
	if p.Worker != nil {
		worker = p.Worker.ID()
	}
	return json.Marshal(struct {
		Worker     string        `json:"worker"`
		Rank       int           `json:"rank"`
		Policy     string        `json:"policy"`
		Reason     Reason        `json:"reason"`
		Basis      Basis         `json:"basis"`
		Load       int64         `json:"load"`
		Wait       time.Duration `json:"wait_ns"`
		Age        time.Duration `json:"age_ns"`
		Candidates int           `json:"candidates"`
	}{worker, p.Rank, p.Policy, p.Reason, p.Basis, p.Load, p.Wait, p.Age, p.Candidates})
}

// String tells the pick in one line, for logs.
func (p Pick) String() string {
	if p.Worker == nil {
		return "no pick"
	}
	s := fmt.Sprintf("%s by %s: %s of %d", p.Worker.ID(), p.Policy, p.Reason, p.Candidates)
	if p.Basis != None {
		s += fmt.Sprintf(", load %d (%s)", p.Load, p.Basis)
	}
	if p.Wait > 0 {
		s += fmt.Sprintf(", wait %v", p.Wait.Round(100*time.Microsecond))
	}
	if p.Basis == Engine && p.Age > 0 {
		s += fmt.Sprintf(", reported %v ago", p.Age.Round(time.Millisecond))
	}
	if p.Rank != load.NoRank {
		s += fmt.Sprintf(", rank %d", p.Rank)
	}
	return s
}
