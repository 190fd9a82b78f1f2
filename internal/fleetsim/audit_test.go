package fleetsim

import (
	"fmt"
	"testing"
	"time"

	"github.com/plimsoll-go/plimsoll/internal/fleetsim/trace"
	"github.com/plimsoll-go/plimsoll/selector"
)

// What a rank counts as it goes along must be what counting anew gives, after
// every event.
func TestCountsAreRightAfterEveryEvent(t *testing.T) {
	powerOfTwo := Policy(func(Gateway) selector.Policy { return selector.PowerOfTwo() })
	dpRank := Policy(func(Gateway) selector.Policy { return selector.DPRank() })
	small := EngineConfig{KVTokens: 12_000, MaxRunning: 40, ChunkTokens: 2_000}
	cached := small
	cached.PrefixCache = true
	ranks := cached
	ranks.Ranks = 3
	lockstep := ranks
	lockstep.Lockstep = true
	ms := time.Millisecond
	events := []Event{
		{At: 900 * ms, Kind: Crash, Engine: 1},
		{At: 1000 * ms, Kind: SetSpeed, Engine: 0, Speed: 0.3},
		{At: 1400 * ms, Kind: Join, Engine: 1},
		{At: 1600 * ms, Kind: RestartGateway, Gateway: 1},
		{At: 2500 * ms, Kind: Crash, Engine: 2},
		{At: 2500*ms + 100*time.Microsecond, Kind: Join, Engine: 2}, // with requests of its former life on their way
	}
	for name, c := range map[string]Config{
		"plain":           {Engines: Fleet(3, small), Chooser: powerOfTwo},
		"oracle":          {Engines: Fleet(3, cached), Chooser: WorkLeft},
		"cached":          {Engines: Fleet(3, cached), Chooser: powerOfTwo},
		"ranks":           {Engines: Fleet(3, ranks), Chooser: dpRank},
		"lockstep":        {Engines: Fleet(3, lockstep), Chooser: powerOfTwo},
		"events":          {Engines: Fleet(3, cached), Chooser: powerOfTwo, Events: events},
		"late detection":  {Engines: Fleet(3, cached), Chooser: powerOfTwo, Events: events, Detection: 400 * ms},
		"oracle, events":  {Engines: Fleet(3, cached), Chooser: Instant, Events: events},
		"hidden":          {Engines: Fleet(3, ranks), Chooser: powerOfTwo, Events: events, Faults: Faults{Hidden: 0.5, Loss: 0.5}},
		"unstreamed":      {Engines: Fleet(3, cached), Chooser: powerOfTwo, Events: events, Unstreamed: 0.5},
		"batches":         {Engines: Fleet(3, small), Chooser: powerOfTwo, Reports: Reports{Wire: Piggyback}},
		"batches, ranks":  {Engines: Fleet(3, ranks), Chooser: dpRank, Reports: Reports{Wire: Piggyback}},
		"batches, events": {Engines: Fleet(3, lockstep), Chooser: powerOfTwo, Reports: Reports{Wire: Piggyback}, Events: events, Faults: Faults{Hidden: 0.2}},
	} {
		t.Run(name, func(t *testing.T) {
			c.Trace = tree(200 * c.Engines[0].withDefaults().Ranks)
			c.Gateways = 2
			s, err := newSim(c)
			if err != nil {
				t.Fatal(err)
			}
			for s.left > 0 {
				next, arrived := s.agenda.heap[0], s.next
				if err := s.turn(); err != nil {
					t.Fatal(err)
				}
				if s.next != arrived {
					next.kind = requestComes
				}
				var touched []*rank
				switch next.kind {
				case stepEnds:
					touched = s.groups[next.a].ranks
				case requestComes, failureSeen, scheduled:
					touched = s.ranks
				}
				for _, r := range touched {
					if err := r.audit(); err != nil {
						t.Fatalf("at %v, rank %d: %v", time.Duration(s.now), r.number, err)
					}
				}
			}
			if err := s.check(); err != nil {
				t.Fatal(err)
			}
			sum := s.result().Summary()
			if sum.Retractions == 0 || (sum.CacheHits > 0) != c.Engines[0].PrefixCache || (sum.Retried > 0) != (c.Events != nil) {
				t.Errorf("the run is not what it is meant to be: %+v", sum)
			}
		})
	}
}

