package loadhttp

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/plimsoll-go/plimsoll/load"
)

// told returns the events of the status, the oldest first, as a person reads them.
func told(t *testing.T, h *Handler) (list []string) {
	t.Helper()
	for _, e := range slices.Backward(status(t, h, "").Events) {
		who := e.Worker
		if who == "" {
			who = fmt.Sprintf("%d workers", e.Workers)
		}
		text := fmt.Sprintf("%s %s: %s", e.Level, who, e.Text)
		if e.Count > 1 {
			text += fmt.Sprintf(" x%d", e.Count)
		}
		list = append(list, text)
	}
	return list
}

func wantTold(t *testing.T, h *Handler, want ...string) {
	t.Helper()
	if got := told(t, h); !slices.Equal(got, want) {
		t.Errorf("it tells\n  %s\nwant\n  %s", strings.Join(got, "\n  "), strings.Join(want, "\n  "))
	}
}

func TestWhatHappensToAWorkerIsTold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		table := load.NewTable(load.Config{Window: 2 * time.Second})
		here, hf := worker(t, table, "here", 1, 0)
		other, of := worker(t, table, "other", 1, 0)
		h := New(table, Config{})
		defer h.Close()
		report := func(feeds ...*load.Feed) {
			for _, f := range feeds {
				put(t, f, 0, load.Report{Running: 1, KVCapacity: load.Known[int64](9)})
			}
		}
		second := func(feeds ...*load.Feed) {
			report(append(feeds, of)...)
			advance(time.Second)
		}
		second(hf)
		wantTold(t, h) // what was there before is no news

		w := table.Add("a", "")
		second(hf)
		w.SetNoAnswer("connection refused")
		second(hf)
		f := w.Advertise(2)
		second(hf, f)
		put(t, f, 1, load.Report{KVCapacity: load.Known[int64](0)})
		second(hf, f)
		put(t, f, 1, load.Report{KVCapacity: load.Known[int64](9)})
		second(hf, f)
		wantTold(t, h,
			"ok a: added",
			"bad a: still untrusted: no answer: connection refused",
			"bad a: still untrusted: never reported: rank 1 of 2",
			"warn a: still untrusted: booting (KV capacity 0): rank 1 of 2",
			"ok a: trusted now: every rank reports",
		)

		h.mu.Lock()
		h.events.list = nil
		h.mu.Unlock()
		table.Remove(w)
		for range 4 {
			second() // and nothing of here
		}
		second(hf)
		here.SetAside()
		second()
		here.SetHealthy(false)
		second()
		second()
		here.SetHealthy(true)
		second(hf)
		table.Add("here", "")
		other.SetHealthy(false)
		second()
		wantTold(t, h,
			"ok a: removed",
			"bad here: became untrusted: stale: rank 0 (3s old) of 1",
			"ok here: trusted again, was stale for 3s",
			"warn here: set aside after a refused or failed request",
			"out here: taken out of rotation",
			"ok here: back in rotation, was out for 2s",
			"ok here: added anew, with empty books",
			"out other: taken out of rotation",
		)
	})
}

func TestAnEngineThatIsSaidToBeDeadIsTold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, table := newTest(t, Config{})
		conn, err := load.NewConnector(table.Add("group", ""), load.ConnectorConfig{Ranks: 1})
		if err != nil {
			t.Fatal(err)
		}
		advance(time.Second)
		conn.Fail(errors.New("exit status 137"))
		advance(time.Second)
		if got := told(t, h); len(got) != 2 || !strings.HasPrefix(got[1], "bad group: the engine died: ") || !strings.Contains(got[1], "exit status 137") {
			t.Errorf("it tells %q", got)
		}
		if w := status(t, h, "").Workers[0]; w.State != "dead" || w.Level != Bad {
			t.Errorf("it is %s, %s", w.State, w.Level)
		}
	})
}

func TestWhatHappensToManyAtOnceIsOneEvent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, table := newTest(t, Config{})
		var all []*load.Worker
		for i := range 40 {
			w, _ := worker(t, table, fmt.Sprintf("w%02d", i), 1, 0)
			all = append(all, w)
		}
		advance(time.Second)
		for i, w := range all {
			w.SetHealthy(i%2 == 0)
		}
		for _, w := range all[:8] {
			w.SetAside()
		}
		advance(time.Second)
		wantTold(t, h,
			"ok 40 workers: added: w00, w01, w02, w03, w04 and 35 more",
			"warn w00: set aside after a refused or failed request",
			"warn w02: set aside after a refused or failed request",
			"warn w04: set aside after a refused or failed request",
			"warn w06: set aside after a refused or failed request",
			"out 20 workers: taken out of rotation: w01, w03, w05, w07, w09 and 15 more",
		)
	})
}

func TestAWorkerThatComesAndGoesIsCounted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, table := newTest(t, Config{Events: 4})
		w, _ := worker(t, table, "a", 1, 0)
		advance(time.Second)
		v := watch(t, h)
		v.update()
		var ids []uint64
		for range 5 {
			for _, healthy := range []bool{false, true} {
				w.SetHealthy(healthy)
				advance(time.Second)
				for _, e := range v.update().Events {
					ids = append(ids, e.ID)
				}
			}
		}
		wantTold(t, h, "ok a: added", "out a: taken out of rotation x5", "ok a: back in rotation, was out for 1s x5")
		if fmt.Sprint(ids) != "[2 3 2 3 2 3 2 3 2 3]" {
			t.Errorf("the page is told of the events %v, want each time of the same two", ids)
		}
		e := status(t, h, "").Events[0]
		if got := e.At.Sub(e.First); got != 8*time.Second {
			t.Errorf("from the first to the last are %v", got)
		}

		v.leave()
		advance(again)
		w.SetHealthy(false)
		advance(time.Second)
		if got := told(t, h); len(got) != 4 || got[3] != "out a: taken out of rotation" {
			t.Errorf("long after it tells %q", got)
		}
		table.Add("b", "")
		advance(time.Second)
		if got := told(t, h); len(got) != 4 || got[0] != "out a: taken out of rotation x5" {
			t.Errorf("of more events than are kept it tells %q", got)
		}
	})
}
