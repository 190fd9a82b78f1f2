package loadhttp

import (
	"time"

	"github.com/plimsoll-go/plimsoll/load"
	"github.com/plimsoll-go/plimsoll/selector"
)

// Status is what status.json answers. Names are only ever added to it. Durations
// are in nanoseconds.
type Status struct {
	Title    string    `json:"title"`
	At       time.Time `json:"at"`       // of this picture, which is up to an interval old
	Since    time.Time `json:"since"`    // when history and events begin
	Level    Level     `json:"level"`    // the worst there is
	Headline string    `json:"headline"` // the whole in words

	Window   time.Duration `json:"window_ns"`   // a report that is older is stale
	Interval time.Duration `json:"interval_ns"` // between two samples

	Policy  string            `json:"policy,omitempty"`  // see Config.Policy
	Learned *selector.Learned `json:"learned,omitempty"` // by a policy that learns; speeds are with the workers

	Fleet   Fleet       `json:"fleet"`
	Workers []Worker    `json:"workers"` // ordered by id
	Picks   []Explained `json:"picks"`   // the newest first
	Events  []Event     `json:"events"`  // the newest first
}

// Level says how urgent something is.
type Level string

const (
	OK   Level = "ok"
	Warn Level = "warn" // worth a look
	Out  Level = "out"  // gets no requests, because the host says so
	Bad  Level = "bad"  // its load is not known, and should be
)

// worse is the order of levels.
func (l Level) worse(than Level) bool { return l.rank() > than.rank() }

func (l Level) rank() int {
	switch l {
	case Warn:
		return 1
	case Out:
		return 2
	case Bad:
		return 3
	}
	return 0
}

// Fleet is about all workers together.
type Fleet struct {
	Workers   int            `json:"workers"`
	Trusted   int            `json:"trusted"`   // and healthy and not set aside
	Attention int            `json:"attention"` // of those, with notes
	States    map[string]int `json:"states"`    // workers by Worker.State

	Running   int64   `json:"running"` // of trusted workers, as reported
	Waiting   int64   `json:"waiting"`
	MeanDepth float64 `json:"mean_depth"` // of a trusted worker; see Worker.DepthNow
	InFlight  int64   `json:"in_flight"`  // own requests, on all workers
	PickRate  float64 `json:"picks_per_second"`
}

// Worker is what is known of one worker.
type Worker struct {
	load.WorkerStatus

	// State is "trusted", "dead", "unhealthy", "set_aside" or the name of the
	// load.Why that it is not trusted for: the first of these that explains why it
	// does not get requests by its report.
	State string `json:"state"`
	Level Level  `json:"level"`

	Advice string `json:"advice,omitempty"` // what to do about State
	Notes  []Note `json:"notes,omitempty"`  // what is remarkable about a worker that is trusted

	Running       load.Maybe[int64]   `json:"running"` // of all ranks, as last reported, fresh or not
	Waiting       load.Maybe[int64]   `json:"waiting"`
	WaitingTokens load.Maybe[int64]   `json:"waiting_tokens"`
	KVUsage       load.Maybe[float64] `json:"kv_usage"`  // of the fullest rank
	DepthNow      load.Maybe[int64]   `json:"depth_now"` // depth, and own requests since; unknown unless trusted

	PickRate float64             `json:"picks_per_second"`
	Share    float64             `json:"share"` // of all picks, over about the last 15 s; 0 to 1
	Speed    load.Maybe[float64] `json:"speed"` // next to the average worker, as learned

	History History `json:"history,omitempty"` // of DepthNow, the oldest first, one per interval

	read time.Time // when that was so
}

// Note is something to know about a worker that is trusted.
type Note struct {
	Name string `json:"name"` // deep, slow, kv_full, late, dropping or blind
	Text string `json:"text"`
}

// Event is something that happened to a worker.
type Event struct {
	ID      uint64    `json:"id"`
	At      time.Time `json:"at"`               // the newest time
	First   time.Time `json:"first"`            // the first time, of those that are counted
	Count   int       `json:"count"`            // how often since
	Worker  string    `json:"worker,omitempty"` // empty: it happened to many at once
	Workers int       `json:"workers"`          // to how many
	Kind    string    `json:"kind"`             // added, removed, replaced, or the new Worker.State
	Level   Level     `json:"level"`
	Text    string    `json:"text"` // what happened, to be read after the worker's name

	from   string // the state before
	change uint64 // of events, that it came or was counted with
}

// Explained is a pick that a selector has explained. Of the workers that it compared
// it has the best ones only.
type Explained struct {
	ID     uint64    `json:"id"`
	At     time.Time `json:"at"`
	Policy string    `json:"policy"`
	Reason string    `json:"reason"`          // the name of a selector.Reason; empty: nothing was chosen
	Error  string    `json:"error,omitempty"` // why nothing was

	Worker string `json:"worker"` // the chosen one; empty: none
	Rank   int    `json:"rank"`   // load.NoRank: the engine chooses

	PromptTokens load.Maybe[int64] `json:"prompt_tokens"`
	Tries        int               `json:"tries"`
	Compared     int               `json:"compared"`      // workers, or ranks
	Out          map[string]int    `json:"out,omitempty"` // workers that were not compared, by the name of a selector.Out
	Best         []Compared        `json:"best"`          // the chosen one, then the others, best first
}

// Compared is a worker, or one of its ranks, that a pick compared. See
// selector.Considered.
type Compared struct {
	Worker  string        `json:"worker"`
	Rank    int           `json:"rank"` // load.NoRank: the whole worker
	Chosen  bool          `json:"chosen"`
	Reports load.Why      `json:"reports"`
	Basis   string        `json:"basis"` // the name of a selector.Basis
	Load    int64         `json:"load"`  // on that basis
	Age     time.Duration `json:"age_ns"`

	Cost  time.Duration   `json:"cost_ns,omitempty"`
	Terms []selector.Term `json:"terms,omitempty"` // the summands of Cost
}

// History is a series of numbers that may be unknown, which are null in JSON.
type History []int32

const unknown = -1
