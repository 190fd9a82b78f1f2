package fleetsim

// A rank is one scheduler. Every request that decodes makes one token in each
// step, so what they have made is kept as a number of steps and not request by
// request: a step costs the same however many take part in it.
type rank struct {
	sim    *sim
	engine *engine
	group  *group
	config *EngineConfig
	number int32 // among all ranks of the fleet
	index  int   // within the engine

	waiting queue

	running    []int32 // admitted; in no order, each knows its place
	prefilling []int32 // of those, the ones whose prompt is not computed, first come first
	endings    endings // of those that decode
	admissions int64

	// The step that is being made, or the last.
	chunks     []chunk // prompt tokens that it computes
	chunkTotal int64   // of them
	retracted  bool    // requests were, when it was planned

	steps    int64 // made while any request decoded; the clock of endings
	decoding int64 // requests
	streams  []int // of these, by gateway; kept where a gateway wants to know
	kvRead   int64 // tokens in the KV cache that the next step reads: contexts of those that decode
	private  int64 // tokens in the KV cache that no other request can use
	cache    *prefixCache

	waitingTokens int64 // of the waiting requests, prompt tokens to be computed; see estimate
	prefillTokens int64 // of the prefilling requests, prompt tokens still to be computed
	outputTokens  int64 // of all requests, tokens still to be made
	coming        int64 // requests on their way here
	comingTokens  int64 // their prompt tokens to be computed
	comingOutput  int64 // and tokens to be made

	// Since the engine started.
	prefilled   int64 // prompt tokens computed
	prefillBusy int64 // nanoseconds spent on that
	stepping    int64 // nanoseconds spent on steps

	reporter reporter
}

// chunk is a part of a prompt that one step computes.
type chunk struct {
	req    int32
	tokens int32
}

// kvUsed is the KV cache that requests hold. What is merely kept for requests to
// come can be had at any time.
func (r *rank) kvUsed() int64 {
	if r.cache != nil {
		return r.private + r.cache.held()
	}
	return r.private
}

// requests is how many are on the rank, waiting or running.
func (r *rank) requests() int64 { return int64(r.waiting.len() + len(r.running)) }

// enqueue takes in a request from the network.
func (r *rank) enqueue(req int32) {
	f := &r.sim.flights[req]
	f.produced = 0
	f.estimate = r.uncached(f)
	r.waiting.push(req)
	r.waitingTokens += int64(f.estimate)
	r.outputTokens += int64(f.output)
}

// uncached is how much of a request the rank would have to compute as things are.
func (r *rank) uncached(f *flight) int32 {
	need := f.prompt + f.produced
	if r.cache == nil {
		return need
	}
	return need - saved(r.cache.match(f.blocks), need)
}

// saved is how many tokens so many blocks save a request that needs that many: the
// last has to be computed in any case, since it makes the next.
func saved(blocks, need int32) int32 { return min(blocks*blockTokens, need-1) }

// plan settles what the next step does, and returns how long it takes: 0 if there
// is nothing to do.
func (r *rank) plan() int64 {
	r.makeRoom()
	budget := int32(r.config.ChunkTokens)
	give := func(req int32) {
		f := &r.sim.flights[req]
		n := min(f.need-f.computed, budget)
		budget -= n
		r.chunkTotal += int64(n)
		r.chunks = append(r.chunks, chunk{req, n})
	}
	for _, req := range r.prefilling {
		if budget == 0 {
			break
		}
		give(req)
	}
	// Right after a retraction there is no room: what was retracted waits in front.
	for !r.retracted && budget > 0 && r.waiting.len() > 0 && len(r.running) < r.config.MaxRunning {
		req := r.waiting.front()
		if !r.admit(req) {
			break
		}
		r.waiting.pop()
		give(req)
	}
	if r.chunkTotal == 0 && r.decoding == 0 {
		return 0
	}
	c := r.config
	return r.atSpeed(int64(c.Base) + r.chunkTotal*int64(c.PrefillPerToken) + r.decoding*int64(c.PerRequest) + r.kvRead*int64(c.PerKVToken))
}

// makeRoom sees to it that every decoding request can store a token, by taking the
// newest requests out again.
func (r *rank) makeRoom() {
	r.retracted = false
	for r.kvUsed()+r.decoding > int64(r.config.KVTokens) {
		r.retract()
		r.retracted = true
	}
	if r.cache != nil {
		r.cache.shrink(int64(r.config.KVTokens) - r.private - r.decoding)
	}
}

func (r *rank) retract() {
	newest := r.running[0]
	for _, req := range r.running {
		if r.sim.flights[req].admitted > r.sim.flights[newest].admitted {
			newest = req
		}
	}
	f := &r.sim.flights[newest]
	r.leave(newest)
	if f.decoding {
		f.produced = f.output - int32(f.endStep-r.steps)
		r.decode(f, false) // which voids its entry in endings
		r.kvRead -= int64(f.prompt + f.produced)
	} else {
		r.prefillTokens -= int64(f.need - f.computed)
		r.prefilling = without(r.prefilling, newest)
	}
	f.retractions++
	f.estimate = r.uncached(f)
	r.waiting.pushFront(newest)
	r.waitingTokens += int64(f.estimate)
}

