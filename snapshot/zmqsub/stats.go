package zmqsub

import (
	"cmp"
	"maps"
	"slices"
	"time"
)

// Counts are counters since New, or since Subscribe for one endpoint. Every
// message ends up in exactly one of Delivered, Superseded and Dropped; one that
// is held back while a backlog is worked off is not in any of them yet.
type Counts struct {
	Messages   uint64            `json:"messages"`          // received, of whatever shape
	Delivered  uint64            `json:"delivered"`         // handed to deliver with a Reading
	Superseded uint64            `json:"superseded"`        // a newer one was there when they were drained; never decoded
	Dropped    map[string]uint64 `json:"dropped,omitempty"` // by snapshot.Reason, or "stopped": held when its subscription ended
	Reconnects uint64            `json:"reconnects"`        // fresh connections because of silence, not those that follow one that was refused or lost
}

// TotalDropped is the sum of Dropped.
func (c Counts) TotalDropped() uint64 {
	var n uint64
	for _, k := range c.Dropped {
		n += k
	}
	return n
}

func (c *Counts) drop(reason string) {
	if c.Dropped == nil {
		c.Dropped = make(map[string]uint64)
	}
	c.Dropped[reason]++
}

func (c *Counts) add(o Counts) {
	c.Messages += o.Messages
	c.Delivered += o.Delivered
	c.Superseded += o.Superseded
	c.Reconnects += o.Reconnects
	if len(o.Dropped) > 0 && c.Dropped == nil {
		c.Dropped = make(map[string]uint64, len(o.Dropped))
	}
	for reason, n := range o.Dropped {
		c.Dropped[reason] += n
	}
}

func (c Counts) clone() Counts {
	c.Dropped = maps.Clone(c.Dropped)
	return c
}

// EndpointStats are the counters of one subscription.
type EndpointStats struct {
	Endpoint string `json:"endpoint"`
	Counts
	LastMessage time.Time `json:"last_message,omitzero"` // when its socket last gave a message of whatever shape; zero = never
	Curve       bool      `json:"curve,omitempty"`       // encrypted; then silence may come of a wrong key, too
}

// Stats is what Subscriber.Stats returns.
type Stats struct {
	Counts                    // of all subscriptions, ended ones included
	Endpoints []EndpointStats `json:"endpoints"` // the open ones, sorted by endpoint; one per subscription
}

// Stats returns the counters. It may be called at any time, also after Close.
func (s *Subscriber) Stats() Stats {
	s.mu.Lock()
	defer s.mu.Unlock()
	st := Stats{Counts: s.retired.clone()}
	for sub := range s.subs {
		e := sub.stats()
		e.Curve = s.config.Curve != nil
		st.Counts.add(e.Counts)
		st.Endpoints = append(st.Endpoints, e)
	}
	slices.SortFunc(st.Endpoints, func(a, b EndpointStats) int { return cmp.Compare(a.Endpoint, b.Endpoint) })
	return st
}
