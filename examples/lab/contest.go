package main

import (
	"fmt"
	"slices"
	"strings"

	"github.com/plimsoll-go/plimsoll/internal/fleetsim"
	"github.com/plimsoll-go/plimsoll/internal/fleetsim/baseline"
	"github.com/plimsoll-go/plimsoll/selector"
)

// kind is what a contestant is there for.
type kind string

const (
	oracle    kind = "oracle"    // the measure of all others
	known     kind = "known"     // a rule of the field
	candidate kind = "candidate" // must not be behind the known rules
)

// contestant is a way to choose workers, by name.
type contestant struct {
	Name string `json:"name"`
	Kind kind   `json:"kind"`
	Doc  string `json:"doc,omitempty"`

	chooser fleetsim.Chooser
	again   bool             // runs also where its results are there
	only    func(*cell) bool // the cells that it is for; nil means all
}

// special are the policies of the selector that are for some cells only: elsewhere
// they equal another one.
var special = map[string]func(*cell) bool{
	selector.CacheAwareName: func(c *cell) bool { return c.Cache },
	selector.DPRankName:     manyRanks,
}

// leastWorkRanks is what least_work is called where it chooses the rank too.
const leastWorkRanks = selector.LeastWorkName + "_ranks"

func manyRanks(c *cell) bool { return c.ranks() > c.Engines }

// contestants returns all that there are: the oracles, the baselines, and what else
// the selector has.
func contestants() []contestant {
	all := []contestant{
		ofOracle(fleetsim.Instant, "sees the true queues of all engines at each arrival"),
		ofOracle(fleetsim.WorkLeft, "the same, and knows how long each answer will be"),
	}
	for _, b := range baseline.Policies() {
		all = append(all, contestant{Name: b.Name, Kind: known, Doc: b.Doc, chooser: b.New})
	}
	for _, name := range selector.PolicyNames() {
		if slices.Contains(namesOf(all), name) {
			continue
		}
		k := contestant{Name: name, Kind: candidate, Doc: "of package selector", chooser: ofSelector(name, "")}
		if only, ok := special[name]; ok {
			k.Kind, k.only = known, only
		}
		all = append(all, k)
	}
	all = append(all, contestant{
		Name: leastWorkRanks, Kind: candidate, Doc: "least_work, which chooses the rank too",
		chooser: ofSelector(selector.LeastWorkName, `{"ranks": true}`), only: manyRanks,
	})
	return all
}

func oracleName(o fleetsim.Oracle) string { return "oracle_" + o.String() }

func ofOracle(o fleetsim.Oracle, doc string) contestant {
	return contestant{Name: oracleName(o), Kind: oracle, Doc: doc, chooser: o}
}

// ofSelector makes a policy of package selector for each gateway.
func ofSelector(name string, config string) fleetsim.Policy {
	return func(fleetsim.Gateway) selector.Policy {
		p, err := selector.NewPolicy(name, []byte(config))
		if err != nil {
			panic(err) // the names come from the selector, and the configurations from here
		}
		return p
	}
}

// choose returns the contestants with the given names, or all if there are none,
// and the oracles, without which there is nothing to compare with. Those that the
// earlier document has come along, and run only where it lacks something; what is
// named runs in any case.
func choose(all []contestant, names []string, earlier *document) ([]contestant, error) {
	for _, name := range names {
		if !slices.Contains(namesOf(all), name) {
			return nil, fmt.Errorf("no policy %q here, want some of %s", name, strings.Join(namesOf(all), ", "))
		}
	}
	var chosen []contestant
	for _, c := range all {
		c.again = slices.Contains(names, c.Name)
		before := earlier != nil && slices.Contains(namesOf(earlier.Contestants), c.Name)
		if len(names) == 0 || c.again || before || c.Kind == oracle {
			chosen = append(chosen, c)
		}
	}
	return chosen, nil
}

func namesOf(all []contestant) (names []string) {
	for _, c := range all {
		names = append(names, c.Name)
	}
	return names
}
