package main

import (
	"context"
	"encoding/json"
	"time"

	"github.com/plimsoll-go/plimsoll/load"
	"github.com/plimsoll-go/plimsoll/selector"
)

// pickEvery is how often somebody picks besides the requests, by each policy in turn.
const pickEvery = 5 * time.Millisecond

// pick picks from a gateway's table by all policies, which its requests do not do, and
// checks that it gets a worker.
func (p *performance) pick(ctx context.Context, g *running) {
	limits := p.options.limits()
	var selectors []*selector.Selector
	for _, name := range selector.PolicyNames() {
		for _, signal := range []selector.Signal{selector.Calibrated, selector.Mixed, selector.Uniform} {
			policy, err := selector.NewPolicy(name, nil)
			if err != nil {
				panic(err) // their own names
			}
			selectors = append(selectors, selector.New(g.Table(), selector.Config{Policy: policy, Signal: signal}))
		}
	}
	ticker := time.NewTicker(pickEvery)
	defer ticker.Stop()
	for n := 0; ; n++ {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		s := selectors[n%len(selectors)]
		began := time.Now()
		pick, err := s.Pick(selector.Request{PromptTokens: load.Known[int64](100)})
		if err != nil {
			if e := p.fleet.world.Healthy(began, time.Now(), limits.Settle, limits.List); e != nil {
				p.report.picks.Broken("gateway %s: no pick, and %v is well: %v", g.name, e, err)
			} else {
				p.report.picks.Held(1)
			}
			continue
		}
		pick.Done()
		ever := p.fleet.world.List.Ever(pick.Worker.ID(), began, time.Now(), limits.List+p.stalls.Lately())
		p.report.picks.That(ever, "gateway %s: %s was picked, which is not in the list", g.name, pick.Worker.ID())
	}
}

// routings are what the second gateway's requests go by, in turn. The first one has its
// default all the while.
func routings() (all []routing) {
	for _, name := range selector.PolicyNames() {
		all = append(all, routing{name, nil})
	}
	return append(all, routing{selector.LeastWorkName, json.RawMessage(`{"ranks": true}`)})
}

type routing struct {
	policy string
	config json.RawMessage
}

// changePolicy gives a gateway another policy once a window.
func (p *performance) changePolicy(ctx context.Context, g *running) {
	all := routings()
	for n := 0; ctx.Err() == nil; n++ {
		r := all[n%len(all)]
		if err := g.SetPolicy(r.policy, r.config); err != nil {
			p.report.soak.Broken("gateway %s: policy %s: %v", g.name, r.policy, err)
		}
		sleep(ctx, p.options.window)
	}
}
