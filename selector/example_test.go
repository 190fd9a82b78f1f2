package selector_test

import (
	"fmt"
	"hash/fnv"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"strings"

	"github.com/plimsoll-go/plimsoll/load"
	"github.com/plimsoll-go/plimsoll/selector"
	"github.com/plimsoll-go/plimsoll/selector/pickhttp"
)

// A gateway's handler: pick, send, and mark what becomes of the request.
func ExampleSelector_Pick() {
	engine := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		io.Copy(w, r.Body)
	}))
	defer engine.Close()

	table := load.NewTable(load.Config{})
	worker := table.Add("engine-0", engine.URL)
	sel := selector.New(table, selector.Config{})

	handler := func(w http.ResponseWriter, r *http.Request) {
		pick, err := sel.Pick(selector.Request{ID: r.Header.Get("X-Request-Id")})
		if err != nil { // there is nobody to send it to
			http.Error(w, err.Error(), http.StatusServiceUnavailable)
			return
		}
		// Deferred, so that a client that goes away and a handler that panics
		// release the worker, too.
		defer pick.Done()

		ctx := pickhttp.Trace(r.Context(), pick) // marks that the engine's next report counts the request
		req, err := http.NewRequestWithContext(ctx, r.Method, pick.Worker.URL()+r.URL.Path, r.Body)
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		resp, err := http.DefaultClient.Do(req)
		if r.Context().Err() != nil {
			return // the client has left, which is not the engine's fault
		}
		if err != nil || resp.StatusCode == http.StatusTooManyRequests || resp.StatusCode >= 500 {
			pick.Worker.SetAside() // or it would look idle, and be picked again and again
		}
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadGateway)
			return
		}
		defer resp.Body.Close()
		w.WriteHeader(resp.StatusCode)

		buf := make([]byte, 32<<10)
		for {
			n, err := resp.Body.Read(buf)
			if n > 0 {
				pick.FirstToken() // of which only the first call counts
				w.Write(buf[:n])
			}
			if err == io.EOF {
				return
			}
			if err != nil {
				panic(http.ErrAbortHandler) // half an answer must not look like a whole one
			}
		}
	}

	answer := httptest.NewRecorder()
	handler(answer, httptest.NewRequest("POST", "/generate", strings.NewReader("Hello.")))
	fmt.Println(answer.Code, answer.Body)
	fmt.Println("in flight:", worker.InFlight())
	// Output:
	// 200 Hello.
	// in flight: 0
}

// sticky is a policy of a host's own: requests of one session go to one worker, as
// long as it is there, and the sessions of one that leaves spread over the others.
type sticky struct{}

func (sticky) Name() string { return "sticky" }

func (sticky) Choose(d *selector.Decision) selector.Choice {
	best, highest := 0, uint64(0)
	for i := range d.Len() {
		h := fnv.New64a()
		io.WriteString(h, d.Request.ID)
		io.WriteString(h, d.Entry(i).Worker().ID())
		if weight := h.Sum64(); weight >= highest {
			best, highest = i, weight
		}
	}
	return selector.Choice{
		Candidate: d.Candidate(best),
		Reason:    selector.Turn,
		Blind:     true, // by no load: another pick of the same worker changes nothing
	}
}

// A host can bring a policy of its own.
func ExamplePolicy() {
	table := load.NewTable(load.Config{})
	for _, id := range []string{"a", "b", "c", "d"} {
		table.Add(id, "")
	}
	sel := selector.New(table, selector.Config{Policy: sticky{}})

	route := func(session string) *load.Worker {
		pick, err := sel.Pick(selector.Request{ID: session})
		if err != nil {
			log.Fatal(err)
		}
		defer pick.Done()
		return pick.Worker
	}
	first := route("session-1")
	fmt.Println("the same worker again:", route("session-1") == first)
	first.SetHealthy(false)
	fmt.Println("another while it is ill:", route("session-1") != first)
	first.SetHealthy(true)
	fmt.Println("and back:", route("session-1") == first)
	// Output:
	// the same worker again: true
	// another while it is ill: true
	// and back: true
}

