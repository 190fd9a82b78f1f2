package selector

import (
	"encoding/json"
	"fmt"
	"math"
	"math/rand/v2"
	"reflect"
	"strings"
	"testing"

	"github.com/plimsoll-go/plimsoll/load"
)

// reporter is a worker that reports this depth with so many own requests in it.
type reporter struct{ depth, own int }

func TestTheSignalSaysWhatTheLoadOfASilentWorkerIs(t *testing.T) {
	for _, tt := range []struct {
		name     string
		reporter []reporter // a, b, ...
		own      []int      // of the silent workers after those
		signal   Signal
		want     []weighed
	}{
		{
			name:     "calibrated: own count times fleet depth over fleet own count",
			reporter: []reporter{{10, 5}, {20, 5}}, // 3 for each
			own:      []int{6},
			want:     []weighed{{"a", 10, Engine}, {"b", 20, Engine}, {"c", 18, Estimated}},
		}, {
			name:     "calibrated: each silent worker by its own count, above our share and below",
			reporter: []reporter{{10, 5}, {20, 5}}, // others have 10 on each
			own:      []int{1, 2, 5, 7},
			want:     []weighed{{"a", 10, Engine}, {"b", 20, Engine}, {"c", 11, Estimated}, {"d", 12, Estimated}, {"e", 15, Estimated}, {"f", 21, Estimated}},
		}, {
			name:     "calibrated: without a request of ours a silent worker has what others have elsewhere, and is not idle",
			reporter: []reporter{{10, 5}, {20, 5}},
			own:      []int{0},
			want:     []weighed{{"a", 10, Engine}, {"b", 20, Engine}, {"c", 10, Estimated}},
		}, {
			name:     "calibrated: what is all ours is counted exactly",
			reporter: []reporter{{6, 6}, {2, 2}},
			own:      []int{0, 3},
			want:     []weighed{{"a", 6, Engine}, {"b", 2, Engine}, {"c", 0, Estimated}, {"d", 3, Estimated}},
		}, {
			name:     "calibrated: nothing to scale by, so the mean and its own count",
			reporter: []reporter{{4, 0}, {6, 0}},
			own:      []int{0, 2},
			want:     []weighed{{"a", 4, Engine}, {"b", 6, Engine}, {"c", 5, Estimated}, {"d", 7, Estimated}},
		}, {
			name:     "calibrated: never below its own count",
			reporter: []reporter{{1, 10}}, // engines that are faster than our marks
			own:      []int{3},
			want:     []weighed{{"a", 1, Engine}, {"b", 3, Estimated}},
		}, {
			name:     "calibrated: idle reporters, so its own count",
			reporter: []reporter{{0, 0}, {0, 0}},
			own:      []int{0, 2},
			want:     []weighed{{"a", 0, Engine}, {"b", 0, Engine}, {"c", 0, Estimated}, {"d", 2, Estimated}},
		}, {
			name:     "calibrated: rounded to the nearest",
			reporter: []reporter{{7, 5}}, // 1.4
			own:      []int{6, 7},
			want:     []weighed{{"a", 7, Engine}, {"b", 8, Estimated}, {"c", 10, Estimated}},
		}, {
			name:   "calibrated: nobody reports, so all are on their own counts",
			own:    []int{0, 2},
			want:   []weighed{{"a", 0, Local}, {"b", 2, Local}},
			signal: Calibrated,
		}, {
			name:     "calibrated: everybody reports, so nothing is estimated",
			reporter: []reporter{{10, 0}, {3, 3}},
			want:     []weighed{{"a", 10, Engine}, {"b", 3, Engine}},
		}, {
			name:     "mixed: each worker on what there is of it",
			reporter: []reporter{{10, 5}, {20, 5}},
			own:      []int{0, 2},
			signal:   Mixed,
			want:     []weighed{{"a", 10, Engine}, {"b", 20, Engine}, {"c", 0, Local}, {"d", 2, Local}},
		}, {
			name:     "uniform: one silent worker puts all on their own counts",
			reporter: []reporter{{10, 5}, {20, 3}},
			own:      []int{2},
			signal:   Uniform,
			want:     []weighed{{"a", 5, Local}, {"b", 3, Local}, {"c", 2, Local}},
		}, {
			name:     "uniform: everybody reports, so all are on the engines' depths",
			reporter: []reporter{{10, 5}, {20, 3}},
			signal:   Uniform,
			want:     []weighed{{"a", 10, Engine}, {"b", 20, Engine}},
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			table, _ := newTestTable()
			for i, r := range tt.reporter {
				w := table.Add(name(i), "")
				for _, k := range hold(t, w, r.own) {
					k.Dispatched()
				}
				reportDepth(t, w, int64(r.depth))
			}
			for i, own := range tt.own {
				w := table.Add(name(len(tt.reporter)+i), "")
				hold(t, w, own)
				reportDepth(t, w, silent)
			}
			wantWeighed(t, weigh(t, table, tt.signal, Request{}), tt.want...)
		})
	}
}

// An estimate that fell with the first request would send a silent worker the
// next ones too, until it had caught up.
func TestAnEstimateRisesWithEveryOwnRequest(t *testing.T) {
	for _, s := range []scale{newScale(2, 40, 20), newScale(2, 40, 0), newScale(3, 7, 7), newScale(3, 2, 50), newScale(1, 0, 0)} {
		for own := range int64(100) {
			if s.depth(own) >= s.depth(own+1) {
				t.Errorf("%+v: %d own requests are estimated at %d, one more at %d", s, own, s.depth(own), s.depth(own+1))
			}
		}
	}
}

