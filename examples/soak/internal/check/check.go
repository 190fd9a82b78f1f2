// Package check counts how often something was looked at that must hold, and keeps
// the first times that it did not, in full.
package check

import (
	"fmt"
	"sync"
	"time"
)

// kept is how many violations of one check are told in full. More of the same kind
// tell nothing more.
const kept = 5

// Check is one thing that must hold whenever it is looked at. It is safe for
// concurrent use.
type Check struct {
	Name string // a sentence, of what holds

	// enough is how often it has to be looked at for the check to mean anything.
	enough int64
	began  time.Time

	mu     sync.Mutex
	looked int64
	broken int64
	first  []string
}

// Held says that it was looked at, so many times, and held.
func (c *Check) Held(times int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.looked += int64(times)
}

// Broken says that it was looked at and did not hold, and why.
func (c *Check) Broken(format string, args ...any) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.looked++
	c.broken++
	if len(c.first) < kept {
		c.first = append(c.first, fmt.Sprintf("%8.3fs  %s", time.Since(c.began).Seconds(), fmt.Sprintf(format, args...)))
	}
}

// That is Held if it held, and Broken otherwise.
func (c *Check) That(held bool, format string, args ...any) {
	if held {
		c.Held(1)
	} else {
		c.Broken(format, args...)
	}
}

// Result is what came of a check.
type Result struct {
	Name           string
	Looked, Broken int64
	Enough         int64    // how often it had to be looked at
	First          []string // the first violations
}

// Result returns what has come of the check so far.
func (c *Check) Result() Result {
	c.mu.Lock()
	defer c.mu.Unlock()
	return Result{Name: c.Name, Looked: c.looked, Broken: c.broken, Enough: c.enough, First: append([]string(nil), c.first...)}
}

// Passed reports whether it held every time, and was looked at often enough for that
// to mean something.
func (r Result) Passed() bool { return r.Broken == 0 && r.Looked >= r.Enough }

// List is checks in the order in which they are told.
type List struct {
	began  time.Time
	checks []*Check
}

// NewList returns an empty list. Violations are told with the time since then.
func NewList(began time.Time) *List { return &List{began: began} }

// Add returns a new check, which is not passed unless it was looked at enough times.
// It is not to be called concurrently.
func (l *List) Add(name string, enough int) *Check {
	c := &Check{Name: name, enough: int64(enough), began: l.began}
	l.checks = append(l.checks, c)
	return c
}

// Results returns what has come of the checks so far.
func (l *List) Results() []Result {
	var out []Result
	for _, c := range l.checks {
		out = append(out, c.Result())
	}
	return out
}
