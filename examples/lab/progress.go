package main

import (
	"fmt"
	"io"
	"os"
	"sync"
	"time"
)

// progressPeriod is how often it is told how things go where every word stays.
const progressPeriod = 10 * time.Second

// progress tells what is going on, from any goroutine: in one line that changes,
// on a terminal, and elsewhere in a line now and then.
type progress struct {
	w        io.Writer
	terminal bool
	started  time.Time

	mu       sync.Mutex
	expected float64 // weight of all runs
	done     float64
	runs     int
	now      string
	dirty    bool // a line that is going to be overwritten is there
	due      time.Time
}

func newProgress(w io.Writer, terminal bool) *progress {
	now := time.Now()
	return &progress{w: w, terminal: terminal, started: now, due: now.Add(progressPeriod)}
}

// line says something that stays.
func (p *progress) line(format string, args ...any) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.clearLocked()
	fmt.Fprintf(p.w, format+"\n", args...)
}

// aside lets f print something else.
func (p *progress) aside(f func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.clearLocked()
	f()
}

// expect announces runs of so much weight in all.
func (p *progress) expect(weight float64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.expected += weight
}

func (p *progress) running(cell, contestant string, seed int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.now = fmt.Sprintf("%s, seed %d, %s", cell, seed, contestant)
	p.updateLocked(time.Now())
}

func (p *progress) ran(weight float64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.done += weight
	p.runs++
	p.updateLocked(time.Now())
}

func (p *progress) updateLocked(now time.Time) {
	switch {
	case p.terminal:
		fmt.Fprintf(p.w, "\r\x1b[K%s", p.textLocked(now))
		p.dirty = true
	case !now.Before(p.due):
		fmt.Fprintln(p.w, p.textLocked(now))
		p.due = now.Add(progressPeriod)
	}
}

func (p *progress) textLocked(now time.Time) string {
	left := "?"
	if p.done > 0 {
		eta := time.Duration(float64(now.Sub(p.started)) * (p.expected - p.done) / p.done)
		left = eta.Round(time.Second).String()
	}
	return fmt.Sprintf("%.0f %% done, %d runs, %s left: %s", 100*p.done/max(p.expected, 1), p.runs, left, p.now)
}

func (p *progress) clearLocked() {
	if p.dirty {
		fmt.Fprint(p.w, "\r\x1b[K")
		p.dirty = false
	}
}

func isTerminal(f *os.File) bool {
	st, err := f.Stat()
	return err == nil && st.Mode()&os.ModeCharDevice != 0
}
