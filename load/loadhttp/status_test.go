package loadhttp

import (
	"bytes"
	"encoding/json"
	"errors"
	"flag"
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"github.com/plimsoll-go/plimsoll/load"
	"github.com/plimsoll-go/plimsoll/selector"
)

var golden = flag.Bool("update", false, "write the golden files anew")

// taught is a policy that knows what the test says.
type taught struct {
	selector.Policy
	learned selector.Learned
}

func (p taught) Learned() selector.Learned { return p.learned }

// Whoever reads status.json finds the same names in the next version: what is in the
// golden file may be added to, and nothing in it may go.
func TestTheStatusInFull(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		table := load.NewTable(load.Config{})
		policy := taught{selector.LeastWork(selector.LeastWorkConfig{}), selector.Learned{
			PerToken: 50 * time.Microsecond, Replicas: 2, Away: 1.25,
			Speeds: []selector.WorkerSpeed{{Worker: "a", Speed: 1.25, Requests: 80}, {Worker: "b", Speed: 0.5, Requests: 40}},
		}}
		h := New(table, Config{Title: "gw", History: 4, Policy: func() selector.Policy { return policy }})
		defer h.Close()

		af := table.Add("a", "").Advertise(2)
		b, bf := worker(t, table, "b", 1, 0)
		c := table.Add("c", "")
		d, _ := worker(t, table, "d", 0, 0)
		d.SetHealthy(false)
		advance(1100 * time.Millisecond)
		for rank := range 2 {
			put(t, af, rank, load.Report{
				Running: 3, Waiting: int64(rank), WaitingTokens: load.Known[int64](700), KVUsed: load.Known[int64](30),
				KVCapacity: load.Known[int64](40), MaxRunning: load.Known[int64](64), Source: load.SourcePush,
			})
		}
		bf.Drop(0, "decode", errors.New("running is -1"))
		c.SetNotPublishing("its answer has no load port")
		h.Explain(&selector.Explanation{
			Policy: "least_work", Reason: selector.LeastWaiting, PromptTokens: load.Known[int64](1000), Tries: 1,
			Workers: []selector.Considered{
				{ID: "b", Rank: load.NoRank, Chosen: true, Basis: selector.Engine, Load: 2, Age: time.Second, Cost: 79 * time.Millisecond, Terms: []selector.Term{
					{Name: "others_tokens", Amount: 500, Cost: 25 * time.Millisecond}, {Name: "prompt_tokens", Amount: 1000, Cost: 54 * time.Millisecond},
				}},
				{ID: "a", Rank: load.NoRank, Why: load.Stale, Basis: selector.Estimated, Load: 7, Cost: 90 * time.Millisecond},
				{ID: "d", Rank: load.NoRank, Out: selector.NotHealthy},
			},
		})
		defer b.Reserve(load.NoRank, 1000).Done()
		status(t, h, "") // somebody has looked, so that what is dropped from here on is news
		bf.Drop(0, "decode", errors.New("running is -2"))
		advance(time.Second)

		var got bytes.Buffer
		if err := json.Indent(&got, get(h, "/status.json?history=1").Body.Bytes(), "", "\t"); err != nil {
			t.Fatal(err)
		}
		file := filepath.Join("testdata", "status.json")
		if *golden {
			if err := os.WriteFile(file, got.Bytes(), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		want, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(got.Bytes(), want) {
			t.Errorf("it is\n%s\nand %s has something else; -update writes it anew", &got, file)
		}

		var s Status
		if err := json.Unmarshal(want, &s); err != nil {
			t.Fatal(err)
		}
		if s.Workers[0].History[0] != unknown || s.Workers[0].History[2] != 7 {
			t.Errorf("the history of a is read as %v", s.Workers[0].History)
		}
	})
}

func TestAHistoryKeepsWhatIsUnknownApart(t *testing.T) {
	for _, h := range []History{{}, {0}, {unknown, 0, 7, unknown}, {1 << 30}} {
		b, err := json.Marshal(h)
		if err != nil {
			t.Fatal(err)
		}
		var back History
		if err := json.Unmarshal(b, &back); err != nil || len(back) != len(h) {
			t.Fatalf("%s is read as %v, %v", b, back, err)
		}
		for i := range h {
			if back[i] != h[i] {
				t.Errorf("%s is read as %v", b, back)
			}
		}
	}
	var h History
	for _, bad := range []string{`["x"]`, `{}`, `[9999999999]`} {
		if err := json.Unmarshal([]byte(bad), &h); err == nil {
			t.Errorf("%s is read as %v", bad, h)
		}
	}
}

func TestTheHistoryIsBoundedAndEndsNow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, table := newTest(t, Config{History: 3})
		_, f := worker(t, table, "a", 1, 0)
		for i := range 7 {
			put(t, f, 0, load.Report{Running: int64(i)})
			advance(time.Second)
		}
		worker(t, table, "b", 9, 0)
		advance(time.Second)
		workers := status(t, h, "?history=1").Workers
		for i, want := range []History{{5, 6, 6}, {unknown, unknown, 9}} {
			if got := workers[i].History; len(got) != 3 || got[0] != want[0] || got[1] != want[1] || got[2] != want[2] {
				t.Errorf("the history of %s is %v, want %v", workers[i].ID, got, want)
			}
		}
	})
}

// What the engines say beyond all reason is shown, and breaks nothing.
func TestNumbersBeyondReason(t *testing.T) {
	const most = 1<<63 - 1
	h, table := newTest(t, Config{Policy: func() selector.Policy {
		nan := 0.0
		nan /= nan
		return taught{selector.LeastWork(selector.LeastWorkConfig{}), selector.Learned{
			Replicas: nan, Speeds: []selector.WorkerSpeed{{Worker: "a", Speed: nan, Requests: 100}},
		}}
	}})
	f := table.Add("a", "").Advertise(2)
	for rank := range 2 {
		put(t, f, rank, load.Report{Running: most, Waiting: most, WaitingTokens: load.Known[int64](most)})
	}
	worker(t, table, "b", 1, 1)
	h.sample()
	s := status(t, h, "?history=1")
	w := s.Workers[0]
	if w.Running != load.Known[int64](most) || w.WaitingTokens != load.Known[int64](most) || w.Speed.IsKnown() || s.Learned != nil {
		t.Errorf("it is shown as %+v, learned %+v", w, s.Learned)
	}
	if got := w.History[len(w.History)-1]; got != 1<<31-1 {
		t.Errorf("its newest sample is %d", got)
	}
	if p, _, _ := h.next(0); len(p.plain) == 0 {
		t.Error("nothing is streamed")
	}
}
