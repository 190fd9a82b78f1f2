//go:build conformance

package conformance

import (
	"bytes"
	"encoding/hex"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/plimsoll-go/plimsoll/load"
	"github.com/plimsoll-go/plimsoll/tokenspeed"
)

func startTokenSpeed(t *testing.T) *engine {
	t.Helper()
	return startProcess(t, "run_tokenspeed.py", "--tokenspeed", setting(t, "PLIMSOLL_TOKENSPEED"))
}

// slimRequest is one request of a batch as the engine's process is told of it.
type slimRequest struct {
	RID        string    `json:"rid"`
	IDs        []int64   `json:"ids"`
	Finish     *string   `json:"finish"` // kind of end
	Prompt     int64     `json:"prompt"`
	Completion int64     `json:"completion"`
	Cached     int64     `json:"cached"`
	Logprobs   []float64 `json:"logprobs"`
	LogprobIDs []int64   `json:"logprob_ids"`
}

// ends are the engine's kinds of end, and what comes of them on the wire.
var ends = map[string]tokenspeed.FinishReason{
	"stop_token": tokenspeed.FinishStop, "stop_string": tokenspeed.FinishStop, "length": tokenspeed.FinishLength, "abort": tokenspeed.FinishAbort,
}

var endNames = []string{"stop_token", "stop_string", "length", "abort"}

// same reports whether it came through as it was sent.
func (s *slimRequest) same(r tokenspeed.Request) bool {
	reason := tokenspeed.FinishNone
	if s.Finish != nil {
		reason = ends[*s.Finish]
	}
	return s.RID == string(r.ID) && slices.Equal(s.IDs, r.OutputIDs) && reason == r.FinishReason &&
		s.Prompt == r.PromptTokens && s.Completion == r.CompletionTokens && s.Cached == r.CachedTokens &&
		slices.Equal(s.LogprobIDs, r.LogprobIDs) && slices.EqualFunc(s.Logprobs, r.Logprobs, sameFloat)
}

func sameFloat(a, b float64) bool { return math.Float64bits(a) == math.Float64bits(b) }

// count returns a count that takes any width on the wire.
func count(random *rand.Rand) int64 { return random.Int64() >> random.IntN(64) }

// randomRequest makes up a request that goes on, or ends.
func randomRequest(random *rand.Rand, id string, finish bool) slimRequest {
	s := slimRequest{RID: id, IDs: []int64{}, Prompt: count(random), Completion: count(random), Cached: count(random), Logprobs: []float64{}, LogprobIDs: []int64{}}
	if finish {
		s.Finish = new(endNames[random.IntN(len(endNames))])
	}
	n := random.IntN(4)
	if random.IntN(20) == 0 {
		n = 10 + random.IntN(300)
	}
	logprobs := random.IntN(3) == 0
	for range n {
		s.IDs = append(s.IDs, count(random))
		if logprobs {
			s.Logprobs, s.LogprobIDs = append(s.Logprobs, -random.ExpFloat64()), append(s.LogprobIDs, s.IDs[len(s.IDs)-1])
		}
	}
	return s
}

// randomID makes up an id of any length, with characters of any length.
func randomID(random *rand.Rand, n int) string {
	letters := []rune("abcdefghij-0123456789é中🚢")
	id := fmt.Appendf(nil, "%d-", n)
	length := random.IntN(40)
	if random.IntN(20) == 0 {
		length = 40 + random.IntN(300)
	}
	for range length {
		id = append(id, string(letters[random.IntN(len(letters))])...)
	}
	return string(id)
}

// group is a group of ranks that one client drives, and what the test knows of
// them.
type group struct {
	t         *testing.T
	table     *load.Table
	worker    *load.Worker
	connector *load.Connector
	inFlight  [][]string // ids, by rank
	unknown   uint64     // ends of requests that are not ours
	made      int        // ids
	said      []*load.Report
	shown     []*load.Report // what was said, unless the rank fell idle after that
}

func newGroup(t *testing.T, ranks, first int) *group {
	table := load.NewTable(load.Config{})
	worker := table.Add("engine", "tcp://engine")
	connector, err := load.NewConnector(worker, load.ConnectorConfig{Ranks: ranks, FirstIndex: first})
	if err != nil {
		t.Fatal(err)
	}
	return &group{
		t: t, table: table, worker: worker,
		connector: connector,
		inFlight:  make([][]string, ranks),
		said:      make([]*load.Report, ranks), shown: make([]*load.Report, ranks),
	}
}

