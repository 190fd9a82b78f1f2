package main

import (
	"fmt"
	"io"
	"os"
	"time"
)

// progressPeriod is how often it is told how things go where every word stays.
const progressPeriod = 2 * time.Second

// progress tells what is going on: in one line that changes, on a terminal, and
// elsewhere in a line now and then.
type progress struct {
	w        io.Writer
	terminal bool
	dirty    bool      // a line that is going to be overwritten is there
	due      time.Time // of the next update, elsewhere
}

func newProgress(w io.Writer, terminal bool) *progress {
	return &progress{w: w, terminal: terminal, due: time.Now().Add(progressPeriod)}
}

// line says something that stays.
func (p *progress) line(format string, args ...any) {
	p.clear()
	fmt.Fprintf(p.w, format+"\n", args...)
}

// update says how it goes, unless it has just been said, and returns the text.
func (p *progress) update(format string, args ...any) string {
	text := fmt.Sprintf(format, args...)
	now := time.Now()
	switch {
	case p.terminal:
		fmt.Fprintf(p.w, "\r\x1b[K%s", text)
		p.dirty = true
	case !now.Before(p.due):
		fmt.Fprintln(p.w, text)
		// Counted from when it was due, or the times that are told would wander.
		if p.due = p.due.Add(progressPeriod); p.due.Before(now) {
			p.due = now.Add(progressPeriod)
		}
	}
	return text
}

// clear takes away the line that changes. Something else begins.
func (p *progress) clear() {
	if p.dirty {
		fmt.Fprint(p.w, "\r\x1b[K")
		p.dirty = false
	}
	p.due = time.Now().Add(progressPeriod)
}

func isTerminal(f *os.File) bool {
	st, err := f.Stat()
	return err == nil && st.Mode()&os.ModeCharDevice != 0
}
