//go:build cgo && linux

package zmqsub

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	zmq "github.com/pebbe/zmq4"

	"github.com/plimsoll-go/plimsoll/snapshot"
)

// publishersEnv makes the test binary a fleet of engines, so that their CPU time
// is not ours: "publishers messages-per-second-of-each".
const publishersEnv = "ZMQSUB_BENCH_PUBLISHERS"

func init() {
	instead = append(instead, func() bool {
		spec := os.Getenv(publishersEnv)
		if spec == "" {
			return false
		}
		if err := publishForBenchmark(spec); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return true
	})
}

// publishForBenchmark prints its endpoints and publishes until stdin is closed.
func publishForBenchmark(spec string) error {
	var n, perSecond int
	if _, err := fmt.Sscan(spec, &n, &perSecond); err != nil {
		return err
	}
	ctx, err := zmq.NewContext()
	if err != nil {
		return err
	}
	if err := ctx.SetMaxSockets(n + 10); err != nil {
		return err
	}
	sockets := make([]*zmq.Socket, n)
	for i := range sockets {
		if sockets[i], err = ctx.NewSocket(zmq.PUB); err != nil {
			return err
		}
		sockets[i].SetSndhwm(8)
		sockets[i].SetLinger(0)
		if err := sockets[i].Bind("tcp://127.0.0.1:*"); err != nil {
			return err
		}
		endpoint, err := sockets[i].GetLastEndpoint()
		if err != nil {
			return err
		}
		fmt.Println(strings.TrimRight(endpoint, "\x00"))
	}
	fmt.Println("ready")
	done := make(chan struct{})
	go func() {
		os.Stdin.Read(make([]byte, 1))
		close(done)
	}()
	// In steps, as one after another is how a fleet's messages arrive.
	next := time.Now()
	for i := 0; ; i++ {
		sockets[i%n].SendMessage(message(time.Now().UnixNano()))
		next = next.Add(time.Second / time.Duration(n*perSecond))
		if wait := time.Until(next); wait > 0 {
			select {
			case <-done:
				return nil
			case <-time.After(wait):
			}
		} else if i%n == 0 {
			select {
			case <-done:
				return nil
			default:
			}
		}
	}
}

func benchPublishers(b *testing.B, n, perSecond int) []string {
	b.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), fmt.Sprintf("%s=%d %d", publishersEnv, n, perSecond))
	cmd.Stderr = os.Stderr
	stdin, err := cmd.StdinPipe()
	if err != nil {
		b.Fatal(err)
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		b.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() {
		stdin.Close()
		cmd.Wait()
	})
	var endpoints []string
	for lines := bufio.NewScanner(stdout); lines.Scan(); {
		if lines.Text() == "ready" {
			return endpoints
		}
		endpoints = append(endpoints, lines.Text())
	}
	b.Fatal("the publishers did not start")
	return nil
}

// usage returns the CPU time and the context switches of all threads so far.
func usage(b *testing.B) (cpu time.Duration, switches int64) {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano()), u.Nvcsw + u.Nivcsw
}

// BenchmarkReceive measures what a message costs from the kernel to deliver,
// in CPU time of all threads. The publishers are another process and set the
// pace, so ns/op says nothing. Latency is from sending to delivery.
//
//	go test -run '^$' -bench Receive -benchtime 20000x ./snapshot/zmqsub
func BenchmarkReceive(b *testing.B) {
	for _, load := range []struct{ publishers, perSecond int }{
		{8, 10}, {64, 10}, {256, 10}, {1024, 10}, {8, 10_000},
	} {
		b.Run(strconv.Itoa(load.publishers)+"x"+strconv.Itoa(load.perSecond), func(b *testing.B) {
			endpoints := benchPublishers(b, load.publishers, load.perSecond)
			s := newSubscriber(b, Config{})
			var mu sync.Mutex
			var latencies []time.Duration
			for _, e := range endpoints {
				subscribe(b, s, e, func(d snapshot.Delivery) {
					mu.Lock()
					defer mu.Unlock()
					if len(latencies) < cap(latencies) {
						latencies = append(latencies, time.Since(time.Unix(0, d.Seq)))
					}
				})
			}
			eventually(b, "all publishers", func() bool {
				for _, e := range s.Stats().Endpoints {
					if e.Messages == 0 {
						return false
					}
				}
				return true
			})
			b.ReportAllocs()
			b.ResetTimer()
			mu.Lock()
			latencies = make([]time.Duration, 0, 100_000)
			mu.Unlock()
			before, start := s.Stats().Counts, time.Now()
			cpuBefore, switchesBefore := usage(b)
			// One sleep, because waking up to look would be a good part of the cost.
			time.Sleep(time.Duration(b.N) * time.Second / time.Duration(load.publishers*load.perSecond))
			cpu, switches := usage(b)
			cpu -= cpuBefore
			got := s.Stats().Messages - before.Messages
			elapsed := time.Since(start)
			b.StopTimer()
			mu.Lock()
			defer mu.Unlock()
			if got == 0 || len(latencies) == 0 {
				return // too short a run
			}
			slices.Sort(latencies)
			b.ReportMetric(float64(latencies[len(latencies)/2].Microseconds()), "p50-µs")
			b.ReportMetric(float64(latencies[len(latencies)*99/100].Microseconds()), "p99-µs")
			b.ReportMetric(float64(switches-switchesBefore)/float64(got), "switches/msg")
			b.ReportMetric(float64(cpu.Microseconds())/float64(got), "cpu-µs/msg")
			b.ReportMetric(100*cpu.Seconds()/elapsed.Seconds(), "%cpu")
			b.ReportMetric(float64(got)/elapsed.Seconds(), "msg/s")
			b.ReportMetric(float64(s.Stats().Delivered-before.Delivered)/elapsed.Seconds(), "delivered/s")
			b.ReportMetric(float64(entries(b, "task")), "threads")
		})
	}
}
