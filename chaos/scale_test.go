//go:build chaos && linux

package chaos

import (
	"bufio"
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	zmq "github.com/pebbe/zmq4"

	"github.com/plimsoll-go/plimsoll/discovery"
	"github.com/plimsoll-go/plimsoll/load"
	"github.com/plimsoll-go/plimsoll/selector"
	"github.com/plimsoll-go/plimsoll/snapshot"
)

// floodVariable is set where this program is to be the publisher of a flood: to the
// endpoints, and it goes on until its standard input ends.
const floodVariable = "CHAOS_FLOOD"

// floodRate is how many messages a second each rank publishes.
const floodRate = 10_000

// flood publishes one and the same load.
func flood(endpoints []string) error {
	ctx, err := zmq.NewContext()
	if err != nil {
		return err
	}
	var sockets []*zmq.Socket
	for _, e := range endpoints {
		soc, err := ctx.NewSocket(zmq.PUB)
		if err != nil {
			return err
		}
		if err := soc.Bind(e); err != nil {
			return fmt.Errorf("%s: %w", e, err)
		}
		sockets = append(sockets, soc)
	}
	fmt.Println("bound")
	over := make(chan struct{})
	go func() {
		defer close(over)
		bufio.NewReader(os.Stdin).ReadString('\n')
	}()
	var payloads [][]byte
	for r := range sockets {
		s := snapshot.LoadSnapshot{NumRunningReqs: running(1, r), MaxTotalNumTokens: 100_000}
		payloads = append(payloads, s.Append(nil))
	}
	began := time.Now()
	for seq := int64(0); ; {
		select {
		case <-over:
			return nil
		case <-time.After(time.Millisecond):
		}
		for due := int64(time.Since(began).Seconds() * floodRate); seq < due; seq++ {
			for r, soc := range sockets {
				if _, err := soc.SendMessage(snapshot.Join(nil, "", seq, payloads[r])); err != nil {
					return err
				}
			}
		}
	}
}

func init() {
	endpoints := os.Getenv(floodVariable)
	if endpoints == "" {
		return
	}
	if err := flood(strings.Split(endpoints, ",")); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(0)
}

func TestTenThousandUnchangedReportsASecondFromEachOfEightRanks(t *testing.T) {
	eachWay(t, func(t *testing.T, libzmq bool) {
		leavesNothing(t)
		const ranks = 8
		e := startEngine(t, engineConfig{ranks: ranks, direct: true})
		e.publish.stop()
		var endpoints []string
		for r := range ranks {
			endpoints = append(endpoints, "tcp://"+e.at(publishPort+r))
		}
		publisher := exec.Command(os.Args[0])
		publisher.Env = append(os.Environ(), floodVariable+"="+strings.Join(endpoints, ","))
		publisher.Stderr = os.Stderr
		stdin, err := publisher.StdinPipe()
		if err != nil {
			t.Fatal(err)
		}
		stdout, err := publisher.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := publisher.Start(); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			stdin.Close()
			publisher.Process.Kill() // this one process
			publisher.Wait()
		})
		if _, err := bufio.NewReader(stdout).ReadString('\n'); err != nil {
			t.Fatalf("the publisher did not start: %v", err)
		}

		g := startGateway(t, gatewayConfig{libzmq: libzmq}, e)
		g.trusts(e)
		type reading struct {
			at       time.Time
			cpu      time.Duration
			messages uint64
			reports  uint64
			heap     uint64
		}
		read := func() (r reading) {
			runtime.GC()
			var m runtime.MemStats
			runtime.ReadMemStats(&m)
			var u syscall.Rusage
			if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
				t.Fatal(err)
			}
			r.at, r.heap, r.messages = time.Now(), m.HeapAlloc, g.subscriber.Stats().Messages
			r.cpu = time.Duration(u.Utime.Nano() + u.Stime.Nano())
			for _, rank := range g.status(e).Ranks {
				r.reports += rank.Reports
			}
			return r
		}
		before := read()
		picks := 0
		for time.Since(before.at) < 3*time.Second {
			p, err := g.picker.Pick(selector.Request{})
			if err != nil {
				t.Fatal(err)
			}
			p.Done()
			if picks++; picks%100 == 0 {
				time.Sleep(time.Millisecond)
			}
		}
		after := read()
		seconds := after.at.Sub(before.at).Seconds()
		messages, reports := float64(after.messages-before.messages), float64(after.reports-before.reports)
		t.Logf("a second: %.0f messages read, %.0f reports taken, %.0f picks, %.0f ms of CPU", messages/seconds, reports/seconds,
			float64(picks)/seconds, float64((after.cpu-before.cpu).Milliseconds())/seconds)
		// A rank is drained as often as its owner may, which is a thousand times a second,
		// and no oftener because more is sent.
		if most := ranks * 1000 * (seconds + 0.5); reports > most {
			t.Errorf("%.0f reports were taken in %.1f s, want at most %.0f", reports, seconds, most)
		}
		if cpu := (after.cpu - before.cpu).Seconds(); cpu > 1.5*seconds {
			t.Errorf("%.1f s of CPU in %.1f s", cpu, seconds)
		}
		if grown := int64(after.heap) - int64(before.heap); grown > 4<<20 {
			t.Errorf("the heap has grown by %d KiB", grown>>10)
		}
		g.trusts(e)
		g.settled()
	})
}