// tree returns requests whose prompts are branches of a tree of blocks, more than
// engines of 12,000 tokens can keep.
func tree(n int) *trace.Trace {
	t := trace.Generate("tree", trace.Mix{Seed: 5, Requests: n, Rate: 170, Classes: []trace.Class{
		{Weight: 1, PromptMedian: 900, PromptSigma: 0.8, PromptMax: 5_000, OutputMedian: 100, OutputSigma: 0.8, OutputMax: 1_000},
	}})
	for i := range t.Requests {
		r := &t.Requests[i]
		node := uint64(1)
		for k := range (r.Prompt + blockTokens - 1) / blockTokens {
			node = node*5 + uint64(i>>k)%3
			r.Blocks = append(r.Blocks, node)
		}
	}
	return t
}

func (r *rank) audit() error {
	s := r.sim
	var waiting, prefill, outputs, decoding, kvRead, private, wire int64
	users := make(map[uint64]int32, len(r.running))
	for _, req := range r.waiting.items[r.waiting.head:] {
		f := &s.flights[req]
		waiting += int64(f.estimate)
		outputs += int64(f.output - f.produced)
		if f.pinned != 0 || f.decoding {
			return fmt.Errorf("request %d waits and holds something", req)
		}
	}
	prefilling := 0
	for i, req := range r.running {
		f := &s.flights[req]
		if int(f.place) != i || f.rank != r.number {
			return fmt.Errorf("request %d does not know its place", req)
		}
		private += int64(f.private)
		for _, b := range f.blocks[:f.pinned] {
			users[b]++
		}
		if !f.decoding {
			prefilling++
			prefill += int64(f.need - f.computed)
			outputs += int64(f.output - f.produced)
			continue
		}
		left := f.endStep - r.steps
		decoding++
		outputs += left
		kvRead += int64(f.prompt) + int64(f.output) - left
		private += r.steps - f.startStep
		if held := int64(f.private) + r.steps - f.startStep + int64(f.pinned)*blockTokens; held != int64(f.prompt)+int64(f.output)-left-1 {
			return fmt.Errorf("request %d holds %d tokens of KV cache, with %d tokens to go", req, held, left)
		}
	}
	for i := range s.agenda.heap {
		if e := &s.agenda.heap[i]; e.kind == requestComes && s.flights[e.a].rank == r.number {
			wire++
		}
	}
	got := [...]int64{r.waitingTokens, r.prefillTokens, r.outputTokens, r.decoding, r.kvRead, r.private, r.coming, int64(len(r.prefilling))}
	want := [...]int64{waiting, prefill, outputs, decoding, kvRead, private, wire, int64(prefilling)}
	if got != want {
		return fmt.Errorf("counts are %v, want %v", got, want)
	}
	if r.streams != nil {
		total := 0
		for _, n := range r.streams {
			total += n
		}
		if total > int(decoding) {
			return fmt.Errorf("gateways have %d requests that decode, of %d", total, decoding)
		}
	}
	if r.kvUsed() > int64(r.config.KVTokens) || len(r.running) > r.config.MaxRunning {
		return fmt.Errorf("%d tokens of KV cache in use by %d requests", r.kvUsed(), len(r.running))
	}
	if r.cache == nil {
		return nil
	}
	return r.cache.audit(users, int64(r.config.KVTokens)-r.private)
}

func (c *prefixCache) audit(users map[uint64]int32, room int64) error {
	var used int64
	for b, i := range c.blocks {
		n := &c.nodes[i]
		if n.block != b || n.users != users[b] {
			return fmt.Errorf("block %d is held by %d, want %d", b, n.users, users[b])
		}
		if n.users > 0 {
			used++
		}
	}
	for b := range users {
		if _, ok := c.blocks[b]; !ok {
			return fmt.Errorf("block %d is held and not there", b)
		}
	}
	unused := 0
	for i := c.nodes[0].next; i != 0; i = c.nodes[i].next {
		unused++
	}
	if used != c.used || int(used)+unused != len(c.blocks) || len(c.blocks)+len(c.unused)+1 != len(c.nodes) {
		return fmt.Errorf("%d blocks held, %d counted; %d not held, %d in all", used, c.used, unused, len(c.blocks))
	}
	if int64(len(c.blocks))*blockTokens > room {
		return fmt.Errorf("%d blocks do not fit into %d tokens", len(c.blocks), room)
	}
	return nil
}
