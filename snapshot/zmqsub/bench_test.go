//go:build cgo && linux

package zmqsub

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync/atomic"
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
	instead = func() bool {
		spec := os.Getenv(publishersEnv)
		if spec == "" {
			return false
		}
		if err := publishForBenchmark(spec); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return true
	}
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
		sockets[i%n].SendMessage(message(int64(i)))
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

func cpuTime(b *testing.B) time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// BenchmarkReceive measures what a message costs from the kernel to deliver,
// in CPU time of all threads. The publishers are another process and set the
// pace, so ns/op says nothing.
//
//	go test -run '^$' -bench Receive -benchtime 20000x ./snapshot/zmqsub
func BenchmarkReceive(b *testing.B) {
	for _, load := range []struct{ publishers, perSecond int }{
		{8, 10}, {256, 10}, {1024, 10}, {8, 10_000},
	} {
		b.Run(strconv.Itoa(load.publishers)+"x"+strconv.Itoa(load.perSecond), func(b *testing.B) {
			endpoints := benchPublishers(b, load.publishers, load.perSecond)
			s := newSubscriber(b, Config{})
			var delivered atomic.Int64
			for _, e := range endpoints {
				subscribe(b, s, e, func(snapshot.Delivery) { delivered.Add(1) })
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
			before, cpu, start := s.Stats().Counts, cpuTime(b), time.Now()
			var got uint64
			for got < uint64(b.N) {
				time.Sleep(20 * time.Millisecond)
				got = s.Stats().Messages - before.Messages
			}
			cpu = cpuTime(b) - cpu
			elapsed := time.Since(start)
			b.StopTimer()
			b.ReportMetric(float64(cpu.Microseconds())/float64(got), "cpu-µs/msg")
			b.ReportMetric(100*cpu.Seconds()/elapsed.Seconds(), "%cpu")
			b.ReportMetric(float64(got)/elapsed.Seconds(), "msg/s")
			b.ReportMetric(float64(s.Stats().Delivered-before.Delivered)/elapsed.Seconds(), "delivered/s")
			b.ReportMetric(float64(entries(b, "task")), "threads")
		})
	}
}
