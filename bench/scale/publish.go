//go:build linux && cgo

package main

import (
	"encoding/binary"
	"flag"
	"fmt"
	"io"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"time"

	zmq "github.com/pebbe/zmq4"

	"github.com/plimsoll-go/plimsoll/snapshot"
)

const publisherMode = "publishers"

// perWorker is how many ranks a worker has, on one address.
const perWorker = 8

// maxRanks is what the addresses are good for.
const maxRanks = 1 << 15

// host is the address of a worker.
func host(worker int) string { return fmt.Sprintf("127.1.%d.%d", worker>>8, worker&0xff) }

// sent is what a publisher says when it is told to stop.
type sent struct {
	Messages int
	Elapsed  time.Duration
	Late     time.Duration // the most that it was ever behind its schedule
}

// idleRate is how many messages a second an engine sends that has nothing to do.
const idleRate = 1

// publish is the process of a range of ranks. Its first answer is the endpoints;
// then it sends between start and stop, or, as idle engines do, between idle and
// stop.
func publish(args []string, in io.Reader, out io.Writer) error {
	var first, n, of, rate int
	flags := flag.NewFlagSet(publisherMode, flag.ContinueOnError)
	flags.IntVar(&first, "first", 0, "the first rank")
	flags.IntVar(&n, "ranks", 1, "how many ranks")
	flags.IntVar(&of, "of", 1, "how many ranks there are in all")
	flags.IntVar(&rate, "rate", 10, "messages a second of each")
	if err := flags.Parse(args); err != nil {
		return err
	}
	in, err := readLine(in, new(any))
	if err != nil {
		return err
	}
	p := &publisher{first: first, of: of}
	endpoints, err := p.bind(n)
	if err != nil {
		return err
	}
	var stop chan struct{}
	var sending sync.WaitGroup
	var s sent
	start := func(rate int) func() (any, error) {
		return func() (any, error) {
			stop = make(chan struct{})
			sending.Go(func() { s, err = p.send(rate, stop) })
			return nil, nil
		}
	}
	return serve(in, out, endpoints, map[string]func() (any, error){
		"idle":  start(min(rate, idleRate)),
		"start": start(rate),
		"stop": func() (any, error) {
			close(stop)
			sending.Wait()
			return s, err
		},
	})
}

// publisher has the sockets of some ranks of the fleet.
type publisher struct {
	first, of int // its first rank, and how many ranks there are

	sockets []*zmq.Socket
	seqs    []uint64
	load    snapshot.LoadSnapshot
	payload []byte
}

func (p *publisher) bind(n int) (endpoints []string, err error) {
	ctx, err := zmq.NewContext()
	if err != nil {
		return nil, err
	}
	if err := ctx.SetMaxSockets(n + 16); err != nil {
		return nil, err
	}
	p.seqs = make([]uint64, n)
	for i := range n {
		soc, err := ctx.NewSocket(zmq.PUB)
		if err != nil {
			return nil, fmt.Errorf("PUB socket %d of %d: %w", i, n, err)
		}
		// As the engine does.
		if err := soc.SetSndhwm(8); err != nil {
			return nil, err
		}
		if err := soc.SetLinger(0); err != nil {
			return nil, err
		}
		if err := soc.Bind("tcp://" + host((p.first+i)/perWorker) + ":*"); err != nil {
			return nil, fmt.Errorf("binding a PUB socket of worker %d: %w", (p.first+i)/perWorker, err)
		}
		endpoint, err := soc.GetLastEndpoint()
		if err != nil {
			return nil, err
		}
		p.sockets = append(p.sockets, soc)
		endpoints = append(endpoints, strings.TrimRight(endpoint, "\x00"))
	}
	return endpoints, nil
}

// send sends until it is told to stop. Each rank of the fleet has its place in
// the period, which is the same in every period and, for want of anything that
// would have engines march in step, evenly spread.
func (p *publisher) send(rate int, stop <-chan struct{}) (s sent, err error) {
	// Go's own timers are good for a millisecond, in which a large fleet sends
	// dozens of messages: the ranks of a fleet do not send in bursts.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	period := time.Second / time.Duration(rate)
	start := time.Now()
	defer func() { s.Elapsed = time.Since(start) }()
	for round := 0; ; round++ {
		for i := range p.sockets {
			due := time.Duration(round)*period + period*time.Duration(p.first+i)/time.Duration(p.of)
			for {
				ahead := due - time.Since(start)
				if ahead <= 0 {
					s.Late = max(s.Late, -ahead)
					break
				}
				select {
				case <-stop:
					return s, nil
				default:
				}
				pause := syscall.NsecToTimespec(int64(min(ahead, 100*time.Millisecond)))
				syscall.Nanosleep(&pause, nil)
			}
			if err := p.report(i); err != nil {
				return s, err
			}
			s.Messages++
		}
		select {
		case <-stop: // however far behind
			return s, nil
		default:
		}
	}
}

// report sends one message of a busy rank.
func (p *publisher) report(i int) error {
	rank, seq := int64(p.first+i), p.seqs[i]
	p.seqs[i]++
	running, waiting := int64(seq%48+1), int64(seq%7)
	p.load = snapshot.LoadSnapshot{
		DPRank:                     rank % perWorker,
		NumRunningReqs:             running,
		NumWaitingReqs:             waiting,
		NumWaitingUncachedTokens:   1000 * waiting,
		NumUsedTokens:              2000 * running,
		NumTotalTokens:             2000*running + 1000*waiting,
		NumActiveTokens:            2000*running + 1000*waiting,
		MaxTotalNumTokens:          400_000,
		MaxRunningRequests:         256,
		TokenUsage:                 float64(2000*running) / 400_000,
		GenThroughput:              1800.5,
		CacheHitRate:               0.4,
		Utilization:                0.9,
		TotalPrefillUncachedTokens: 1000 * int64(seq),
		TotalPrefillBusyUS:         50_000 * int64(seq),
		Memory:                     snapshot.MemorySection{Len: snapshot.MemoryElements, WeightGB: 16, KVCacheGB: 40, GraphGB: 2, TokenCapacity: 400_000},
		Queues:                     snapshot.QueuesSection{Len: snapshot.QueuesElements, Waiting: waiting},
	}
	now := time.Now()
	p.load.Timestamp = float64(now.UnixNano()) / 1e9
	p.payload = p.load.Append(p.payload[:0])
	soc := p.sockets[i]
	if _, err := soc.SendBytes(nil, zmq.SNDMORE); err != nil {
		return err
	}
	if _, err := soc.SendBytes(binary.BigEndian.AppendUint64(nil, seq), zmq.SNDMORE); err != nil {
		return err
	}
	_, err := soc.SendBytes(p.payload, 0)
	return err
}
