package main

import (
	"fmt"
	"slices"
	"strings"

	"github.com/plimsoll-go/plimsoll/internal/fleetsim"
)

// wire is a fleetsim.Wire by its name, on the command line and in JSON.
type wire fleetsim.Wire

var wires = []fleetsim.Wire{fleetsim.LoadSnapshot, fleetsim.LoadStat, fleetsim.LoadStatShort, fleetsim.Piggyback}

func wireNames() string {
	var names []string
	for _, w := range wires {
		names = append(names, w.String())
	}
	return strings.Join(names, ", ")
}

func (w wire) String() string { return fleetsim.Wire(w).String() }

func (w wire) MarshalText() ([]byte, error) { return []byte(w.String()), nil }

func (w *wire) UnmarshalText(b []byte) error {
	i := slices.IndexFunc(wires, func(k fleetsim.Wire) bool { return k.String() == string(b) })
	if i < 0 {
		return fmt.Errorf("no wire %q (have %s)", b, wireNames())
	}
	*w = wire(wires[i])
	return nil
}