// members is a source whose set changes when the test says so.
type members struct{ sets chan []discovery.Worker }

func (m members) Run(ctx context.Context, emit func([]discovery.Worker)) error {
	for {
		select {
		case set := <-m.sets:
			emit(set)
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// Real engines: every change opens and closes load sockets, and asks somebody.
func TestAWorkerSetThatChangesAHundredTimesASecondUnderPicks(t *testing.T) {
	leavesNothing(t)
	steady := []*engine{startEngine(t, engineConfig{}), startEngine(t, engineConfig{})}
	e := startEngine(t, engineConfig{})
	source := members{make(chan []discovery.Worker)}
	g := startGateway(t, gatewayConfig{source: source}, append(steady, e)...)
	set := []discovery.Worker{{URL: steady[0].url}, {URL: steady[1].url}}
	source.sets <- set
	g.trusts(steady...)
	open := descriptors(t)

	var all sync.WaitGroup
	stop := make(chan struct{})
	var picks atomic.Int64
	for range 4 {
		all.Go(func() { // 2,500 picks a second
			ticker := time.NewTicker(2 * time.Millisecond)
			defer ticker.Stop()
			for {
				select {
				case <-stop:
					return
				case <-ticker.C:
				}
				for range 5 {
					p, err := g.picker.Pick(selector.Request{PromptTokens: load.Known[int64](100)})
					if err != nil {
						g.noPick.Add(1)
						continue
					}
					p.Dispatched()
					p.Done()
					picks.Add(1)
				}
			}
		})
	}
	heap := func() uint64 {
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return m.HeapAlloc
	}
	// Thirty others of sixty, each at a path of its own of the same engine.
	change := func(times int) {
		ticker := time.NewTicker(10 * time.Millisecond)
		defer ticker.Stop()
		for range times {
			<-ticker.C
			next := slices.Clone(set)
			if i := 2 + rand.IntN(30); i < len(next) {
				next = slices.Delete(next, i, i+1)
			}
			for len(next) < 32 {
				w := discovery.Worker{URL: fmt.Sprintf("%s/w%d", e.url, rand.IntN(60))}
				if !slices.Contains(next, w) {
					next = append(next, w)
				}
			}
			set = next
			source.sets <- set
		}
	}
	change(100)
	before := heap()
	change(250)
	after := heap()
	close(stop)
	all.Wait()
	t.Logf("%d picks, %d KiB before and %d KiB after", picks.Load(), before>>10, after>>10)
	if after > before+8<<20 {
		t.Errorf("the heap has grown from %d to %d KiB", before>>10, after>>10)
	}
	source.sets <- set[:2]
	g.trusts(steady...)
	eventually(t, "the others to be gone", func() error {
		if n := len(g.table.Workers()); n != 2 {
			return fmt.Errorf("%d workers", n)
		}
		return nil
	})
	eventually(t, "their descriptors to be closed", func() error {
		// Some connections to the engine that was asked are kept.
		if n := descriptors(t); n > open+20 {
			return fmt.Errorf("%d, and there were %d", n, open)
		}
		return nil
	})
	g.settled()
}

func TestShutdownWhileAThousandSocketsReconnectToDeadPeers(t *testing.T) {
	eachWay(t, func(t *testing.T, libzmq bool) {
		leavesNothing(t)
		const ranks, workers = 8, 128
		var limit syscall.Rlimit
		if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil {
			t.Fatal(err)
		}
		sockets := ranks * workers
		if room := int(min(limit.Cur, 1<<20)) - 500; room < 4*sockets { // two of the subscriber's for each, two of the links'
			t.Skipf("the descriptor limit of %d is too low", limit.Cur)
		}
		e := startEngine(t, engineConfig{ranks: ranks})
		for i, l := range e.loads {
			[]func(*link){(*link).lose, (*link).refuse, (*link).reset, (*link).stall}[i%4](l)
		}
		var set []discovery.Worker
		for i := range workers {
			set = append(set, discovery.Worker{URL: fmt.Sprintf("%s/w%d", e.url, i)})
		}
		source := members{make(chan []discovery.Worker)}
		g := startGateway(t, gatewayConfig{libzmq: libzmq, source: source, change: func(c *discovery.Config) { c.Client.Timeout = patience }})
		source.sets <- set
		// Every socket has been replaced, on average: the closing is in the thick of it.
		eventually(t, "fresh connections", func() error {
			if st := g.subscriber.Stats(); len(st.Endpoints) < sockets || st.Reconnects < uint64(sockets) {
				return fmt.Errorf("%d of %d sockets", st.Reconnects, len(st.Endpoints))
			}
			return nil
		})
		began := awake.now()
		g.close()
		took := awake.now().Sub(began)
		t.Logf("closed in %v", took)
		if took > time.Second+slack {
			t.Errorf("closing took %v", took)
		}
	})
}
