//go:build conformance

package conformance

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"testing"

	"github.com/plimsoll-go/plimsoll/load"
	"github.com/plimsoll-go/plimsoll/snapshot/vllm"
)

// vllmVersions returns the folders of the engine's versions, the newest first.
func vllmVersions(t *testing.T) []string {
	t.Helper()
	return filepath.SplitList(setting(t, "PLIMSOLL_VLLM"))
}

// vllmRequest is one output as the engine's process is told of it.
type vllmRequest struct {
	ID       string  `json:"id"`
	IDs      []int64 `json:"ids"`
	Finish   *string `json:"finish"` // name of a reason
	Logprobs int     `json:"logprobs"`
}

var vllmEnds = map[string]vllm.FinishReason{
	"STOP": vllm.FinishStop, "LENGTH": vllm.FinishLength, "ABORT": vllm.FinishAbort, "ERROR": vllm.FinishError, "REPETITION": vllm.FinishRepetition,
}

var vllmEndNames = []string{"STOP", "LENGTH", "ABORT", "ERROR", "REPETITION"}

func TestOutputsOfVLLMSurviveTheWayToTheirRanks(t *testing.T) {
	for _, ranks := range []int{1, 4} {
		t.Run(fmt.Sprintf("%d ranks", ranks), func(t *testing.T) { testVLLM(t, ranks) })
	}
}

