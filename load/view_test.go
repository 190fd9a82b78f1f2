package load

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"reflect"
	"sync"
	"testing"
	"time"
)

// picture is all that a view says, live books left out.
type picture struct {
	Known, Trusted int
	Depth, Own     int64
	Workers        []*Worker
	Entries        []pictureEntry
}

type pictureEntry struct {
	Trusted    bool
	Why        Why
	Depth, Own int64
	Age        int64
	Totals     []Totals // of the worker, then of the ranks
	Reports    []Report
}

func pictureOf(v View) (p picture) {
	p.Known = v.Known()
	p.Trusted, p.Depth, p.Own = v.Trusted()
	for i := range v.Len() {
		e := v.At(i)
		all, _ := e.Totals()
		pe := pictureEntry{
			Trusted: e.Trusted(), Why: e.Why(), Depth: e.Depth(), Own: e.OwnAtReport(), Age: int64(v.Age(e)), Totals: []Totals{all},
		}
		for rank := range e.Ranks() {
			if of, ok := e.RankTotals(rank); ok {
				pe.Totals = append(pe.Totals, of)
			}
			if r, ok := e.Report(rank); ok {
				pe.Reports = append(pe.Reports, *r)
			}
		}
		p.Workers = append(p.Workers, e.Worker())
		p.Entries = append(p.Entries, pe)
	}
	return p
}

func TestAnEmptyTableHasAnEmptyView(t *testing.T) {
	table, _ := newTestTable()
	v := table.View()
	if v.Len() != 0 || v.Known() != 0 {
		t.Errorf("%d of %d", v.Len(), v.Known())
	}
	if _, ok := v.Find(nil); ok {
		t.Error("nil is found")
	}
	if got := table.Status(); got == nil || len(got) != 0 {
		t.Errorf("status is %v, want an empty list", got)
	}
}

func TestAViewThatIsHeldDoesNotChangeWhileWritersGoOn(t *testing.T) {
	table, clock := newTestTable()
	var workers []*Worker
	var feeds []*Feed
	for i := range 70 {
		w, f := advertised(t, table, fmt.Sprint(i), Report{Running: int64(i)}, Report{Waiting: 1})
		workers, feeds = append(workers, w), append(feeds, f)
	}
	v := table.View()
	want := pictureOf(v)
	for name, write := range map[string]func(){
		"a report":          func() { mustPut(t, feeds[3], 0, Report{Running: 99}) },
		"time":              func() { clock.advance(testWindow + 1); table.View() },
		"an advertisement":  func() { workers[4].Advertise(5) },
		"not publishing":    func() { workers[5].SetNotPublishing("no") },
		"an overload mark":  func() { workers[6].SetAside() },
		"ill health":        func() { workers[7].SetHealthy(false) },
		"a removal":         func() { table.Remove(workers[0]) },
		"an addition":       func() { table.Add("new", "") },
		"a new incarnation": func() { table.Add("69", "") },
	} {
		write()
		if got := pictureOf(v); !reflect.DeepEqual(got, want) {
			t.Errorf("%s changed a view that was taken before", name)
		}
	}
}

func TestViewsHoldTheirWorkersInOrderOfAdditionAcrossChunkBoundaries(t *testing.T) {
	for _, n := range []int{1, 2, 63, 64, 65, 127, 128, 129, 192, 193} {
		t.Run(fmt.Sprintf("%d workers", n), func(t *testing.T) {
			table, _ := newTestTable()
			var workers []*Worker
			var feeds []*Feed
			for i := range n {
				w, f := advertised(t, table, fmt.Sprint(i), Report{Running: 1})
				workers, feeds = append(workers, w), append(feeds, f)
				reserve(t, w, NoRank, 0)
			}
			// Each report copies one chunk: all others must stay as they are.
			sum := int64(n)
			var own int64
			for i, f := range feeds {
				mustPut(t, f, 0, Report{Running: int64(2 + i)})
				sum += int64(1 + i)
				own++
				v := table.View()
				if v.Len() != n {
					t.Fatalf("%d eligible, want %d", v.Len(), n)
				}
				if trusted, depth, o := v.Trusted(); trusted != n || depth != sum || o != own {
					t.Fatalf("after %d reports the sums are %d, %d, %d, want %d, %d, %d", i+1, trusted, depth, o, n, sum, own)
				}
			}
			v := table.View()
			for i, w := range workers {
				if at, ok := v.Position(w); !ok || at != i {
					t.Fatalf("worker %d is at %d (%v)", i, at, ok)
				}
				if e := v.At(i); e.Worker() != w || e.Depth() != int64(2+i) {
					t.Fatalf("at %d is worker %s with depth %d", i, e.Worker().ID(), e.Depth())
				}
			}
			// One leaves from each end and from the middle.
			for _, gone := range []int{n - 1, n / 2, 0} {
				table.Remove(workers[gone])
			}
			left := table.View()
			at := 0
			for i, w := range workers {
				if i == n-1 || i == n/2 || i == 0 {
					if _, ok := left.Find(w); ok {
						t.Fatalf("worker %d was removed and is found", i)
					}
					continue
				}
				if p, ok := left.Position(w); !ok || p != at {
					t.Fatalf("worker %d is at %d (%v), want %d", i, p, ok, at)
				}
				at++
			}
			if left.Len() != at {
				t.Fatalf("%d eligible, want %d", left.Len(), at)
			}
		})
	}
}

