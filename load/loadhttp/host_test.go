package loadhttp

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/plimsoll-go/plimsoll/load"
)

func TestTheHostSaysWhyAWorkerIsOut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		why := ""
		table := load.NewTable(load.Config{Window: time.Minute})
		h := New(table, Config{WhyOut: func(id string) string { return id + why }})
		defer h.Close()
		a, _ := worker(t, table, "a", 1, 0)
		b, _ := worker(t, table, "b", 1, 0)
		worker(t, table, "c", 1, 0)
		advance(time.Second)
		why = " is drained"
		a.SetHealthy(false)
		b.SetAside() // which is not the host's to explain
		advance(time.Second)
		wantTold(t, h, "ok a: added", "ok b: added", "ok c: added",
			"warn b: set aside after a refused or failed request", "out a: taken out of rotation: a is drained")
		for i, want := range []string{"a is drained", ""} {
			if w := status(t, h, "").Workers[i]; w.Reason != want {
				t.Errorf("%s is %s: %q, want %q", w.ID, w.State, w.Reason, want)
			}
		}
		advance(time.Minute)
		if got, want := status(t, h, "").Workers[0].Reason, "a is drained; stale: rank 0 (1m2s old) of 1"; got != want {
			t.Errorf("%q, want %q", got, want)
		}
	})
}

func TestTheHostHasTheLastWordOfTheHeadline(t *testing.T) {
	notice := "The configuration was refused."
	h, table := newTest(t, Config{Notice: func() string { return notice }})
	worker(t, table, "a", 1, 0)
	h.sample()
	if s := status(t, h, ""); s.Headline != "The one worker is trusted. The configuration was refused." || s.Level != Warn {
		t.Errorf("%s, %q", s.Level, s.Headline)
	}
	table.Add("b", "").SetNoAnswer("refused")
	h.sample()
	if s := status(t, h, ""); s.Level != Bad {
		t.Errorf("worse than the notice is %s", s.Level)
	}
	notice = ""
	table.Remove(table.Workers()[1])
	h.sample()
	if s := status(t, h, ""); s.Headline != "The one worker is trusted." || s.Level != OK {
		t.Errorf("%s, %q", s.Level, s.Headline)
	}
}
