package fleetsim

// An engine is one inference server: its ranks, in groups that step together.
type engine struct {
	sim         *sim
	index       int32
	config      *EngineConfig
	ranks       []*rank
	groups      []*group
	speed       float64
	up          bool
	incarnation int32 // a crash ends one
	nextRank    int   // whose turn it is where the gateway chooses none
}

// A group is the ranks that step together: all of an engine in lockstep, one
// otherwise.
type group struct {
	number   int32 // among all of the fleet
	engine   *engine
	ranks    []*rank
	stepping bool
}

func (s *sim) addEngine(c *EngineConfig) {
	e := &engine{sim: s, index: int32(len(s.engines)), config: c, speed: c.Speed, up: !c.Absent}
	s.engines = append(s.engines, e)
	for i := range c.Ranks {
		r := &rank{sim: s, engine: e, config: c, number: int32(len(s.ranks)), index: i}
		s.ranks = append(s.ranks, r)
		e.ranks = append(e.ranks, r)
		if i == 0 || !c.Lockstep {
			g := &group{number: int32(len(s.groups)), engine: e}
			s.groups = append(s.groups, g)
			e.groups = append(e.groups, g)
		}
		g := e.groups[len(e.groups)-1]
		g.ranks = append(g.ranks, r)
		r.group = g
		r.clear()
	}
}

// clear makes the rank that of an engine that has just started.
func (r *rank) clear() {
	*r = rank{sim: r.sim, engine: r.engine, group: r.group, config: r.config, number: r.number, index: r.index,
		coming: r.coming, comingTokens: r.comingTokens, comingOutput: r.comingOutput, reporter: r.reporter}
	if r.config.PrefixCache {
		r.cache = newPrefixCache()
	}
	if s := r.sim; s.config.Reports.Wire == Piggyback {
		r.streams = make([]int, s.config.Gateways)
	}
}

// rankFor returns the rank that a request goes to, given the one that its gateway
// has chosen, or none.
func (e *engine) rankFor(chosen int) *rank {
	if chosen >= 0 && chosen < len(e.ranks) {
		return e.ranks[chosen]
	}
	r := e.ranks[e.nextRank]
	e.nextRank = (e.nextRank + 1) % len(e.ranks)
	return r
}

// step begins the next step, unless one is being made or there is nothing to do.
func (g *group) step() {
	if g.stepping || !g.engine.up {
		return
	}
	var longest int64
	for _, r := range g.ranks {
		longest = max(longest, r.plan())
	}
	if longest == 0 {
		return
	}
	if len(g.ranks) > 1 {
		// One that has nothing to do takes part with an empty batch.
		longest = max(longest, g.ranks[0].atSpeed(int64(g.engine.config.Base)))
	}
	for _, r := range g.ranks {
		r.stepping += longest
	}
	g.stepping = true
	s := g.engine.sim
	s.agenda.add(s.now+longest, stepEnds, g.number, g.engine.incarnation)
}

// stepEnds ends the step of a group and begins the next. What is reported is the
// state with the next batch formed, as a scheduler has it that reports in between.
func (s *sim) stepEnds(g *group) {
	g.stepping = false
	for _, r := range g.ranks {
		s.beginBatch(r)
		r.finish()
		s.sendBatches(r)
	}
	g.step()
	for _, r := range g.ranks {
		s.stepped(r)
	}
}

// crash ends an engine and all that it holds.
func (s *sim) crash(e *engine) {
	if !e.up {
		return
	}
	e.up = false
	s.agenda.add(s.now+int64(s.config.Detection), crashSeen, e.index, e.incarnation)
	for _, r := range e.ranks {
		for r.waiting.len() > 0 {
			s.failed(r.waiting.pop())
		}
		for _, req := range r.running {
			s.failed(req)
		}
		r.clear()
	}
	for _, g := range e.groups {
		g.stepping = false
	}
	e.incarnation++
}

func (s *sim) join(e *engine) {
	if e.up {
		return
	}
	e.up = true
	e.speed = e.config.Speed
	for _, g := range s.gateways {
		g.add(e)
	}
	for _, r := range e.ranks {
		s.startReporting(r)
	}
}
