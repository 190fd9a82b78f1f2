package truth

import (
	"slices"
	"sync"
	"time"
)

// List is what the list of workers said, and when. Whoever goes by it looks at it now
// and then, and what it says when nobody looks has not been said. It is safe for
// concurrent use.
type List struct {
	mu     sync.Mutex
	said   []edition // oldest first
	spells map[string]Spell
}

// edition is one content of the list.
type edition struct {
	begun, done time.Time // of writing it; done is zero until then
	over        time.Time // when it was written over, or spoilt; zero: it can still be read
	ids         map[string]bool
}

// read reports whether everybody has read it by then who looks that often.
func (e edition) read(by time.Time, every time.Duration) bool {
	return !e.done.IsZero() && !e.done.Add(every).After(by) && (e.over.IsZero() || e.over.Sub(e.done) >= every)
}

// Spell is since when an engine has been in the list, or out of it.
type Spell struct {
	Listed bool
	Since  time.Time     // the beginning of the write that changed it
	Out    time.Duration // if listed: how long it was out of the list before
}

// Write has a new list written, of which nobody can have read anything before and
// everybody can read all after.
func (l *List) Write(ids []string, write func() error) error {
	e := edition{begun: time.Now(), ids: make(map[string]bool)}
	for _, id := range ids {
		e.ids[id] = true
	}
	l.Spoil()
	l.mu.Lock()
	// It is there from here on for whoever asks, or a reader that is quick would be
	// found to have read something that was never written.
	l.said = append(l.said, e)
	l.mu.Unlock()
	err := write()
	l.mu.Lock()
	defer l.mu.Unlock()
	now := time.Now()
	l.said[len(l.said)-1].done = now
	l.turnLocked(e, now)
	for i, e := range slices.Backward(l.said) {
		if e.read(now.Add(-memory), memory/10) {
			l.said = slices.Delete(l.said, 0, i)
			break
		}
	}
	return err
}

// Spoil says that from now on there is something else in the place of the list that is
// none. What it said last stays good, for those who have read it.
func (l *List) Spoil() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if n := len(l.said); n > 0 && l.said[n-1].over.IsZero() {
		l.said[n-1].over = time.Now()
	}
}

// turnLocked notes who came and who went.
func (l *List) turnLocked(e edition, done time.Time) {
	if l.spells == nil {
		l.spells = make(map[string]Spell)
	}
	for id, s := range l.spells {
		if s.Listed && !e.ids[id] {
			l.spells[id] = Spell{Since: done}
		}
	}
	for id := range e.ids {
		if s, known := l.spells[id]; !known {
			l.spells[id] = Spell{Listed: true, Since: e.begun, Out: memory}
		} else if !s.Listed {
			l.spells[id] = Spell{Listed: true, Since: e.begun, Out: e.begun.Sub(s.Since)}
		}
	}
}

// Spell returns since when an engine has been in the list or out of it.
func (l *List) Spell(id string) Spell {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.spells[id]
}

// Always reports whether the engine was in every list that somebody can have gone by at
// any moment from then to then who looks that often.
func (l *List) Always(id string, from, to time.Time, every time.Duration) bool {
	all, _ := l.in(id, from, to, every)
	return all
}

// Ever reports whether the engine was in any of them.
func (l *List) Ever(id string, from, to time.Time, every time.Duration) bool {
	_, some := l.in(id, from, to, every)
	return some
}

func (l *List) in(id string, from, to time.Time, every time.Duration) (all, some bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	all = true
	for _, e := range slices.Backward(l.said) {
		if e.begun.After(to) {
			continue
		}
		all, some = all && e.ids[id], some || e.ids[id]
		if e.read(from, every) {
			break // so nobody goes by what was there before
		}
	}
	return all && some, some
}
