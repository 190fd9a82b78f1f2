package fleetsim

import (
	"fmt"
	"math/rand/v2"
	"strconv"
	"time"

	"github.com/plimsoll-go/plimsoll/selector"
)

// sim is one run.
type sim struct {
	config  Config
	now     int64 // nanoseconds since the beginning
	network int64

	agenda   agenda
	engines  []*engine
	groups   []*group
	ranks    []*rank
	gateways []*gateway
	flights  []flight
	wire     wire
	batches  batches

	next   int32 // request to arrive
	left   int   // requests that are not over
	series []int32
}

// flight is one request on its way.
type flight struct {
	// from the trace, and the seed
	prompt, output int32
	blocks         []uint64 // the full ones, which are what can be shared
	gateway        int32
	hidden         bool
	unstreamed     bool
	where          uint64 // random: where a hidden one goes

	// of its gateway
	pick       selector.Pick
	attempts   int8
	arrived    int64
	firstToken int64 // when its gateway saw it, or would have in a stream; 0: not yet
	over       int64
	failed     bool

	// of its rank
	engine, rank int32 // rank is among all of the fleet
	estimate     int32 // prompt tokens to be computed, as seen when it came
	produced     int32 // output tokens; while it decodes, as of its first
	need         int32 // tokens to be computed before it can decode, cached ones included
	computed     int32 // of these
	cached       int32 // of the prompt, found in the cache when it was first admitted
	pinned       int32 // blocks that it holds in the cache
	private      int32 // tokens in the KV cache that are its alone, but for those that it has decoded
	retractions  int32
	place        int32 // in rank.running
	admitted     int64 // number of its admission
	startStep    int64 // rank.steps when it began to decode
	endStep      int64 // and when it will have ended
	decoding     bool
}

// The streams of random numbers that a run draws from. Each is drawn from in an
// order that no policy has an influence on, but for those of the policies.
const (
	streamArrivals = iota + 1
	streamAnswers
	streamPolicy   = 1 << 16 // and the index of the gateway
	streamReports  = 1 << 32 // and the number of the rank
	streamRestarts = 1 << 48 // times the restarts of the gateway
)

func (s *sim) random(stream uint64) *rand.Rand {
	return rand.New(rand.NewPCG(s.config.Seed, stream))
}

// Run simulates a fleet from the first arrival until every request is over. The
// error is ErrConfig for a configuration that makes no sense; anything else would
// be a fault of this package.
func Run(c Config) (*Result, error) {
	s, err := newSim(c)
	if err != nil {
		return nil, err
	}
	for s.left > 0 {
		if err := s.turn(); err != nil {
			return nil, err
		}
	}
	if err := s.check(); err != nil {
		return nil, err
	}
	return s.result(), nil
}

func newSim(c Config) (*sim, error) {
	c, err := c.withDefaults()
	if err != nil {
		return nil, err
	}
	s := &sim{config: c, network: int64(c.Network)}
	for i := range c.Engines {
		s.addEngine(&s.config.Engines[i])
	}
	s.draw()
	if p, ok := c.Chooser.(Policy); ok {
		for i := range c.Gateways {
			s.gateways = append(s.gateways, newGateway(s, i, p))
		}
		for _, r := range s.ranks {
			if r.engine.up {
				s.startReporting(r)
			}
		}
	}
	for i, e := range c.Events {
		s.agenda.add(int64(e.At), scheduled, int32(i), 0)
	}
	s.agenda.add(0, sampleDue, 0, 0)
	return s, nil
}

// draw settles all that the seed decides of the requests.
func (s *sim) draw() {
	requests := s.config.Trace.Requests
	s.left = len(requests)
	s.flights = make([]flight, len(requests))
	// Which answers are unstreamed is drawn apart, so that the share changes nothing
	// else, and a larger one has all of a smaller.
	random, answers := s.random(streamArrivals), s.random(streamAnswers)
	unstreamed := s.config.Unstreamed
	if s.config.Reports.Wire == Piggyback {
		unstreamed = 0
	}
	var total float64
	for _, share := range s.config.Shares {
		total += share
	}
	for i, r := range requests {
		f := &s.flights[i]
		f.prompt, f.output = int32(r.Prompt), int32(r.Output)
		f.blocks = r.Blocks[:min(len(r.Blocks), r.Prompt/blockTokens)]
		f.arrived = int64(r.At)
		f.engine, f.rank = -1, -1
		at := random.Float64()
		f.hidden = random.Float64() < s.config.Faults.Hidden
		f.where = random.Uint64()
		f.unstreamed = answers.Float64() < unstreamed
		if s.config.Shares == nil {
			f.gateway = int32(at * float64(s.config.Gateways))
			continue
		}
		at *= total
		for f.gateway = 0; int(f.gateway) < s.config.Gateways-1 && at >= s.config.Shares[f.gateway]; f.gateway++ {
			at -= s.config.Shares[f.gateway]
		}
	}
}

// turn lets the next thing happen.
func (s *sim) turn() error {
	at, ok := s.agenda.next()
	if next := s.next; int(next) < len(s.flights) {
		if arrives := s.flights[next].arrived; !ok || arrives < at {
			s.now = arrives
			s.next++
			s.arrive(next)
			return nil
		}
	} else if s.agenda.awaited == 0 {
		return fmt.Errorf("fleetsim: %d requests are not over, and nothing is to happen to them", s.left)
	}
	e := s.agenda.take()
	s.now = e.at
	s.happen(&e)
	return nil
}

