// Package selector picks the worker that a request should go to.
//
//	sel := selector.New(table, selector.Config{})
//	pick, err := sel.Pick(selector.Request{PromptTokens: load.Known[int64](n)})
//	if err != nil { ... }
//	defer pick.Done()
//	// send the request to pick.Worker.URL(), and when it has been written
//	pick.Dispatched()
//	// with the first byte of the answer
//	pick.FirstToken()
//	// and if the engine refuses or fails it
//	pick.Worker.SetAside()
//
// Package pickhttp calls Dispatched by itself.
//
// # Policies
//
// A [Policy] is the rule by which one worker is chosen. Each stands in a file of
// its own and has the name that the field uses:
//
//	round_robin     each worker in turn
//	random          any worker
//	least_request   the fewest own requests in flight
//	power_of_two    the less loaded of two random workers
//	least_depth     the shortest queue, as engines report it
//	cache_aware     the owner of the longest matching prefix, unless loads diverge
//	dp_rank         the least loaded data-parallel rank, and so its worker
//	least_work      the worker that will come to the request soonest (the default)
//
// The default is least_work. Choosing the least loaded of all by reports that are some
// tenths of a second old makes every gateway choose the same worker until the next
// report, and counts of requests do not tell a long prompt from a short one.
// least_work goes by prompt tokens, by what this gateway knows itself before what
// it is told, and by where other gateways are likely to send; see [LeastWork]. Tell
// it how long prompts are (Request.PromptTokens), which answers are not streamed
// (Request.Unstreamed), and where there are several replicas of the gateway, which
// of them this is (Config.Peers).
//
// [NewPolicy] makes a policy from its name and a configuration, for hosts that
// read both from a file. A host's own policy implements [Policy] and sees what
// the ones here see.
//
// # What load means
//
// A worker whose every rank has a fresh report has the depth that its engine
// reported, plus the own requests that the report cannot have counted. For one
// that is not trusted there is only the number of own requests in flight. The two
// are different scales, and [Signal] says what to do where both occur among the
// candidates of one pick. Every [Pick] names the [Basis] that it was made on.
//
// # Picking counts
//
// A pick counts as in flight on its worker from the moment that it is made, and
// a pick whose worker was taken by another in the same instant is made again. So
// a burst between two reports spreads out. [Pick.Done] releases it: call it
// deferred, so that a client that goes away or a handler that panics releases
// too.
//
// # Why a pick was made
//
// A [Pick] says it in one line. [Selector.PickExplained] says for every worker what it
// was compared by, summand by summand, or why it was not, and [Config].Explain gets
// that of one pick in so many.
//
// # Concurrency
//
// A Selector is safe for concurrent use and has no goroutine. Pick waits for no
// lock, makes no system call and, after warm-up, allocates nothing, except when
// it is the first to look after a report has gone stale, and where least_work takes
// in the reports of the last 10 ms, which one pick does for all. It never blocks,
// except in a Filter that does.
package selector
