package simengine

import "testing"

func TestGarbageIsRefused(t *testing.T) {
	names := map[string]bool{}
	for _, g := range garbageKinds {
		if names[g.name] {
			t.Errorf("two kinds are called %q", g.name)
		}
		names[g.name] = true
		if r, err := read(g.frames); err == nil {
			t.Errorf("%s was read as %+v", g.name, r)
		}
	}
}

func TestGarbageIsPublishedBetweenGoodMessages(t *testing.T) {
	for _, wire := range []Wire{WireLoadStat, WireLoadSnapshot} {
		t.Run(wire.String(), func(t *testing.T) {
			e := fast(t, Config{Ranks: 2, Wire: wire})
			subs := []*subscription{}
			for _, endpoint := range e.LoadEndpoints() {
				s := subscribe(t, endpoint)
				s.next(t)
				subs = append(subs, s)
			}
			if err := e.Garbage(endless); err != nil {
				t.Fatal(err)
			}
			for _, s := range subs {
				s.untilGarbage(t, 2*len(garbageKinds))
			}
			if err := e.Garbage(0); err != nil {
				t.Fatal(err)
			}
			for rank, s := range subs {
				if r := s.untilGood(t); r.Snapshot.DPRank+r.Stat.AttnDPRank != int64(rank) {
					t.Errorf("rank %d: %+v after the broken messages", rank, r)
				}
			}
		})
	}
}
