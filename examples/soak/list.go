package main

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/plimsoll-go/plimsoll/examples/soak/internal/truth"
)

// list is the file that both gateways have their workers from.
type list struct {
	path  string
	world *truth.World
	rng   *rand.Rand
}

func newList(dir string, world *truth.World, seed uint64) *list {
	return &list{path: filepath.Join(dir, "workers"), world: world, rng: rand.New(rand.NewPCG(seed, 2))}
}

// write puts all engines on the list but some.
func (l *list) write(except ...int) error {
	ids := l.ids(except...)
	return l.world.List.Write(ids, func() error { return l.replace(l.format(ids)) })
}

func (l *list) ids(except ...int) (ids []string) {
	out := make(map[int]bool)
	for _, i := range except {
		out[i] = true
	}
	for i, e := range l.world.Engines {
		if !out[i] {
			ids = append(ids, e.ID)
		}
	}
	return ids
}

// format writes a list in one of the forms that there are for it, in any order.
func (l *list) format(ids []string) string {
	ids = append([]string{}, ids...)
	l.rng.Shuffle(len(ids), func(i, j int) { ids[i], ids[j] = ids[j], ids[i] })
	if len(ids) > 0 && l.rng.IntN(2) == 0 {
		return "# engines\n" + strings.Join(ids, "\n") + "\n"
	}
	return l.json(ids)
}

func (l *list) json(ids []string) string {
	text, err := json.Marshal(ids)
	if err != nil {
		panic(err) // strings
	}
	return string(text)
}

// replace is how a list should be written: nobody sees half of it.
func (l *list) replace(content string) error {
	next := l.path + ".new"
	if err := os.WriteFile(next, []byte(content), 0o600); err != nil {
		return err
	}
	return os.Rename(next, l.path)
}

// suffer has an event happen to the list.
func (l *list) suffer(ev event, wait func(time.Duration)) error {
	switch ev.kind {
	case drop:
		if err := l.write(ev.dropped...); err != nil {
			return err
		}
		wait(ev.length)
		return l.write()
	case scribble:
		// In the place of the old one, which holds until there is another that is one.
		l.world.List.Spoil()
		if err := os.WriteFile(l.path, []byte(ev.spoilt), 0o600); err != nil {
			return err
		}
		wait(ev.length)
		return l.write()
	case rewrite:
		ids := l.ids()
		return l.world.List.Write(ids, func() error { return l.dribble(l.json(ids), wait, ev.length) })
	case empty:
		if err := l.world.List.Write(nil, func() error { return l.replace("[]") }); err != nil {
			return err
		}
		wait(ev.length)
		return l.write()
	}
	return fmt.Errorf("no event of the list: %s", ev.kind)
}

// pieces is how many writes a list takes that is not written at once.
const pieces = 20

// dribble writes the file in pieces, in place. What is there meanwhile is no list, so
// that nobody may go by it, however long the pauses are.
func (l *list) dribble(content string, wait func(time.Duration), over time.Duration) error {
	file, err := os.Create(l.path)
	if err != nil {
		return err
	}
	defer file.Close()
	for i := range pieces {
		if _, err := file.WriteString(content[i*len(content)/pieces : (i+1)*len(content)/pieces]); err != nil {
			return err
		}
		wait(over / pieces)
	}
	return file.Close()
}