func testVLLM(t *testing.T, ranks int) {
	// Two front ends, of which the second is somebody else, and the coordinator of
	// the ranks.
	const (
		ours = iota
		theirs
		coordinator
	)
	e := startProcess(t, "run_vllm.py", "--vllm", vllmVersions(t)[0])
	f := newFrontend(t, 3)
	for rank := range ranks {
		e.must("connect", map[string]any{
			"outputs":     []string{f.endpoint(f.outputs[ours]), f.endpoint(f.outputs[theirs])},
			"coordinator": f.endpoint(f.outputs[coordinator]),
			"index":       rank,
		}, nil)
	}

	g := newGroup(t, ranks, 0)
	random := rand.New(rand.NewPCG(uint64(ranks), 33))
	var o vllm.Outputs
	send := func(client, rank int, command map[string]any) {
		t.Helper()
		command["index"], command["client"] = rank, client
		socket := f.outputs[client]
		if client == coordinator {
			command["client"] = -1
		}
		e.must("send", command, nil)
		payload, err := vllm.Split(f.receive(socket))
		if err != nil {
			t.Fatal(err)
		}
		if err := o.Decode(payload); err != nil {
			t.Fatal(err)
		}
		f.quiet(socket)
	}
	for i := range batches {
		for range random.IntN(4) {
			g.reserve(random)
		}
		rank := random.IntN(ranks)

		// Some messages are about no rank, whatever index they have.
		aside := func(kind vllm.Kind) {
			t.Helper()
			if o.Kind != kind || o.Load.Known || len(o.Finished) > 0 {
				t.Fatalf("%+v, want a %v", o, kind)
			}
			if b := load.FromVLLM(&o, nil); b.Rank != load.NoRank || b.HasLoad {
				t.Fatalf("%+v is about rank %d", o, b.Rank)
			}
		}
		switch random.IntN(12) {
		case 0:
			send(ours, rank, map[string]any{"utility": []any{i, nil, []any{nil, map[string]any{"a": []any{1, 2.5, nil}}}}})
			aside(vllm.KindUtilityReply)
		case 1:
			send(ours, rank, map[string]any{"wave_complete": i})
			aside(vllm.KindWaveNotice)
			if o.WaveComplete != vllm.Known(int64(i)) || o.StartWave.IsKnown() {
				t.Fatalf("wave %d: %+v", i, o)
			}
		case 2:
			send(coordinator, rank, map[string]any{"start_wave": i})
			aside(vllm.KindWaveNotice)
			if o.StartWave != vllm.Known(int64(i)) || o.WaveComplete.IsKnown() {
				t.Fatalf("wave %d: %+v", i, o)
			}
		case 3:
			// Another front end's outputs are none of our business, but decode.
			send(theirs, rank, map[string]any{"requests": []vllmRequest{{ID: "a", IDs: []int64{1}, Logprobs: 300}}})
			if o.Kind != vllm.KindBatch || o.EngineIndex != rank || o.Requests != 1 || o.Load.Known {
				t.Fatalf("another's outputs: %+v", o)
			}
		}

		requests, gone, want := []vllmRequest{}, []string{}, map[string]vllm.FinishReason{}
		var rest []string
		for _, id := range g.inFlight[rank] {
			r := vllmRequest{ID: id, IDs: []int64{}}
			for range random.IntN(4) {
				r.IDs = append(r.IDs, count(random))
			}
			if random.IntN(5) == 0 {
				r.Logprobs = 1 + random.IntN(200)
			}
			switch random.IntN(5) {
			case 0:
				r.Finish = new(vllmEndNames[random.IntN(len(vllmEndNames))])
				want[id] = vllmEnds[*r.Finish]
				if random.IntN(2) == 0 {
					gone = append(gone, id)
				}
			case 1:
				gone = append(gone, id)
				want[id] = vllm.FinishUnsaid
				if random.IntN(2) == 0 {
					continue // without an output
				}
			default:
				rest = append(rest, id)
			}
			requests = append(requests, r)
		}
		g.inFlight[rank] = rest
		command := map[string]any{"requests": requests}
		if random.IntN(3) > 0 || len(gone) > 0 {
			command["finished"] = gone
		}
		var said *load.Report
		hasLoad := random.IntN(3) > 0
		running, waiting, skipped, usage := count(random), count(random)>>1, count(random)>>1, random.Float64()
		if hasLoad {
			command["stats"] = map[string]any{
				"running": running, "waiting": waiting, "num_skipped_waiting_reqs": skipped, "usage": usage,
				"running_lora_adapters": map[string]int{"num_running_reqs": 7},
			}
			said = &load.Report{Running: running, Waiting: waiting + skipped, KVUsage: load.Known(usage)}
		}
		send(ours, rank, command)

		if o.Kind != vllm.KindBatch || o.EngineIndex != rank || o.Requests != len(requests) || o.LoadErr != nil || o.WaveComplete.IsKnown() || o.StartWave.IsKnown() {
			t.Fatalf("%+v of rank %d, want %v", o, rank, command)
		}
		l := vllm.Load{}
		if hasLoad {
			l = vllm.Load{
				Known: true, Running: running, Waiting: waiting,
				Skipped: vllm.Known(skipped), KVUsage: vllm.Known(usage),
			}
		}
		if o.Load != l {
			t.Fatalf("load %+v, want %+v", o.Load, l)
		}
		got := map[string]vllm.FinishReason{}
		for i, id := range o.Finished {
			got[string(id)] = o.Reasons[i]
		}
		if len(o.Finished) != len(want) || len(o.Reasons) != len(want) || fmt.Sprint(got) != fmt.Sprint(want) {
			t.Fatalf("ended %q for %v, want %v", o.Finished, o.Reasons, want)
		}
		for i, r := range requests {
			out := o.At(i)
			ids, err := out.AppendTokens(nil)
			reason := vllm.FinishNone
			if r.Finish != nil {
				reason = vllmEnds[*r.Finish]
			}
			if string(out.ID) != r.ID || out.NewTokens != len(r.IDs) || !slices.Equal(ids, r.IDs) || err != nil || out.FinishReason != reason {
				t.Fatalf("output %d is %+v with %v and %v, want %+v", i, out, ids, err, r)
			}
		}
		g.observe(rank, load.FromVLLM(&o, nil), said)
	}

	e.must("die", map[string]any{"index": 0}, nil)
	for _, client := range []int{ours, theirs} {
		_, err := vllm.Split(f.receive(f.outputs[client]))
		if !errors.Is(err, vllm.ErrEngineDead) {
			t.Fatalf("the last message: %v", err)
		}
		if client == ours {
			g.fail(err)
		}
	}
}
