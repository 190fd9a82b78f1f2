//go:build linux && cgo

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"time"

	zmq "github.com/pebbe/zmq4"
)

const (
	// settling is how long nothing more comes before a measurement begins.
	settling = 500 * time.Millisecond

	// missing is how long nothing more comes before a message counts as lost.
	missing = 3 * time.Second

	// patience is how long a reader has to hear every rank. Some never do.
	patience = time.Minute

	// mostDelays is how many delays of one run are kept.
	mostDelays = 50_000
)

// run is the whole command.
func run(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	o, err := parse(args, stderr)
	if err != nil {
		return err
	}
	limit, err := raiseDescriptorLimit()
	if err != nil {
		return err
	}
	if err := o.checkDescriptors(limit); err != nil {
		return err
	}
	load, _ := os.ReadFile("/proc/loadavg")
	major, minor, patch := zmq.Version()
	fmt.Fprintf(stdout, "%s, libzmq %d.%d.%d, %d CPUs, load before: %s\n", runtime.Version(), major, minor, patch, runtime.NumCPU(), strings.TrimSpace(string(load)))
	fmt.Fprintf(stdout, "%d reports a second of each rank, measured for %v, medians of up to %d runs\n\n", o.rate, o.measure, o.runs)
	printHead(stdout)
	var all []row
	end := time.Now().Add(o.within)
	for i, n := range o.ranks {
		// What one size leaves of its share is there for the next ones.
		share := time.Until(end) / time.Duration(len(o.ranks)-i)
		rows, err := o.size(ctx, n, limit, share, stderr)
		if err != nil {
			return err
		}
		for _, r := range rows {
			r.print(stdout)
		}
		all = append(all, rows...)
	}
	printTargets(stdout, all)
	return nil
}

// size measures all readers with one number of ranks, as often as there is time
// for, and once in any case.
func (o *options) size(ctx context.Context, n, limit int, share time.Duration, stderr io.Writer) ([]row, error) {
	p, err := startPublishers(ctx, n, o.rate, limit)
	if err != nil {
		return nil, err
	}
	defer p.end()
	rows := make([]row, len(o.readers))
	for i, reader := range o.readers {
		rows[i] = row{ranks: n, reader: reader}
	}
	start := time.Now()
	for k := range o.runs {
		began := time.Now()
		for i := range rows {
			if rows[i].err != nil {
				continue // once is enough
			}
			fmt.Fprintf(stderr, "%d ranks, %s, run %d of %d\n", n, rows[i].reader, k+1, o.runs)
			f, err := o.measureOnce(ctx, p, rows[i].reader, k)
			switch {
			case ctx.Err() != nil:
				return nil, ctx.Err()
			case errors.Is(err, errPublishers):
				return nil, err
			case err != nil:
				rows[i].err = err
			default:
				rows[i].runs = append(rows[i].runs, f)
			}
		}
		if time.Since(start)+time.Since(began) > share {
			break
		}
	}
	return rows, nil
}

// measureOnce starts a listener, has it hear every rank, and measures it from one
// silence to the next.
func (o *options) measureOnce(ctx context.Context, p *publishers, reader string, run int) (f figures, err error) {
	n := len(p.endpoints)
	expected := int(o.measure.Seconds()*float64(n*o.rate)) + n
	every := (expected + mostDelays - 1) / mostDelays
	s := setup{Endpoints: p.endpoints, Reader: reader, Delays: expected/every + 1, Every: every}
	if o.profile != "" {
		if s.Profile, err = filepath.Abs(filepath.Join(o.profile, fmt.Sprintf("%s-%d-%d.prof", reader, n, run+1))); err != nil {
			return f, err
		}
	}
	c, _, err := startChild(ctx, s, listenerMode)
	if err != nil {
		return f, err
	}
	defer c.end()
	// At full rate, thousands of ranks would keep each other from connecting.
	if err := p.tell("idle"); err != nil {
		return f, err
	}
	err = c.awaitAll(n)
	if _, perr := p.stop(); perr != nil {
		return f, perr
	}
	if err != nil {
		return f, err
	}
	if _, err := c.awaitQuiet(math.MaxInt, settling); err != nil {
		return f, err
	}
	if err := c.ask("begin", nil); err != nil {
		return f, err
	}
	if err := p.tell("start"); err != nil {
		return f, err
	}
	time.Sleep(o.measure)
	sent, err := p.stop()
	if err != nil {
		return f, err
	}
	if err := c.ask("end", &f); err != nil {
		return f, err
	}
	f.sent = sent
	if f.received, err = c.awaitQuiet(sent.Messages, missing); err != nil {
		return f, err
	}
	return f, c.ask("seen", &f.seen)
}

// awaitQuiet waits until the listener has received so many messages, or no more for
// a while, and returns how many.
func (c *child) awaitQuiet(messages int, quiet time.Duration) (received int, err error) {
	for since := time.Now(); ; time.Sleep(settling / 10) {
		last := received
		if err := c.ask("received", &received); err != nil {
			return 0, err
		}
		if received != last {
			since = time.Now()
		}
		if received >= messages || time.Since(since) >= quiet {
			return received, nil
		}
	}
}

// awaitAll waits until the listener has heard every rank.
func (c *child) awaitAll(n int) error {
	for deadline := time.Now().Add(patience); ; time.Sleep(50 * time.Millisecond) {
		var heard int
		if err := c.ask("heard", &heard); err != nil {
			return err
		}
		if heard == n {
			return nil
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("heard %d of %d ranks in %v", heard, n, patience)
		}
	}
}

// publishers are the processes that publish, and the endpoints of all ranks.
type publishers struct {
	children  []*child
	endpoints []string
}

// perPublisher is how many ranks one process publishes for at most: one that
// sends for more is late.
const perPublisher = 4096

var errPublishers = errors.New("publishers")

func startPublishers(ctx context.Context, n, rate, limit int) (*publishers, error) {
	p := &publishers{}
	each := min(perPublisher, (limit-spareDescriptors)/publisherDescriptors)
	for first := 0; first < n; first += each {
		c, raw, err := startChild(ctx, nil, publisherMode, "-first", strconv.Itoa(first), "-ranks", strconv.Itoa(min(each, n-first)),
			"-of", strconv.Itoa(n), "-rate", strconv.Itoa(rate))
		if err != nil {
			p.end()
			return nil, err
		}
		p.children = append(p.children, c)
		var endpoints []string
		if err := decode(raw, &endpoints); err != nil {
			p.end()
			return nil, err
		}
		p.endpoints = append(p.endpoints, endpoints...)
	}
	return p, nil
}

func (p *publishers) tell(what string) error {
	for _, c := range p.children {
		if err := c.ask(what, nil); err != nil {
			return fmt.Errorf("%w: %w", errPublishers, err)
		}
	}
	return nil
}

func (p *publishers) stop() (all sent, err error) {
	for _, c := range p.children {
		var s sent
		if err := c.ask("stop", &s); err != nil {
			return all, fmt.Errorf("%w: %w", errPublishers, err)
		}
		all.Messages += s.Messages
		all.Elapsed = max(all.Elapsed, s.Elapsed)
		all.Late = max(all.Late, s.Late)
	}
	return all, nil
}

func (p *publishers) end() {
	for _, c := range p.children {
		c.end()
	}
}
