package main

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/plimsoll-go/plimsoll/discovery"
	"github.com/plimsoll-go/plimsoll/load"
	"github.com/plimsoll-go/plimsoll/snapshot/zmqsub"
)

// engines is the library wired up without a selector: discovery and a subscriber feed a table.
type engines struct {
	table      *load.Table
	fleet      *discovery.Fleet
	subscriber *zmqsub.Subscriber // nil where there is none without cgo

	cancel context.CancelFunc
	done   sync.WaitGroup
}

// watch starts looking at the engines.
func watch(ctx context.Context, o options) (*engines, error) {
	e := &engines{table: load.NewTable(load.Config{Window: o.window})}
	config := discovery.Config{
		Table: e.table, Source: source(o), Client: &discovery.Client{Token: o.key},
		PollAll: o.poll, PollInterval: o.pollInterval,
		// Somebody is watching: an engine that comes up should not take half a minute.
		RetryMax: 5 * time.Second, RecheckNotPublishing: 10 * time.Second,
	}
	switch s, err := zmqsub.New(zmqsub.Config{}); {
	case err == nil:
		e.subscriber, config.Subscriber = s, s
	case !errors.Is(err, zmqsub.ErrNoCgo) || !o.poll:
		return nil, err
	}
	e.fleet = discovery.NewFleet(config)
	ctx, e.cancel = context.WithCancel(ctx)
	e.done.Go(func() { _ = e.fleet.Run(ctx) }) // which has a table and a source, and runs once
	return e, nil
}

func source(o options) discovery.Source {
	var all []discovery.Source
	if len(o.urls) > 0 {
		all = append(all, discovery.Static(o.urls...))
	}
	if o.file != "" {
		all = append(all, &discovery.File{Path: o.file})
	}
	return discovery.Merge(all...)
}

func (e *engines) close() {
	e.cancel()
	e.done.Wait()
	if e.subscriber != nil {
		_ = e.subscriber.Close() // whose errors are of letting go of what ends with the program
	}
}

// picture is what is known of all engines at one moment: in its JSON, what load.Table and
// discovery.Fleet say of it.
type picture struct {
	Time    time.Time           `json:"time"`
	Known   bool                `json:"known"` // there are engines, and the load of every one is known
	Workers []load.WorkerStatus `json:"workers"`
	Fleet   discovery.Status    `json:"fleet"`
}

func (e *engines) look() picture {
	p := picture{Time: time.Now(), Workers: e.table.Status(), Fleet: e.fleet.Status()}
	p.Known = len(p.Workers) > 0 && len(p.Fleet.Refused) == 0
	for i := range p.Workers {
		p.Known = p.Known && p.Workers[i].Trusted
	}
	return p
}

// settled reports whether waiting for more makes no sense: of each engine the load is known,
// or it has answered that it tells it nowhere.
func (p *picture) settled(poll bool) bool {
	if len(p.Workers) == 0 {
		return false
	}
	asked := make(map[string]*discovery.WorkerStatus, len(p.Fleet.Workers))
	for i := range p.Fleet.Workers {
		asked[p.Fleet.Workers[i].ID] = &p.Fleet.Workers[i]
	}
	for i := range p.Workers {
		w := &p.Workers[i]
		a := asked[w.ID]
		silent := w.Why == load.NotPublishing && a != nil && (!poll || a.Poll.Polls > 0 && a.Poll.Error != "")
		if !w.Trusted && !silent {
			return false
		}
	}
	return true
}