// reserve puts a new request on a rank, and returns the rank.
func (g *group) reserve(random *rand.Rand) int {
	g.t.Helper()
	g.made++
	id := randomID(random, g.made)
	r, err := g.connector.Reserve(id, 100)
	if err != nil {
		g.t.Fatal(err)
	}
	g.inFlight[r.Rank()] = append(g.inFlight[r.Rank()], id)
	return r.Rank()
}

// observe hands a batch to the connector, and checks what it makes of it. said is
// the load in it, if it has any.
func (g *group) observe(rank int, b load.Batch, said *load.Report) {
	g.t.Helper()
	if err := g.connector.Observe(b); err != nil {
		g.t.Fatal(err)
	}
	if said != nil {
		g.said[rank], g.shown[rank] = said, said
	}
	if shown := g.shown[rank]; shown != nil && len(g.inFlight[rank]) == 0 {
		idle := *shown
		idle.Running, idle.Waiting = 0, 0
		g.shown[rank] = &idle
	}

	st, total := g.connector.Status(), 0
	for i, ids := range g.inFlight {
		total += len(ids)
		if n := st.Ranks[i].InFlight; n != int64(len(ids)) {
			g.t.Fatalf("rank %d: %d requests in flight, want %v", i, n, ids)
		}
	}
	if st.InFlight != total || g.worker.InFlight() != int64(total) || st.Unknown != g.unknown {
		g.t.Fatalf("status %+v, want %d in flight and %d unknown ids", st, total, g.unknown)
	}
	entry, ok := g.table.View().Find(g.worker)
	if !ok {
		g.t.Fatal("the worker is not in view")
	}
	got, ok := entry.Report(rank)
	want := g.shown[rank]
	if ok != (want != nil) {
		g.t.Fatalf("rank %d: report %+v, want %+v", rank, got, want)
	}
	if !ok {
		return
	}
	if got.Running != want.Running || got.Waiting != want.Waiting || got.KVUsed != want.KVUsed ||
		got.KVCapacity != want.KVCapacity || got.KVUsage != want.KVUsage || got.Source != load.SourceBatch {
		g.t.Fatalf("rank %d: report %+v, want %+v", rank, *got, *want)
	}
	word, last := st.Ranks[rank], g.said[rank]
	if word.Running != load.Known(last.Running) || word.Waiting != load.Known(last.Waiting) || word.KVUsage != last.KVUsage {
		g.t.Fatalf("rank %d: the engine's last word is %+v, want %+v", rank, word, *last)
	}
}

// fail checks what comes of the death of the engine.
func (g *group) fail(cause error) {
	g.t.Helper()
	want := slices.Sorted(slices.Values(slices.Concat(g.inFlight...)))
	if got := g.connector.Fail(cause); !slices.Equal(got, want) {
		g.t.Errorf("in flight at the end were %q, want %q", got, want)
	}
	if _, err := g.connector.Reserve("late", 1); !errors.Is(err, load.ErrDead) || !errors.Is(err, cause) {
		g.t.Errorf("reserved on a dead engine: %v", err)
	}
	if s := g.worker.Status(); s.Trusted || s.Healthy || s.InFlight != 0 {
		g.t.Errorf("status of a dead engine: %+v", s)
	}
}

const batches = 200 // of each group

func TestBatchesOfTokenSpeedSurviveTheWayToTheirRanks(t *testing.T) {
	for _, c := range []struct{ ranks, first int }{{1, 0}, {2, 5}, {8, 300}} {
		t.Run(fmt.Sprintf("%d ranks from %d", c.ranks, c.first), func(t *testing.T) {
			testTokenSpeed(t, c.ranks, c.first)
		})
	}
}