func (s *sim) happen(e *event) {
	switch e.kind {
	case stepEnds:
		if g := s.groups[e.a]; g.engine.incarnation == e.b {
			s.stepEnds(g)
		}
	case requestComes:
		s.requestComes(e.a)
	case tokenSeen:
		s.tokenSeen(e.a)
	case endSeen:
		s.endSeen(e.a)
	case failureSeen:
		s.failureSeen(e.a)
	case reportDue:
		s.reportDue(s.ranks[e.a], e.b)
	case reportSeen:
		s.reportSeen(e.a, s.gateways[e.b])
	case batchSeen:
		s.batchSeen(e.a, s.gateways[e.b])
	case crashSeen:
		for _, g := range s.gateways {
			g.remove(s.engines[e.a], e.b)
		}
	case scheduled:
		s.scheduled(&s.config.Events[e.a])
	case sampleDue:
		for _, e := range s.engines {
			s.series = append(s.series, int32(e.requests()))
		}
		s.agenda.add(s.now+int64(s.config.Sample), sampleDue, 0, 0)
	}
}

func (s *sim) scheduled(e *Event) {
	switch e.Kind {
	case SetSpeed:
		s.engines[e.Engine].speed = e.Speed
	case Crash:
		s.crash(s.engines[e.Engine])
	case Join:
		s.join(s.engines[e.Engine])
	case RestartGateway:
		if len(s.gateways) > 0 {
			s.gateways[e.Gateway].restart()
		}
	}
}

// arrive lets a request arrive at its gateway, or be sent on after a failure.
func (s *sim) arrive(req int32) {
	f := &s.flights[req]
	f.attempts++
	var e *engine
	var rank int
	if f.hidden {
		e, rank = s.anyEngine(f.where), -1
	} else {
		e, rank = s.config.Chooser.choose(s, f, req)
	}
	if e == nil {
		f.failed = true
		s.finished(f)
		return
	}
	r := e.rankFor(rank)
	f.engine, f.rank = e.index, r.number
	f.estimate = r.uncached(f)
	r.coming++
	r.comingTokens += int64(f.estimate)
	r.comingOutput += int64(f.output)
	s.agenda.add(s.now+s.network, requestComes, req, 0)
}

// anyEngine returns one of the engines that are up, or nil.
func (s *sim) anyEngine(random uint64) *engine {
	up := 0
	for _, e := range s.engines {
		if e.up {
			up++
		}
	}
	if up == 0 {
		return nil
	}
	at := int(random % uint64(up))
	for _, e := range s.engines {
		if e.up {
			if at == 0 {
				return e
			}
			at--
		}
	}
	return nil
}

func (s *sim) requestComes(req int32) {
	f := &s.flights[req]
	r := s.ranks[f.rank]
	r.coming--
	r.comingTokens -= int64(f.estimate)
	r.comingOutput -= int64(f.output)
	if !r.engine.up {
		s.failed(req)
		return
	}
	r.enqueue(req)
	r.group.step()
}

// started is called when a request's first token has been made.
func (s *sim) started(req int32) {
	if s.piggybacks(req) {
		s.firstOutput(req)
		return
	}
	s.agenda.add(s.now+s.network, tokenSeen, req, 0)
}

// ended is called when a request's last token has been made.
func (s *sim) ended(req int32) {
	s.flights[req].decoding = false
	if s.piggybacks(req) {
		s.lastOutput(req)
		return
	}
	s.agenda.add(s.now+s.network, endSeen, req, 0)
}

// failed is called when an engine has lost a request, or could not be reached.
func (s *sim) failed(req int32) {
	f := &s.flights[req]
	f.decoding = false
	f.produced, f.pinned, f.private = 0, 0, 0
	s.agenda.add(s.now+s.network, failureSeen, req, 0)
}

func (s *sim) tokenSeen(req int32) {
	f := &s.flights[req]
	if f.firstToken == 0 {
		f.firstToken = s.now
	}
	if !f.unstreamed {
		f.pick.FirstToken()
	}
}

func (s *sim) endSeen(req int32) {
	f := &s.flights[req]
	f.pick.FirstToken() // the first that a gateway sees of an unstreamed answer
	f.pick.Done()
	s.finished(f)
}

// maxAttempts is how often a gateway sends a request: it tries again once.
const maxAttempts = 2

func (s *sim) failureSeen(req int32) {
	f := &s.flights[req]
	if f.pick.Worker != nil {
		f.pick.Worker.SetAside()
	}
	f.pick.Done()
	if f.hidden || f.attempts == maxAttempts {
		f.failed = true
		s.finished(f)
		return
	}
	s.arrive(req)
}

func (s *sim) finished(f *flight) {
	f.over = s.now
	s.left--
}

// requests is how many are on the engine, waiting or running.
func (e *engine) requests() (n int64) {
	for _, r := range e.ranks {
		n += r.requests()
	}
	return n
}

// name returns the id of an engine's workers.
func (e *engine) name() string { return "engine-" + strconv.Itoa(int(e.index)) }

func (s *sim) clock() time.Time { return time.Unix(0, s.now) }
