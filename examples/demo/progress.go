package main

import (
	"fmt"
	"io"
	"os"
)

// progress tells what is going on: in one line that changes, on a terminal, and
// elsewhere not more often than the line is a new one of its kind.
type progress struct {
	w        io.Writer
	terminal bool
	dirty    bool   // a line that is going to be overwritten is there
	told     string // format of the newest update, elsewhere
}

// line says something that stays.
func (p *progress) line(format string, args ...any) {
	p.clear()
	p.told = ""
	fmt.Fprintf(p.w, format+"\n", args...)
}

// update says how it goes and returns the text.
func (p *progress) update(format string, args ...any) string {
	text := fmt.Sprintf(format, args...)
	switch {
	case p.terminal:
		fmt.Fprintf(p.w, "\r\x1b[K%s", text)
		p.dirty = true
	case p.told != format:
		fmt.Fprintln(p.w, text)
		p.told = format
	}
	return text
}

// clear takes away the line that changes.
func (p *progress) clear() {
	if p.dirty {
		fmt.Fprint(p.w, "\r\x1b[K")
		p.dirty = false
	}
	p.told = ""
}

func isTerminal(f *os.File) bool {
	st, err := f.Stat()
	return err == nil && st.Mode()&os.ModeCharDevice != 0
}