func testTokenSpeed(t *testing.T, ranks, first int) {
	e, f := startTokenSpeed(t), newFrontend(t, 1)
	for rank := range ranks {
		command := map[string]any{"endpoint": f.endpoint(f.handshake), "index": first + rank, "ranks": ranks}
		var ready map[string]any
		e.during("connect", command, func() { ready = f.welcome(first + rank) })
		for key, want := range map[string]any{"data_parallel_rank": rank, "data_parallel_size": ranks, "num_gpu_blocks": 400, "prefix_granularity": 64} {
			if fmt.Sprint(ready[key]) != fmt.Sprint(want) {
				t.Fatalf("rank %d registers as %v, want %v of %s", rank, ready, want, key)
			}
		}
	}

	g := newGroup(t, ranks, first)
	random := rand.New(rand.NewPCG(uint64(ranks), uint64(first)))
	loads := make([][4]int64, ranks) // the engine repeats the last
	var summary tokenspeed.Summary
	var batch tokenspeed.Batch
	for i := range batches {
		for range random.IntN(4) {
			g.reserve(random)
		}
		rank := random.IntN(ranks)

		// All that a rank has in flight, some of which ends, and at times what
		// another client has there.
		var sent []slimRequest
		var rest []string
		for _, id := range g.inFlight[rank] {
			finish := random.IntN(3) == 0
			if sent = append(sent, randomRequest(random, id, finish)); !finish {
				rest = append(rest, id)
			}
		}
		g.inFlight[rank] = rest
		if random.IntN(10) == 0 {
			sent = append(sent, randomRequest(random, fmt.Sprintf("stranger-%d", i), true))
			g.unknown++
		}
		command := map[string]any{"index": first + rank, "requests": sent}
		if sent == nil {
			command["requests"] = []slimRequest{}
		}
		if random.IntN(4) > 0 {
			total := count(random) // 0 at times: no snapshot
			loads[rank] = [4]int64{count(random), count(random), 0, total}
			if total > 0 {
				loads[rank][2] = random.Int64N(total) + random.Int64N(2)
			}
			command["load"] = loads[rank]
		}
		if random.IntN(10) == 0 {
			e.must("control", map[string]any{"index": first + rank}, nil) // is dropped
		}
		e.must("send", command, nil)

		frames := f.receive(f.outputs[0])
		f.quiet(f.outputs[0])
		payload, err := tokenspeed.Split(frames)
		if err != nil {
			t.Fatal(err)
		}
		if err := summary.Decode(payload); err != nil {
			t.Fatal(err)
		}
		if err := batch.Decode(payload); err != nil {
			t.Fatal(err)
		}
		if got := batch.Append(nil); batch.Load.Known && !bytes.Equal(got, payload) {
			t.Fatalf("encodes to\n%x, was\n%x", got, payload)
		}
		var want tokenspeed.Load
		var said *load.Report
		if l := loads[rank]; l[3] > 0 {
			want = tokenspeed.Load{Known: true, Running: l[0], Waiting: l[1], KVActivePages: l[2], KVTotalPages: l[3]}
			said = &load.Report{
				Running: l[0], Waiting: l[1], KVUsed: load.Known(l[2]), KVCapacity: load.Known(l[3]),
				KVUsage: load.Known(float64(l[2]) / float64(l[3])),
			}
		}
		for _, s := range []*tokenspeed.Summary{&summary, &batch.Summary} {
			if s.Elements != 14 || s.EngineIndex != first+rank || s.Requests != len(sent) || s.Load != want || s.LoadErr != nil {
				t.Fatalf("%+v, want %d requests of rank %d and the load %+v", s, len(sent), rank, want)
			}
			var finished []string
			for _, id := range s.Finished {
				finished = append(finished, string(id))
			}
			var over []string
			for _, r := range sent {
				if r.Finish != nil {
					over = append(over, r.RID)
				}
			}
			if !slices.Equal(finished, over) {
				t.Fatalf("ended %q, want %q", finished, over)
			}
		}
		for i, s := range sent {
			if r := batch.At(i); !s.same(r) {
				t.Fatalf("request %d is %+v, want %+v", i, r, s)
			}
		}
		g.observe(rank, load.FromTokenSpeed(&summary, nil), said)
	}

	e.must("die", map[string]any{"index": first}, nil)
	_, err := tokenspeed.Split(f.receive(f.outputs[0]))
	if !errors.Is(err, tokenspeed.ErrEngineDead) {
		t.Fatalf("the last message: %v", err)
	}
	g.fail(err)
}

