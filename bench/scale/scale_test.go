//go:build linux && cgo

package main

import (
	"bytes"
	"errors"
	"flag"
	"io"
	"os"
	"slices"
	"strings"
	"testing"
	"time"
)

// The test binary is what its own children are, too.
func TestMain(m *testing.M) {
	if os.Getenv(childEnv) != "" {
		os.Exit(beChild(modes[os.Args[1]], os.Args[2:], os.Stdin, os.Stdout))
	}
	os.Setenv("GORACE", "atexit_sleep_ms=0") // of the children, which have nothing to wait for
	os.Exit(m.Run())
}

func TestEveryReaderHearsASmallFleet(t *testing.T) {
	limit, err := raiseDescriptorLimit()
	if err != nil {
		t.Fatal(err)
	}
	const n = 20 // two workers and a half
	o := options{ranks: []int{n}, readers: readerNames(), rate: 20, measure: time.Second, runs: 1}
	rows, err := o.size(t.Context(), n, limit, time.Minute, io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	for i, r := range rows {
		if r.reader != o.readers[i] || len(r.runs) != 1 || r.err != nil {
			t.Errorf("%s: %d runs, %v", r.reader, len(r.runs), r.err)
			continue
		}
		f := r.runs[0]
		switch {
		case f.sent.Messages == 0 || f.received != f.sent.Messages || f.lost() != 0:
			t.Errorf("%s: %d messages of %d", r.reader, f.received, f.sent.Messages)
		case f.Refused != 0 || f.Unseen != 0:
			t.Errorf("%s: %d reports were refused, %d not seen in a view", r.reader, f.Refused, f.Unseen)
		case f.P50 <= 0 || f.P99 < f.P50 || f.CPU <= 0:
			t.Errorf("%s: delays of %v and %v, CPU time of %v", r.reader, f.P50, f.P99, f.CPU)
		case f.Threads < 2 || f.Memory < 1<<20 || f.Descriptors < n:
			t.Errorf("%s: %d threads, %d bytes, %d descriptors", r.reader, f.Threads, f.Memory, f.Descriptors)
		}
	}
	var out bytes.Buffer
	printHead(&out)
	for i := range rows {
		rows[i].print(&out)
	}
	if got := strings.Count(out.String(), "\n"); got != 1+len(rows) {
		t.Errorf("%d lines:\n%s", got, &out)
	}
}

func TestReaderThatCannotListenIsARowOfItsOwn(t *testing.T) {
	limit, err := raiseDescriptorLimit()
	if err != nil {
		t.Fatal(err)
	}
	o := options{readers: []string{subject}, rate: 20, measure: 100 * time.Millisecond, runs: 2, profile: "/nowhere"}
	rows, err := o.size(t.Context(), 1, limit, time.Minute, io.Discard)
	if err != nil || len(rows) != 1 || rows[0].err == nil || !strings.Contains(rows[0].err.Error(), "/nowhere") {
		t.Fatalf("%+v, %v", rows, err)
	}
	var out bytes.Buffer
	rows[0].print(&out)
	if !strings.Contains(out.String(), "/nowhere") || strings.Count(out.String(), "\n") != 1 {
		t.Errorf("printed as %q", &out)
	}
}

func TestWhatDescriptorsAreMissingIsSaidUpFront(t *testing.T) {
	o := options{ranks: []int{64, 1024, 8192}, readers: readerNames()}
	for limit, want := range map[int][]string{
		20:     {"20 descriptors"},
		1024:   {"plimsoll with 1024 ranks needs 1088", "blocking with 8192 ranks needs 16448", "hard limit to 16448"},
		10_000: {"poller with 8192 ranks needs 16448"},
		20_000: nil,
	} {
		err := o.checkDescriptors(limit)
		if (err == nil) != (want == nil) {
			t.Errorf("with %d: %v", limit, err)
		}
		for _, w := range want {
			if !strings.Contains(err.Error(), w) {
				t.Errorf("with %d: %v, want %q in it", limit, err, w)
			}
		}
		if limit == 10_000 && strings.Contains(err.Error(), "zeromq") {
			t.Errorf("with %d: %v", limit, err)
		}
	}
}

func TestTargetsAreCheckedAgainstMediansOfRunsInTime(t *testing.T) {
	run := func(cpu, p99 time.Duration, threads int) figures {
		return figures{received: 1000, CPU: cpu, Threads: threads, seen: seen{P99: p99}, sent: sent{Messages: 1000, Elapsed: time.Second}}
	}
	late := func(f figures) figures {
		f.sent.Late = tooLate + 1
		return f
	}
	rows := []row{
		{ranks: 1024, reader: "poller", runs: []figures{run(time.Hour, time.Hour, 100)}},
		{ranks: 1024, reader: subject, runs: []figures{
			run(12*time.Millisecond, 4*time.Millisecond, 16), run(time.Microsecond, 5*time.Millisecond, 16), run(time.Hour, time.Hour, 17),
			late(run(0, 0, 0)), late(run(0, 0, 0)), late(run(0, 0, 0)), late(run(0, 0, 0)),
		}},
		{ranks: 8192, reader: subject, err: errors.New("no")},
	}
	var out bytes.Buffer
	printTargets(&out, rows)
	want := `
target at 1024 ranks: CPU µs a message at most 12: 12, met
target at 1024 ranks: threads at most 16: 16, met
target at 1024 ranks: p99 ms to a view under 5: 5, missed
`
	if out.String() != want {
		t.Errorf("%s", &out)
	}
}

func TestQuantilesAreOfTheNearestRank(t *testing.T) {
	hundred := make([]int, 100)
	for i := range hundred {
		hundred[i] = i + 1
	}
	for _, test := range []struct{ n, percent, want int }{{100, 50, 50}, {100, 99, 99}, {100, 100, 100}, {1, 50, 1}, {1, 99, 1}, {2, 50, 1}, {2, 99, 2}, {0, 99, 0}} {
		if got := quantile(hundred[:test.n], test.percent); got != test.want {
			t.Errorf("%d%% of %d: %d, want %d", test.percent, test.n, got, test.want)
		}
	}
}

func TestOptionsThatMakeNoSenseAreRefused(t *testing.T) {
	for _, args := range []string{"-ranks 0", "-ranks 64,x", "-ranks 100000", "-readers nobody", "-rate 0", "-runs 0", "-for 1ms", "1024"} {
		if _, err := parse(strings.Fields(args), io.Discard); err == nil {
			t.Errorf("%s: no error", args)
		}
	}
	if _, err := parse([]string{"-h"}, io.Discard); !errors.Is(err, flag.ErrHelp) {
		t.Errorf("-h: %v", err)
	}
	o, err := parse(nil, io.Discard)
	if err != nil || !slices.Equal(o.ranks, []int{64, 1024, 8192}) || !slices.Equal(o.readers, readerNames()) {
		t.Errorf("defaults: %+v, %v", o, err)
	}
}
