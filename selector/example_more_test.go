package selector_test

import (
	"errors"
	"fmt"

	"github.com/plimsoll-go/plimsoll/load"
	"github.com/plimsoll-go/plimsoll/selector"
)

// Why a worker was picked, and what the others were compared by.
func ExampleSelector_PickExplained() {
	table := load.NewTable(load.Config{})
	table.Add("a", "").Put(0, load.Report{Running: 12})
	table.Add("b", "").Put(0, load.Report{Running: 4})
	table.Add("c", "").SetHealthy(false)
	picker := selector.New(table, selector.Config{Policy: selector.LeastDepth(selector.LeastDepthConfig{})})

	pick, why, err := picker.PickExplained(selector.Request{})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer pick.Done()
	fmt.Println(pick.Worker.ID(), "by", why.Policy, "because", why.Reason)
	for _, w := range why.Workers {
		fmt.Println(w.ID, "load", w.Load, w.Basis, "chosen:", w.Chosen)
	}
	// Output:
	// b by least_depth because least_loaded
	// b load 4 engine chosen: true
	// a load 12 engine chosen: false
	// c load 0 none chosen: false
}

// There is an error only if nobody may be picked at all; a missing report is never why.
func ExampleNoCandidatesError() {
	table := load.NewTable(load.Config{})
	table.Add("a", "").SetHealthy(false)

	_, err := selector.New(table, selector.Config{}).Pick(selector.Request{})
	var none *selector.NoCandidatesError
	if errors.As(err, &none) {
		fmt.Println(none.Known, "known,", none.Healthy, "healthy,", errors.Is(err, selector.ErrNoCandidates))
	}
	// Output: 1 known, 0 healthy, true
}

// What the default policy has learned of a fleet, for metrics and for people.
func ExampleLearner() {
	policy := selector.LeastWork(selector.LeastWorkConfig{})
	if learner, ok := policy.(selector.Learner); ok {
		l := learner.Learned()
		fmt.Println(l.PerToken, "for each prompt token, of", len(l.Speeds), "workers")
	}
	_, learns := selector.RoundRobin().(selector.Learner)
	fmt.Println(learns)
	// Output:
	// 50µs for each prompt token, of 0 workers
	// false
}

// What stands in for a missing report is chosen by name, in a flag or a file.
func ExampleSignal() {
	var signal selector.Signal
	fmt.Println(signal)
	fmt.Println(signal.UnmarshalText([]byte("uniform")), signal)
	fmt.Println(signal.UnmarshalText([]byte("guess")) != nil)
	// Output:
	// calibrated
	// <nil> uniform
	// true
}