// What our encoder writes means the same to the engine, which would have written
// it so itself.
func TestOurBatchesAreTheEngines(t *testing.T) {
	e := startTokenSpeed(t)
	random := rand.New(rand.NewPCG(14, 0))
	for i := range batches {
		b := tokenspeed.Batch{Summary: tokenspeed.Summary{EngineIndex: random.IntN(1 << random.IntN(17))}}
		b.Load = tokenspeed.Load{Running: count(random), Waiting: count(random), KVActivePages: count(random), KVTotalPages: count(random)}
		var want []slimRequest
		for n := range random.IntN(1 << random.IntN(6)) {
			s := randomRequest(random, randomID(random, n), random.IntN(2) == 0)
			r := tokenspeed.Request{
				ID: []byte(s.RID), OutputIDs: s.IDs, PromptTokens: s.Prompt, CompletionTokens: s.Completion, CachedTokens: s.Cached,
				Logprobs: s.Logprobs, LogprobIDs: s.LogprobIDs,
			}
			if s.Finish != nil {
				r.FinishReason = ends[*s.Finish]
			}
			want = append(want, s)
			b.Add(r)
		}
		ours := b.Append(nil)
		var theirs struct {
			Hex    string
			Fields struct {
				Rids             []string
				Finished_reasons []string
				Engine_index     int
				Kv_total_pages   int64
			}
		}
		e.must("recode", map[string]any{"hex": hex.EncodeToString(ours)}, &theirs)
		if theirs.Hex != hex.EncodeToString(ours) {
			t.Fatalf("batch %d: the engine writes\n%s, we\n%x", i, theirs.Hex, ours)
		}
		if f := theirs.Fields; f.Engine_index != b.EngineIndex || f.Kv_total_pages != b.Load.KVTotalPages || len(f.Rids) != len(want) {
			t.Fatalf("batch %d: the engine reads %+v", i, f)
		}
		for k, s := range want {
			reason := ""
			if s.Finish != nil {
				reason = ends[*s.Finish].String()
			}
			if theirs.Fields.Rids[k] != s.RID || theirs.Fields.Finished_reasons[k] != reason {
				t.Fatalf("batch %d: the engine reads %+v, want %+v", i, theirs.Fields, s)
			}
		}

		// An older form is one that the engine still reads.
		for _, elements := range []int{9, 10} {
			e.must("recode", map[string]any{"hex": hex.EncodeToString(b.AppendN(nil, elements))}, &theirs)
			if f := theirs.Fields; f.Kv_total_pages != 0 || len(f.Rids) != len(want) || (f.Engine_index != 0) != (elements == 10 && b.EngineIndex != 0) {
				t.Fatalf("batch %d of %d elements: the engine reads %+v", i, elements, f)
			}
		}
	}
}

// The bytes are those that examples/internal/tswire is tested with.
func TestTheEngineReadsTheRequestsThatTheExamplesSpell(t *testing.T) {
	e, f := startTokenSpeed(t), newFrontend(t, 1)
	e.during("connect", map[string]any{"endpoint": f.endpoint(f.handshake), "index": 258, "ranks": 1}, func() { f.welcome(258) })
	type received struct {
		Type, RID         string
		Input_ids         []int64
		Stream            bool
		Logprob_start_len int
		Validation_error  string
		Sampling_params   struct {
			Max_new_tokens *int64
			Stop_token_ids []int64
			Temperature    float64
			Top_p          float64
			Top_k          int64
			Seed           int64
		}
	}
	send := func(kind byte, payload string) []received {
		t.Helper()
		b, err := hex.DecodeString(payload)
		if err != nil {
			t.Fatal(err)
		}
		f.send(f.input, identity(258), []byte{kind}, b)
		var answer struct{ Received []received }
		e.must("receive", map[string]any{"index": 258}, &answer)
		return answer.Received
	}

	const (
		tag      = "b9546f6b656e697a656447656e6572617465526571496e707574"
		sampling = "dc001d08c09102cb3fe0000000000000cb3feccccccccccccdce40000000cb0000000000000000cb0000000000000000cb0000000000000000cb3ff000000000000000c0c0c0c0c2c3c3c2c0c0c0c02ac0019000c3"
		head     = tag + "a57265632d31c0c093010203" + sampling
	)
	for name, payload := range map[string]string{
		"24 elements":        "dc0018" + head + "c3ff00c0c3c0c0c0c2cb0000000000000000c0c0c0c0c0c0c0c0",
		"the first 11":       "9b" + head + "c2ff00c0c3",
		"with a rank pinned": "dc0019" + head + "c2ff00c0c3c0c0c0c2cb0000000000000000c0c0c0c0c0c0c0c000",
	} {
		got := send(0, payload)
		if len(got) != 1 {
			t.Fatalf("%s: received %+v", name, got)
		}
		r := got[0]
		p := r.Sampling_params
		if r.Type != "TokenizedGenerateReqInput" || r.RID != "rec-1" || !slices.Equal(r.Input_ids, []int64{1, 2, 3}) || !r.Stream ||
			r.Validation_error != "" || p.Max_new_tokens == nil || *p.Max_new_tokens != 8 || !slices.Equal(p.Stop_token_ids, []int64{2}) ||
			p.Temperature != 0.5 || p.Top_p != 0.9 || p.Top_k != 1<<30 || p.Seed != 42 {
			t.Errorf("%s: the engine reads %+v", name, r)
		}
	}

	got := send(1, "92a57265712d31a57265712d32")
	if len(got) != 2 || got[0].Type != "AbortReq" || got[0].RID != "req-1" || got[1].RID != "req-2" {
		t.Errorf("abort: the engine reads %+v", got)
	}
}