// leave takes a request out of the running ones, and frees its KV cache.
func (r *rank) leave(req int32) {
	f := &r.sim.flights[req]
	last := len(r.running) - 1
	moved := r.running[last]
	r.running[f.place] = moved
	r.sim.flights[moved].place = f.place
	r.running = r.running[:last]
	r.private -= int64(f.private)
	if f.decoding {
		r.private -= r.steps - f.startStep // a token for each step
	}
	if r.cache != nil {
		r.cache.release(f.blocks[:f.pinned])
		f.pinned = 0
	}
}

// admit starts a waiting request, if the KV cache has room for what it needs.
func (r *rank) admit(req int32) bool {
	f := &r.sim.flights[req]
	need := f.prompt + f.produced
	var blocks int32
	if r.cache != nil {
		blocks = r.cache.hold(f.blocks)
	}
	private := need - blocks*blockTokens
	room := int64(r.config.KVTokens) - r.kvUsed() - r.decoding - int64(private)
	// A rank that runs nothing has nothing to leave room for.
	if room < 0 || room < int64(r.config.KVReserve) && len(r.running) > 0 {
		if r.cache != nil {
			r.cache.release(f.blocks[:blocks])
		}
		return false
	}
	r.waitingTokens -= int64(f.estimate)
	f.need, f.computed = need, saved(blocks, need)
	if f.produced == 0 {
		f.cached = f.computed
	}
	f.pinned = blocks
	f.private = private
	r.private += int64(private)
	if r.cache != nil {
		r.cache.shrink(int64(r.config.KVTokens) - r.private - r.decoding)
	}
	r.admissions++
	f.admitted = r.admissions
	f.place = int32(len(r.running))
	r.running = append(r.running, req)
	r.prefilling = append(r.prefilling, req)
	r.prefillTokens += int64(f.need - f.computed)
	return true
}

func (r *rank) atSpeed(t int64) int64 {
	if r.engine.speed == 1 {
		return t
	}
	return int64(float64(t) / r.engine.speed)
}

// finish does what the planned step has done.
func (r *rank) finish() {
	s := r.sim
	if r.decoding > 0 {
		r.steps++
		r.private += r.decoding
		r.kvRead += r.decoding
		r.outputTokens -= r.decoding
		for len(r.endings) > 0 && r.endings[0].step <= r.steps {
			e := r.endings.take()
			f := &s.flights[e.req]
			if !f.decoding || f.endStep != e.step {
				continue // it has been retracted since
			}
			r.kvRead -= int64(f.prompt + f.output)
			r.leave(e.req)
			r.decode(f, false)
			s.ended(e.req)
		}
	}
	done := 0
	for _, c := range r.chunks {
		f := &s.flights[c.req]
		f.computed += c.tokens
		if f.computed == f.need {
			done++
			r.prompted(c.req)
		}
	}
	// Those whose prompts are complete are the first ones: the budget goes to the
	// first that came, and only the last can be left with a part.
	r.prefilling = append(r.prefilling[:0], r.prefilling[done:]...)
	if r.chunkTotal > 0 {
		r.prefillTokens -= r.chunkTotal
		r.prefilled += r.chunkTotal
		r.prefillBusy += r.atSpeed(int64(r.config.Base) + r.chunkTotal*int64(r.config.PrefillPerToken))
	}
	r.chunks, r.chunkTotal = r.chunks[:0], 0
}

// prompted is called when a prompt has been computed, which makes a token too.
func (r *rank) prompted(req int32) {
	s := r.sim
	f := &s.flights[req]
	if r.cache != nil {
		r.cacheBlocks(f)
	}
	first := f.produced == 0
	f.produced++
	r.outputTokens--
	f.startStep = r.steps
	f.endStep = r.steps + int64(f.output-f.produced)
	if first {
		s.started(req)
	}
	if f.produced == f.output {
		r.leave(req)
		s.ended(req)
		return
	}
	r.decode(f, true)
	r.kvRead += int64(f.prompt + f.produced)
	r.endings.add(ending{f.endStep, req})
}

// decode says that a request takes part in the steps from now on, or not any more.
func (r *rank) decode(f *flight, takesPart bool) {
	n := -1
	if takesPart {
		n = 1
	}
	f.decoding = takesPart
	r.decoding += int64(n)
	if r.streams != nil && !f.hidden {
		r.streams[f.gateway] += n
	}
}

// cacheBlocks puts the blocks of a prompt that has just been computed where other
// requests find them.
func (r *rank) cacheBlocks(f *flight) {
	for _, b := range f.blocks[f.pinned:] {
		r.cache.insert(b)
		f.private -= blockTokens
		r.private -= blockTokens
	}
	f.pinned = int32(len(f.blocks))
}

func without(list []int32, req int32) []int32 {
	for i, v := range list {
		if v == req {
			return append(list[:i], list[i+1:]...)
		}
	}
	return list
}
