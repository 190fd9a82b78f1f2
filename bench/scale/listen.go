//go:build linux && cgo

package main

import (
	"cmp"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"runtime/pprof"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/plimsoll-go/plimsoll/load"
	"github.com/plimsoll-go/plimsoll/snapshot"
)

const listenerMode = "listener"

// setup is what a listener reads first.
type setup struct {
	Endpoints []string // of all ranks, in order
	Reader    string
	Delays    int    // about how many delays there will be to measure
	Every     int    // of how many reports one is looked for in a view
	Profile   string // file to write a CPU profile to; "" = none
}

// figures are what a listener says of one run.
type figures struct {
	CPU         time.Duration
	Threads     int
	Descriptors int
	Memory      int64 // resident, bytes

	seen
	received int
	sent     sent // as the publishers say
}

// seen is what a listener says about the reports of a run, when no more come.
type seen struct {
	P50, P99 time.Duration
	Refused  int // by the table
	Unseen   int // put and then not in the view
}

// listen is the process that listens. It is asked how many ranks it has heard and
// how many messages it has received, and told where the part that counts begins
// and ends.
func listen(args []string, in io.Reader, out io.Writer) error {
	flags := flag.NewFlagSet(listenerMode, flag.ContinueOnError)
	if err := flags.Parse(args); err != nil {
		return err
	}
	var s setup
	in, err := readLine(in, &s)
	if err != nil {
		return err
	}
	f := newFleet(&s)
	received, err := readerNamed(s.Reader)(f, s.Endpoints)
	if err != nil {
		return fmt.Errorf("%s: %w", s.Reader, err)
	}
	var before int
	var cpu time.Duration
	var profile *os.File
	return serve(in, out, "listening", map[string]func() (any, error){
		"heard":    func() (any, error) { return f.heard(), nil },
		"received": func() (any, error) { return received() - before, nil },
		"begin": func() (_ any, err error) {
			if s.Profile != "" {
				if profile, err = os.Create(s.Profile); err != nil {
					return nil, err
				}
				if err := pprof.StartCPUProfile(profile); err != nil {
					return nil, err
				}
			}
			before = received()
			f.measuring.Store(true)
			cpu, err = cpuTime()
			return nil, err
		},
		"end": func() (any, error) {
			now, err := cpuTime()
			if err != nil {
				return nil, err
			}
			if profile != nil {
				pprof.StopCPUProfile()
				profile.Close()
			}
			p := figures{CPU: now - cpu}
			if p.Threads, p.Memory, err = readStatus(); err != nil {
				return nil, err
			}
			p.Descriptors, err = openDescriptors()
			return p, err
		},
		"seen": func() (any, error) {
			f.measuring.Store(false)
			var s seen
			s.P50, s.P99 = f.delays()
			s.Refused, s.Unseen = int(f.refused.Load()), int(f.unseen.Load())
			return s, nil
		},
	})
}

// fleet is the table that is kept, and what was seen of it.
type fleet struct {
	table *load.Table
	epoch time.Time // the zero of view.Now, on the wall clock
	ranks []*rank

	every     int
	measuring atomic.Bool
	refused   atomic.Int64
	unseen    atomic.Int64

	mu   sync.Mutex
	seen []time.Duration // guarded by mu; as long as was made room for
}

// rank is where the reports of one rank go. Whoever reads its socket owns it.
type rank struct {
	fleet *fleet
	feed  *load.Feed
	index int // in the worker
	puts  int
	heard atomic.Bool
}

func newFleet(s *setup) *fleet {
	f := &fleet{table: load.NewTable(load.Config{}), every: max(s.Every, 1)}
	f.epoch = time.Now().Add(-f.table.View().Now())
	f.seen = make([]time.Duration, 0, s.Delays)
	var feed *load.Feed
	for i := range s.Endpoints {
		if i%perWorker == 0 {
			w := f.table.Add(strconv.Itoa(i/perWorker), "http://"+host(i/perWorker))
			feed = w.Advertise(min(perWorker, len(s.Endpoints)-i))
		}
		f.ranks = append(f.ranks, &rank{fleet: f, feed: feed, index: i % perWorker})
	}
	return f
}

// heard is how many ranks have reported.
func (f *fleet) heard() (n int) {
	for _, r := range f.ranks {
		if r.heard.Load() {
			n++
		}
	}
	return n
}

// put does with a reading what discovery does, and then looks when it could have
// been seen.
func (r *rank) put(reading *snapshot.Reading, seq int64, received time.Time) {
	f := r.fleet
	report := load.FromReading(reading)
	report.Received, report.Seq, report.Source = received, load.Known(seq), load.SourcePush
	if err := r.feed.Put(r.index, report); err != nil {
		f.refused.Add(1)
		return
	}
	r.heard.Store(true)
	if r.puts++; r.puts%f.every != 0 || !f.measuring.Load() {
		return
	}
	view := f.table.View()
	entry, ok := view.Find(r.feed.Worker())
	if ok {
		var shown *load.Report
		shown, ok = entry.Report(r.index)
		ok = ok && shown.EngineTime == report.EngineTime
	}
	if !ok {
		f.unseen.Add(1)
		return
	}
	sent := time.Unix(0, int64(reading.Snapshot.Timestamp*1e9))
	delay := f.epoch.Add(view.Now()).Sub(sent)
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(f.seen) < cap(f.seen) {
		f.seen = append(f.seen, delay)
	}
}

func (f *fleet) delays() (p50, p99 time.Duration) {
	f.mu.Lock()
	defer f.mu.Unlock()
	slices.Sort(f.seen)
	return quantile(f.seen, 50), quantile(f.seen, 99)
}

// quantile is the nearest-rank percentile of a sorted list, and 0 of none.
func quantile[T cmp.Ordered](sorted []T, percent int) (q T) {
	if len(sorted) == 0 {
		return q
	}
	return sorted[(len(sorted)*percent+99)/100-1]
}

var errNoReading = errors.New("not a LoadSnapshot")

// frames decodes a message as a user of one of the references would, and puts it.
func (r *rank) frames(frames [][]byte, reading *snapshot.Reading) error {
	m, err := snapshot.Split(frames)
	if err != nil {
		return err
	}
	received := time.Now()
	if err := reading.Decode(m.Payload); err != nil {
		return err
	}
	if reading.Kind != snapshot.KindLoadSnapshot {
		return errNoReading
	}
	r.put(reading, m.Seq, received)
	return nil
}