func TestPositionsAreRightInEveryViewUnderChurn(t *testing.T) {
	rnd := rand.New(rand.NewPCG(7, 7))
	table, _ := newTestTable()
	type taken struct {
		v    View
		want []*Worker
	}
	var views []taken
	var in, out []*Worker
	for step := range 300 {
		if len(in) == 0 || rnd.IntN(100) < 55 {
			in = append(in, table.Add(fmt.Sprint(step), ""))
		} else {
			i := rnd.IntN(len(in))
			table.Remove(in[i])
			out = append(out, in[i])
			in = append(in[:i:i], in[i+1:]...)
		}
		if step%25 == 0 {
			views = append(views, taken{table.View(), append([]*Worker(nil), in...)})
		}
	}
	gone := make(map[*Worker]bool)
	for _, w := range out {
		gone[w] = true
	}
	all := append(append([]*Worker(nil), in...), out...)
	for k, view := range views {
		places := make(map[*Worker]int)
		for i, w := range view.want {
			places[w] = i
		}
		if view.v.Len() != len(view.want) {
			t.Fatalf("view %d has %d workers, want %d", k, view.v.Len(), len(view.want))
		}
		for _, w := range all {
			want, in := places[w]
			in = in && !gone[w] // which an old view need not know
			at, ok := view.v.Position(w)
			if ok != in || ok && at != want {
				t.Fatalf("in view %d worker %s is at %d (%v), want %d (%v)", k, w.ID(), at, ok, want, in)
			}
			if e, ok := view.v.Find(w); ok != in || ok && e.Worker() != w {
				t.Fatalf("in view %d worker %s is not found as itself", k, w.ID())
			}
		}
	}
}

func TestTheAgeInAViewIsNeverNegative(t *testing.T) {
	// A report can come in between the reading of the clock and that of the view.
	table, clock := newTestTable()
	w, f := advertised(t, table, "a", Report{})
	meanwhile := func(do func()) {
		table.clock = func() time.Time {
			table.clock = clock.now
			now := clock.now()
			clock.advance(time.Second)
			mustPut(t, f, 0, Report{Running: 1})
			return now
		}
		do()
	}
	meanwhile(func() {
		v := table.View()
		if age := v.Age(v.At(0)); age < 0 {
			t.Errorf("the age in the view is %v", age)
		}
	})
	meanwhile(func() {
		if st := w.Status(); st.Age < 0 || st.Ranks[0].Age < 0 {
			t.Errorf("the ages in the status are %v and %v", st.Age, st.Ranks[0].Age)
		}
	})
}

func TestManyReadersAndWritersSeeOnlyConsistentViews(t *testing.T) {
	// Writers keep the depth of every worker at a multiple of 1000 plus its number.
	// The clock moves on, so that reports go stale and views are renewed under load.
	table, clock := newTestTable()
	const workers, rounds = 70, 300
	var feeds [workers]*Feed
	for i := range feeds {
		_, feeds[i] = advertised(t, table, fmt.Sprint(i), Report{Running: int64(i)})
	}
	var writers, readers sync.WaitGroup
	stop := make(chan struct{})
	for g := range 2 {
		writers.Go(func() {
			rnd := rand.New(rand.NewPCG(uint64(g), 1))
			for n := range rounds {
				i := rnd.IntN(workers)
				err := feeds[i].Put(0, Report{Running: int64(i), Waiting: int64(n * 1000)})
				if err != nil && !errors.Is(err, ErrSuperseded) { // the other writer read the clock later
					t.Error(err)
					return
				}
				clock.advance(testWindow / 40)
				if n%10 == 0 {
					feeds[i].Worker().SetHealthy(false)
					feeds[i].Worker().SetHealthy(true)
				}
			}
		})
	}
	for range 2 {
		readers.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				v := table.View()
				var trusted int
				var depth int64
				last := -1
				for k := range v.Len() {
					e := v.At(k)
					var i int
					fmt.Sscan(e.Worker().ID(), &i)
					if i <= last || e.Depth()%1000 != int64(i) {
						t.Errorf("worker %d after %d with depth %d", i, last, e.Depth())
						return
					}
					last = i
					if e.Trusted() {
						if v.Age(e) > testWindow {
							t.Errorf("trusted at an age of %v", v.Age(e))
							return
						}
						trusted++
						depth += e.Depth()
					}
				}
				if n, d, _ := v.Trusted(); n != trusted || d != depth {
					t.Errorf("the sums are %d and %d, the workers' %d and %d", n, d, trusted, depth)
					return
				}
			}
		})
	}
	writers.Wait()
	close(stop)
	readers.Wait()
}
