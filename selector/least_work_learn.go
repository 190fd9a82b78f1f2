package selector

import (
	"math"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/plimsoll-go/plimsoll/load"
)

// Learned is what LeastWork goes by at some moment, besides reports and books.
type Learned struct {
	PerToken   time.Duration `json:"per_token_ns"`   // that a prompt token takes on a rank of speed 1
	Base       time.Duration `json:"base_ns"`        // that the first token takes besides
	PerRequest time.Duration `json:"per_request_ns"` // that a request there is worth
	FirstToken time.Duration `json:"first_token_ns"` // mean time from a pick to its first token
	Response   time.Duration `json:"response_ns"`    // mean time from a pick to its end
	Prompt     float64       `json:"prompt_tokens"`  // of the mean request

	Replicas float64       `json:"replicas"`        // gateways, as Config.Peers says or as many as our share of the load makes
	Others   float64       `json:"others_requests"` // on the average rank
	Bias     time.Duration `json:"bias_ns"`         // by which a worker outside of the slice has to be better
	Away     float64       `json:"away"`            // by how much longer than expected a request waits there

	Speeds []WorkerSpeed `json:"speeds,omitempty"`
}

// WorkerSpeed is how fast a worker's ranks are, next to the average one.
type WorkerSpeed struct {
	Worker   string  `json:"worker"`
	Speed    float64 `json:"speed"`
	Requests float64 `json:"requests"` // that this is learned from, of which the older ones count less
}

// Learner is a policy that learns, such as LeastWork. It is asked also where the request
// is pinned to a worker, to learn from that too.
type Learner interface {
	Policy
	Learned() Learned
}

// Learned returns what the policy goes by now.
func (p *leastWork) Learned() Learned {
	m := p.model.Load()
	learned := m.Learned
	p.learner.mu.Lock()
	defer p.learner.mu.Unlock()
	for i := range m.cells {
		if c := &m.cells[i]; i == 0 || m.cells[i-1].worker != c.worker {
			learned.Speeds = append(learned.Speeds, WorkerSpeed{c.worker.ID(), c.waits.Speed(), c.waits.n})
		}
	}
	return learned
}

// unlearned is what a policy begins with: right for an 8B model on an H100, within an
// order of magnitude for others, and of no weight once there are samples.
func unlearned() Learned {
	return Learned{
		PerToken: 50 * time.Microsecond, PerRequest: 50 * time.Microsecond * tokensPerRequest,
		FirstToken: 100 * time.Millisecond, Response: 5 * time.Second,
		Prompt: 1000, Replicas: 1, Away: 1,
	}
}

const (
	// tokensPerRequest is what a request there is worth in prompt tokens. It slows
	// the steps of its engine down for as long as it lasts, and that is not seen in
	// first-token times alone: with less, requests with long answers pile up; with
	// several times as much, prompts do.
	tokensPerRequest = 40

	minPerToken = 1e-6 // seconds, between which every engine is
	maxPerToken = 5e-3

	recent     = 0.02  // weight of the newest of a moving mean
	keepLine   = 0.999 // of each sample of the line, with the next one
	keepWorker = 0.998 // of each sample of a worker
	keepMinute = 0.75  // of all of them, with each minute
	lineFrom   = 50    // samples before the line is believed
	lineSpread = 1e-4  // of the squares of the tokens ahead, that their variance has to be
	farAhead   = 100   // mean prompts; who has more ahead was told so by an engine that has lost count

	// A worker is as fast as the average one until its own waits say otherwise, with
	// this many samples against them, and by more than chance alone makes of it.
	doubts     = 20
	unremarked = 0.2 // of the logarithm of its speed
	maxSpeed   = 10  // and its reciprocal

	maxDrift = 0.3 // of the logarithm of the mean speed, from that of 1

	maxAway = 2

	sweepEvery = time.Minute
	maxUnseen  = time.Minute // what is expected to begin later is not remembered for longer
)

