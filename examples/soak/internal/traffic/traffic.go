package traffic

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/plimsoll-go/plimsoll/examples/soak/internal/check"
	"github.com/plimsoll-go/plimsoll/examples/soak/internal/truth"
)

// Config is the clients of one gateway.
type Config struct {
	Name string // of the gateway
	URL  string
	Rate float64 // requests a second
	Seed uint64

	World  *truth.World
	Checks Checks

	Silence time.Duration // after which the gateway gives up an engine that says nothing
	Settle  time.Duration // that it takes the gateway to notice that an engine is well
	List    time.Duration // until it acts upon a change of the list
	Bound   time.Duration // in which every request must have ended
	Birth   time.Duration // until it notices that an engine came back with other ranks
}

// Checks are what is checked of requests.
type Checks struct {
	Lost    *check.Check
	Refused *check.Check
	Failed  *check.Check
	Listed  *check.Check
	Ended   *check.Check
}

// NewChecks adds the checks to a list. enough is how many requests there have to be.
func NewChecks(l *check.List, enough int) Checks {
	return Checks{
		Lost:    l.Add("what an engine accepted was answered by it, unless it died or hung, or the client left", enough/2),
		Refused: l.Add("no request was refused while there was a healthy engine", enough),
		Failed:  l.Add("no request failed but on an engine that was at fault", enough),
		Listed:  l.Add("no request went to an engine that was not in the list", enough/2),
		Ended:   l.Add("every request came to an end", enough),
	}
}

// Outcome is what became of a request, as far as its client is concerned.
type Outcome string

const (
	Streamed  Outcome = "answered, streamed"
	InOne     Outcome = "answered, in one piece"
	LeftEarly Outcome = "client left before the answer"
	LeftLater Outcome = "client left within the answer"
	CutShort  Outcome = "cut short: its engine died or hung within the answer"
	Failed    Outcome = "failed: the engines that were tried died, hung or failed it"
	RankGone  Outcome = "failed: sent to a rank that its engine had until just before"
	NoEngine  Outcome = "refused: there was no engine"
	Wrong     Outcome = "wrong" // and told by a check
)

// Outcomes are all of them, in the order in which they are told.
var Outcomes = []Outcome{Streamed, InOne, LeftEarly, LeftLater, CutShort, Failed, RankGone, NoEngine, Wrong}

// Tally is what became of all requests.
type Tally struct {
	Outcomes map[Outcome]int
	Attempts int // that engines accepted
	Excused  int // of those, that died with their engine or were given up for its silence
	Retried  int // requests that another engine accepted after that
}

// Requests returns how many there were.
func (t Tally) Requests() (n int) {
	for _, k := range t.Outcomes {
		n += k
	}
	return n
}

// Plus returns both together.
func (t Tally) Plus(o Tally) Tally {
	sum := Tally{Outcomes: make(map[Outcome]int), Attempts: t.Attempts + o.Attempts, Excused: t.Excused + o.Excused, Retried: t.Retried + o.Retried}
	for _, m := range []map[Outcome]int{t.Outcomes, o.Outcomes} {
		for k, n := range m {
			sum.Outcomes[k] += n
		}
	}
	return sum
}

// Traffic is the clients of one gateway.
type Traffic struct {
	config Config
	client *http.Client

	mu    sync.Mutex
	tally Tally
}

// New returns traffic that has not begun.
func New(c Config) *Traffic {
	return &Traffic{
		config: c,
		client: &http.Client{Transport: &http.Transport{
			MaxIdleConnsPerHost: 1000,
			// A server waits for some time only for the first request on a connection, and
			// whoever sends one at that moment has lost it.
			IdleConnTimeout: 3 * time.Second,
		}},
		tally: Tally{Outcomes: make(map[Outcome]int)},
	}
}

// mostAtOnce keeps a machine that is too slow for the rate from drowning. Engines that
// hang hold a tenth of that.
const mostAtOnce = 500

// Run sends requests until ctx ends, when they come and not when earlier ones have
// been answered, and returns when all have come to their end.
func (t *Traffic) Run(ctx context.Context) {
	defer t.client.CloseIdleConnections()
	rng := rand.New(rand.NewPCG(t.config.Seed, 0))
	var under sync.WaitGroup
	defer under.Wait()
	places := make(chan struct{}, mostAtOnce)
	due := time.Now()
	timer := time.NewTimer(0)
	defer timer.Stop()
	for n := 0; ; n++ {
		r := draw(rng, fmt.Sprintf("%s-%d", strings.ReplaceAll(t.config.Name, " ", "-"), n)) // an id that the gateway passes on
		due = due.Add(time.Duration(rng.ExpFloat64() / t.config.Rate * float64(time.Second)))
		timer.Reset(time.Until(due))
		select {
		case <-ctx.Done():
			return
		case <-timer.C:
		}
		places <- struct{}{}
		under.Go(func() {
			defer func() { <-places }()
			t.one(r)
		})
	}
}

// one is one client from its beginning to its end, whatever else ends meanwhile.
func (t *Traffic) one(r request) {
	ctx, cancel := context.WithTimeout(context.Background(), t.config.Bound)
	defer cancel()
	t.config.World.Requests.Open(r.id)
	a := ask(ctx, t.client, t.config.URL, r)
	attempts := t.config.World.Requests.Close(r.id)
	t.config.Checks.Ended.That(ctx.Err() == nil, "%s: request %s has not ended after %v", t.config.Name, r.id, t.config.Bound)
	outcome, excused := t.judge(r, a, attempts)
	t.mu.Lock()
	defer t.mu.Unlock()
	t.tally.Outcomes[outcome]++
	t.tally.Attempts += len(attempts)
	t.tally.Excused += excused
	if len(attempts) > 1 {
		t.tally.Retried++
	}
}

// Tally returns what has become of the requests so far.
func (t *Traffic) Tally() Tally {
	t.mu.Lock()
	defer t.mu.Unlock()
	tally := t.tally
	tally.Outcomes = maps.Clone(tally.Outcomes)
	return tally
}
