package fleetsim

import (
	"errors"
	"strconv"

	"github.com/plimsoll-go/plimsoll/load"
	"github.com/plimsoll-go/plimsoll/tokenspeed"
)

// batches is what the output batches of a run share. A batch goes to each gateway
// that has a request in it, and names those that start or end with it: the tokens
// of the others, of which there are hundreds, are read by nobody here.
type batches struct {
	// of the step that is being finished
	load    tokenspeed.Load
	talking []bool     // by gateway: it has output
	outputs [][]output // by gateway

	outgoing, incoming tokenspeed.Batch
	slots              []batchSlot
	unused             []int32
}

type output struct {
	req         int32
	first, last bool
}

// batchSlot is a batch on its way to a gateway.
type batchSlot struct {
	rank        *rank
	incarnation int32
	payload     []byte
}

// pageTokens is the page size of the KV cache, for engines that count pages.
const pageTokens = 64

// piggybacks reports whether the tokens of a request take its load along.
func (s *sim) piggybacks(req int32) bool {
	return s.config.Reports.Wire == Piggyback && len(s.gateways) > 0 && !s.flights[req].hidden
}

// shared reports whether a gateway's requests are not all that there are on an
// engine.
func (s *sim) shared() bool {
	if s.config.Gateways > 1 || s.config.Faults.Hidden > 0 {
		return true
	}
	for _, e := range s.config.Events {
		if e.Kind == RestartGateway {
			return true
		}
	}
	return false
}

// beginBatch takes the load of a rank whose step is about to be finished. The
// requests that the step ends are among it: an engine counts before it ends them,
// so that the last word of one that falls idle is that it is busy.
func (s *sim) beginBatch(r *rank) {
	if s.config.Reports.Wire != Piggyback || len(s.gateways) == 0 {
		return
	}
	b := &s.batches
	if b.talking == nil {
		b.talking = make([]bool, len(s.gateways))
		b.outputs = make([][]output, len(s.gateways))
	}
	b.load = tokenspeed.Load{
		Running: int64(len(r.running)), Waiting: int64(r.waiting.len()),
		KVActivePages: r.kvUsed() / pageTokens, KVTotalPages: int64(r.config.KVTokens / pageTokens),
	}
	for g := range b.talking {
		b.talking[g] = r.streams != nil && r.streams[g] > 0
	}
}

func (s *sim) firstOutput(req int32) {
	g := s.flights[req].gateway
	s.batches.talking[g] = true
	s.batches.outputs[g] = append(s.batches.outputs[g], output{req: req, first: true})
}

func (s *sim) lastOutput(req int32) {
	g := s.flights[req].gateway
	list := s.batches.outputs[g]
	if n := len(list); n > 0 && list[n-1].req == req {
		list[n-1].last = true
		return
	}
	s.batches.outputs[g] = append(list, output{req: req, last: true})
}

// sendBatches sends what the step of a rank has made.
func (s *sim) sendBatches(r *rank) {
	if s.config.Reports.Wire != Piggyback || len(s.gateways) == 0 {
		return
	}
	b := &s.batches
	for g := range b.talking {
		if !b.talking[g] {
			continue
		}
		b.outgoing.Reset()
		b.outgoing.EngineIndex, b.outgoing.Load = r.index, b.load
		for _, o := range b.outputs[g] {
			f := &s.flights[o.req]
			line := tokenspeed.Request{ID: []byte(strconv.Itoa(int(o.req))), OutputIDs: oneToken,
				PromptTokens: int64(f.prompt), CompletionTokens: 1, CachedTokens: int64(f.cached)}
			if o.last {
				line.CompletionTokens, line.FinishReason = int64(f.output), tokenspeed.FinishLength
			}
			b.outgoing.Add(line)
		}
		b.outputs[g] = b.outputs[g][:0]
		i := b.newSlot()
		slot := &b.slots[i]
		slot.rank, slot.incarnation = r, r.engine.incarnation
		slot.payload = b.outgoing.Append(slot.payload[:0])
		s.agenda.add(s.now+s.network, batchSeen, i, int32(g))
	}
}

var oneToken = []int64{1}

func (b *batches) newSlot() int32 {
	if last := len(b.unused) - 1; last >= 0 {
		i := b.unused[last]
		b.unused = b.unused[:last]
		return i
	}
	b.slots = append(b.slots, batchSlot{})
	return int32(len(b.slots) - 1)
}

// batchSeen is a gateway's reading of a batch.
func (s *sim) batchSeen(i int32, g *gateway) {
	b := &s.batches
	slot := &b.slots[i]
	if err := b.incoming.Decode(slot.payload); err != nil {
		panic("fleetsim: own batch: " + err.Error())
	}
	for k := range b.incoming.Len() {
		s.tokenSeen(requestOf(b.incoming.At(k).ID))
	}
	if t := &g.targets[slot.rank.engine.index]; t.connector != nil && t.incarnation == slot.incarnation {
		if err := t.connector.Observe(load.FromTokenSpeed(&b.incoming.Summary, nil)); err != nil {
			panic("fleetsim: own batch: " + err.Error())
		}
	}
	for _, id := range b.incoming.Finished {
		s.endSeen(requestOf(id))
	}
	b.unused = append(b.unused, i)
}

func requestOf(id []byte) int32 {
	n, err := strconv.Atoi(string(id))
	if err != nil {
		panic("fleetsim: own batch: " + err.Error())
	}
	return int32(n)
}

var errCrashed = errors.New("engine has crashed")