// learner is told of each request that was picked by the policy. It does without
// some of them rather than let anybody wait.
type learner struct {
	waits sync.Map // *load.Worker: *waits

	mu        sync.Mutex
	firstWait float64 // seconds, moving mean
	response  float64 // seconds, moving mean
	prompt    float64 // tokens, moving mean
	speed     float64 // its logarithm, moving mean
	line      line    // of the waits in the slice, at speed 1, by the tokens ahead
	away      ratio   // of the waits outside of it
	sweep     time.Duration

	unseen    chan begins
	beginning []begins // what has been taken out of it
}

func newLearner() *learner {
	l := unlearned()
	return &learner{
		firstWait: l.FirstToken.Seconds(), response: l.Response.Seconds(), prompt: l.Prompt,
		unseen: make(chan begins, 1024),
	}
}

// waits compares the waits on one worker with what the line says.
type waits struct {
	ratio                // guarded by the learner's mu
	absent bool          // likewise: it was gone when that was last looked after
	speed  atomic.Uint64 // bits of a float; 0: not known
}

// Speed is how fast the worker is, next to the average one.
func (w *waits) Speed() float64 {
	if bits := w.speed.Load(); bits != 0 {
		return math.Float64frombits(bits)
	}
	return 1
}

// of returns the waits on a worker.
func (l *learner) of(w *load.Worker) *waits {
	if have, ok := l.waits.Load(w); ok {
		return have.(*waits)
	}
	have, _ := l.waits.LoadOrStore(w, new(waits))
	return have.(*waits)
}

// note is what a reservation carries for the learner: by how many prompt tokens,
// its own included, the first token is away, how many milliseconds that is
// expected to take, and whether it is outside of the slice.
type note uint64

func newNote(ahead float64, away bool, expected float64) note {
	n := note(min(1000*max(expected, 0), math.MaxUint32))<<32 | note(min(max(ahead, 0), maxOthersTokens-1))<<1
	if away {
		n |= 1
	}
	return n
}

func (n note) ahead() float64          { return float64(uint32(n) >> 1) }
func (n note) away() bool              { return n&1 != 0 }
func (n note) expected() time.Duration { return time.Duration(n>>32) * time.Millisecond }

// begins is a request whose first token nobody will see. It is taken to have begun when
// that was expected: otherwise its prompt would seem to wait for as long as the
// answer takes, which is many times as long.
type begins struct {
	at     time.Duration
	ticket load.Ticket
}

// reserved is told of such a request. Where there are more of them at once than anybody
// will ever see, the prompts of some wait until they are done.
func (l *learner) reserved(t load.Ticket, at time.Duration, n note) {
	select {
	case l.unseen <- begins{at + min(n.expected(), maxUnseen), t}:
	default:
	}
}

// beginLocked marks those that have begun by now.
func (l *learner) beginLocked(now time.Duration) {
	for range len(l.unseen) {
		l.beginning = append(l.beginning, <-l.unseen)
	}
	l.beginning = slices.DeleteFunc(l.beginning, func(b begins) bool {
		if b.at > now {
			return false
		}
		b.ticket.AssumeStarted()
		return true
	})
}

// firstToken is told of a first token.
//
// Waits are compared with those of all workers on the line: a worker whose requests
// wait half as long again as the line says is that much slower. The line itself is of the
// slice alone, where the tokens ahead are known best: what is not known of them
// flattens it. How much longer requests wait outside is learned apart.
func (l *learner) firstToken(w *load.Worker, took time.Duration, of uint64) {
	if !l.mu.TryLock() {
		return
	}
	defer l.mu.Unlock()
	n := note(of)
	at0, slope, ok := l.line.fit()
	want := max(at0+slope*n.ahead(), 0)
	most := max(want, 0.1)
	if !ok { // as with the slowest engine that there is
		most = 1 + maxPerToken/maxSpeed*n.ahead()
	}
	waited := min(took.Seconds(), maxSpeed*most) // what hangs says nothing of others
	l.firstWait += recent * (waited - l.firstWait)
	if n.ahead() > farAhead*max(l.prompt, 1) {
		return
	}
	waits := l.of(w)
	speed := waits.Speed()
	if ok {
		if n.away() {
			l.away.add(want, waited, keepLine)
			want *= l.awayLocked()
		}
		waits.add(want, waited, keepWorker)
		waits.speed.Store(math.Float64bits(waits.relative()))
	}
	if !n.away() {
		// If all have become faster than the line says, it is the line that is wrong.
		l.speed += recent * (math.Log(speed) - l.speed)
		drift := l.speed - min(max(l.speed, -maxDrift), maxDrift)
		l.line.add(n.ahead(), waited*speed/math.Exp(drift))
	}
}