// Policies can be named in a configuration file.
func ExampleNewPolicy() {
	policy, err := selector.NewPolicy("cache_aware", []byte(`{"balance_abs": 64, "ties": "rotate"}`))
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(policy.Name())
	_, err = selector.NewPolicy("least-depth", nil)
	fmt.Println(err)
	// Output:
	// cache_aware
	// selector: unknown policy "least-depth"; did you mean "least_depth"? (have cache_aware, dp_rank, least_depth, least_request, least_work, power_of_two, random, round_robin)
}

// The host knows how much of a prompt each worker has cached.
func ExampleCacheAware() {
	table := load.NewTable(load.Config{})
	var workers []*load.Worker
	for i, depth := range []int64{3, 8, 0} {
		w := table.Add(fmt.Sprintf("engine-%d", i), "")
		w.Advertise(1).Put(0, load.Report{Running: depth})
		workers = append(workers, w)
	}
	sel := selector.New(table, selector.Config{Policy: selector.CacheAware(selector.CacheAwareConfig{})})

	pick, _ := sel.Pick(selector.Request{
		PromptTokens: load.Known[int64](1000),
		Prefix: []selector.PrefixMatch{
			{Worker: workers[0], Tokens: 900},
			{Worker: workers[1], Tokens: 900},
			{Worker: workers[2], Tokens: 100},
		},
	})
	defer pick.Done()
	fmt.Println(pick.Worker.ID(), pick.Reason)
	// Output: engine-0 prefix_owner
}

// A retry is a pick of its own, without the worker that has failed.
func ExampleRequest_exclude() {
	table := load.NewTable(load.Config{})
	table.Add("engine-0", "")
	table.Add("engine-1", "")
	sel := selector.New(table, selector.Config{})

	first, _ := sel.Pick(selector.Request{})
	first.Worker.SetAside() // it has failed
	first.Done()

	second, err := sel.Pick(selector.Request{Exclude: []*load.Worker{first.Worker}})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer second.Done()
	fmt.Println("another one:", second.Worker != first.Worker)
	// Output: another one: true
}

// Two groups of ranks that the host drives itself: the selector chooses a group and
// a rank, and the group's connector takes the pick in, so that the batch that ends
// the request releases it.
func ExampleDPRank() {
	table := load.NewTable(load.Config{})
	groups := make(map[*load.Worker]*load.Connector)
	for _, id := range []string{"group-0", "group-1"} {
		w := table.Add(id, "")
		conn, err := load.NewConnector(w, load.ConnectorConfig{Ranks: 2})
		if err != nil {
			fmt.Println(err)
			return
		}
		groups[w] = conn
	}
	sel := selector.New(table, selector.Config{Policy: selector.DPRank()})

	busy := make(map[string]int)
	for i := range 8 {
		id := fmt.Sprint("request-", i)
		pick, err := sel.Pick(selector.Request{ID: id})
		if err != nil {
			fmt.Println(err)
			return
		}
		r, err := groups[pick.Worker].Register(id, pick.Ticket)
		if err != nil { // the id is in flight there, or the group has died since
			pick.Done()
			fmt.Println(err)
			return
		}
		defer r.Done() // or Abort, where the engine has to be told
		busy[fmt.Sprint(pick.Worker.ID(), " rank ", r.Rank())]++
	}
	fmt.Println(busy)

	for w, conn := range groups {
		for rank := range 2 {
			batch := load.Batch{Rank: rank}
			for i := range 8 {
				batch.Finished = append(batch.Finished, fmt.Append(nil, "request-", i))
			}
			if err := conn.Observe(batch); err != nil {
				fmt.Println(err)
			}
		}
		fmt.Println("in flight at the end:", w.InFlight())
	}
	// Output:
	// map[group-0 rank 0:2 group-0 rank 1:2 group-1 rank 0:2 group-1 rank 1:2]
	// in flight at the end: 0
	// in flight at the end: 0
}