func TestOnlyCandidatesArePartOfAnAverage(t *testing.T) {
	table, workers := withDepths(t, 1000, 10, 20, silent, 0)
	workers[4].SetHealthy(false) // an idle one that must not tilt the mean
	all := []weighed{{"a", 1000, Engine}, {"b", 10, Engine}, {"c", 20, Engine}, {"d", 343, Estimated}}
	wantWeighed(t, weigh(t, table, Calibrated, Request{}), all...)

	some := []weighed{{"b", 10, Engine}, {"c", 20, Engine}, {"d", 15, Estimated}}
	notA := func(w *load.Worker) bool { return w != workers[0] }
	wantWeighed(t, weigh(t, table, Calibrated, Request{Filter: notA}), some...)
	wantWeighed(t, weigh(t, table, Calibrated, Request{Candidates: workers[1:]}), some...)

	// The silent one is no candidate, so that nothing needs estimating.
	wantWeighed(t, weigh(t, table, Uniform, Request{Candidates: workers[:2]}), weighed{"a", 1000, Engine}, weighed{"b", 10, Engine})
	wantWeighed(t, weigh(t, table, Calibrated, Request{Candidates: workers[3:4]}), weighed{"d", 0, Local})
}

func TestAnOverloadedWorkerIsNoPartOfAnAverage(t *testing.T) {
	table, workers := withDepths(t, 1000, 10, 20, silent)
	workers[0].SetAside()
	wantWeighed(t, weigh(t, table, Calibrated, Request{}), weighed{"b", 10, Engine}, weighed{"c", 20, Engine}, weighed{"d", 15, Estimated})
	everybody := func(*load.Worker) bool { return true }
	wantWeighed(t, weigh(t, table, Calibrated, Request{Filter: everybody}), weighed{"b", 10, Engine}, weighed{"c", 20, Engine}, weighed{"d", 15, Estimated})
}

func TestRestrictingToEverybodyChangesNoLoad(t *testing.T) {
	// The sums that a view carries and those over listed candidates must agree.
	rnd := rand.New(rand.NewPCG(5, 5))
	for range 50 {
		table, _ := newTestTable()
		var workers []*load.Worker
		for i := range 1 + rnd.IntN(130) {
			w := table.Add(fmt.Sprint(i), "")
			for _, k := range hold(t, w, rnd.IntN(3)) {
				if rnd.IntN(2) == 0 {
					k.Dispatched()
				}
			}
			reportDepth(t, w, rnd.Int64N(50)-1)
			workers = append(workers, w)
		}
		for _, signal := range []Signal{Calibrated, Mixed, Uniform} {
			want := weigh(t, table, signal, Request{})
			if got := weigh(t, table, signal, Request{Filter: func(*load.Worker) bool { return true }}); !reflect.DeepEqual(got, want) {
				t.Fatalf("%v: a filter that takes all gives %v, want %v", signal, got, want)
			}
			if got := weigh(t, table, signal, Request{Candidates: workers}); !reflect.DeepEqual(got, want) {
				t.Fatalf("%v: all as candidates gives %v, want %v", signal, got, want)
			}
		}
	}
}

func TestAnEstimateOfHugeDepthsSaturates(t *testing.T) {
	table, workers := withDepths(t, math.MaxInt64, silent)
	hold(t, workers[1], 3)
	for _, got := range weigh(t, table, Calibrated, Request{}) {
		if got.Load < 1<<40 {
			t.Errorf("a worker beside an endless queue weighs %v", got)
		}
	}
	for own := int64(0); own < 5; own++ {
		s := scale{perOwn: math.MaxFloat64, others: math.MaxFloat64, on: true}
		if got := s.depth(own); got != math.MaxInt64 {
			t.Errorf("an endless estimate for %d is %d", own, got)
		}
	}
}

func TestSignalsHaveNamesInConfigurations(t *testing.T) {
	for signal, name := range map[Signal]string{Calibrated: "calibrated", Mixed: "mixed", Uniform: "uniform"} {
		b, err := json.Marshal(struct{ Signal Signal }{signal})
		if err != nil || string(b) != `{"Signal":"`+name+`"}` {
			t.Errorf("%d is encoded as %s (%v)", signal, b, err)
		}
		var back struct{ Signal Signal }
		if err := json.Unmarshal(b, &back); err != nil || back.Signal != signal || signal.String() != name {
			t.Errorf("%s is decoded as %v (%v)", b, back.Signal, err)
		}
	}
	var s Signal
	if err := s.UnmarshalText([]byte("calibrate")); err == nil || !strings.Contains(err.Error(), `"calibrate"`) || !strings.Contains(err.Error(), "calibrated, mixed, uniform") {
		t.Errorf("an unknown name's error is %v", err)
	}
	if Signal(9).String() != "unknown" {
		t.Errorf("an unheard-of signal is %v", Signal(9))
	}
	for basis, name := range map[Basis]string{Local: "local", Engine: "engine", Estimated: "estimated", None: "none", 9: "unknown"} {
		if b, err := basis.MarshalText(); err != nil || string(b) != name {
			t.Errorf("basis %d is %s (%v)", basis, b, err)
		}
	}
}