// done is told of the end of a request that had a first token.
func (l *learner) done(_ *load.Worker, took time.Duration, _ uint64) {
	if l.mu.TryLock() {
		l.response += recent * (took.Seconds() - l.response)
		l.mu.Unlock()
	}
}

func (l *learner) promptLocked(tokens load.Maybe[int64]) {
	if n, ok := tokens.Get(); ok {
		l.prompt += recent * (min(max(float64(n), 0), maxOthersTokens) - l.prompt)
	}
}

func (l *learner) learnedLocked() Learned {
	u := unlearned()
	if at0, perToken, ok := l.line.fit(); ok {
		u.Base = wait(max(at0, 0))
		u.PerToken = wait(min(max(perToken, minPerToken), maxPerToken))
		u.PerRequest = tokensPerRequest * u.PerToken
	}
	u.FirstToken = wait(max(l.firstWait, 1e-3))
	u.Response = wait(max(l.response, 1e-2))
	u.Prompt = l.prompt
	u.Bias = min(max(u.FirstToken*3/2, 20*time.Millisecond), 500*time.Millisecond)
	u.Away = l.awayLocked()
	return u
}

// sweepLocked forgets workers that have been gone for a while, and by and by what it knows
// of those that are here: who seemed slow gets few requests to show that it is not. One
// that is not healthy for a moment is as fast as before when it comes back.
func (l *learner) sweepLocked(v load.View) {
	if v.Now() < l.sweep {
		return
	}
	l.sweep = v.Now() + sweepEvery
	l.waits.Range(func(key, value any) bool {
		waits := value.(*waits)
		waits.fade()
		waits.speed.Store(math.Float64bits(waits.relative()))
		_, here := v.Position(key.(*load.Worker))
		if !here && waits.absent {
			l.waits.Delete(key)
		}
		waits.absent = !here
		return true
	})
}

// awayLocked is by how much longer a request waits than expected where the requests of
// others are not known as our own are.
func (l *learner) awayLocked() float64 {
	a := &l.away
	if a.want <= 0 {
		return 1
	}
	return min(max((a.got/a.want*a.n+doubts)/(a.n+doubts), 1), maxAway)
}

// ratio is that of two sums over samples, of which the older ones count less.
type ratio struct{ want, got, n float64 }

func (r *ratio) add(want, got, keep float64) {
	r.want, r.got, r.n = r.want*keep+want, r.got*keep+got, r.n*keep+1
}

// fade takes weight from all samples.
func (r *ratio) fade() { r.want, r.got, r.n = r.want*keepMinute, r.got*keepMinute, r.n*keepMinute }

// relative is how fast a worker is whose requests waited so long.
func (r *ratio) relative() float64 {
	if r.want <= 0 || r.got <= 0 {
		return 1
	}
	s := math.Log(r.want/r.got) * r.n / (r.n + doubts)
	if math.Abs(s) <= unremarked {
		return 1
	}
	z := unremarked / s
	return min(max(math.Exp(s*(1-z*z)), 1./maxSpeed), maxSpeed)
}

// line is a straight line through samples, of which the older ones count less.
type line struct{ n, x, y, xx, xy float64 }

func (l *line) add(x, y float64) {
	l.n = l.n*keepLine + 1
	l.x = l.x*keepLine + x
	l.y = l.y*keepLine + y
	l.xx = l.xx*keepLine + x*x
	l.xy = l.xy*keepLine + x*y
}

// fit returns where the line is at 0, and its slope. It fails where there is no line
// that a wait could follow: few samples, all alike, or waits that get shorter with
// more to do.
func (l *line) fit() (at0, slope float64, ok bool) {
	d := l.n*l.xx - l.x*l.x
	if l.n < lineFrom || d <= lineSpread*l.n*l.xx {
		return 0, 0, false
	}
	slope = (l.n*l.xy - l.x*l.y) / d
	return (l.y - slope*l.x) / l.n, slope, slope > 0
}
