package load_test

import (
	"encoding/hex"
	"errors"
	"fmt"
	"time"

	"github.com/plimsoll-go/plimsoll/load"
	"github.com/plimsoll-go/plimsoll/tokenspeed"
)

// A host that drives a group of TokenSpeed ranks reserves a rank for each request
// and hands on each message that the engines send.
func ExampleConnector() {
	table := load.NewTable(load.Config{})
	conn, err := load.NewConnector(table.Add("group-0", ""), load.ConnectorConfig{Ranks: 2})
	if err != nil {
		fmt.Println(err)
		return
	}

	var summary tokenspeed.Summary // reused
	receive := func(frames ...[]byte) error {
		payload, err := tokenspeed.Split(frames)
		if errors.Is(err, tokenspeed.ErrEngineDead) {
			fmt.Println("lost:", conn.Fail(err))
			return err
		}
		if err == nil {
			err = summary.Decode(payload)
		}
		return conn.Observe(load.FromTokenSpeed(&summary, err))
	}

	r, err := conn.ReserveRank("vec-1", 1, 3) // or Reserve, which takes the least loaded one
	if err != nil {
		fmt.Println(err)
		return
	}
	defer func() {
		if r.Abort() { // the client has left
			fmt.Println("tell rank", r.Rank(), "to abort")
		}
	}()
	r.Dispatched() // when it has been sent to rank r.Rank()

	// The batch that ends the request, and says that 2 requests run and 5 wait.
	batch, _ := hex.DecodeString("9eb34261746368546f6b656e49444f7574536c696d91a57665632d3191920a0b91a66c656e677468" +
		"9103910291019192cbbfe0000000000000cbbfd000000000000091920a0b01020564cd0190")
	if err := receive(batch); err != nil {
		fmt.Println(err)
	}
	rank := conn.Status().Ranks[1]
	fmt.Printf("its last word: running %v, waiting %v, KV usage %v\n", rank.Running, rank.Waiting, rank.KVUsage)
	fmt.Printf("what counts: in flight %d, score %v\n", rank.InFlight, rank.Score)

	other, _ := conn.Reserve("vec-2", 3)
	defer other.Done()
	_ = receive([]byte(tokenspeed.EngineDead))
	// Output:
	// its last word: running 2, waiting 5, KV usage 0.25
	// what counts: in flight 0, score 0
	// lost: [vec-2]
}

// A host with a transport of its own feeds the table itself.
func ExampleTable() {
	table := load.NewTable(load.Config{})
	worker := table.Add("engine-1", "http://10.0.0.1:30000")
	feed := worker.Advertise(2) // it publishes on two ranks

	feed.Put(0, load.Report{Running: 5, Waiting: 1})
	fmt.Println(worker.Status().Why, "-", worker.Status().Reason)

	feed.Put(1, load.Report{Running: 3, Waiting: 2, KVUsage: load.Known(0.25)})
	fmt.Println(worker.Status().Why, "- depth", worker.Status().Depth)

	ticket := worker.Reserve(load.NoRank, 1200) // what a pick does
	entry, _ := table.View().Find(worker)
	depth, _ := entry.DepthNow()
	fmt.Println("with the request that no report has counted yet:", depth)
	ticket.Done()
	fmt.Println("in flight at the end:", worker.InFlight())
	// Output:
	// never_reported - never reported: rank 1 of 2
	// trusted - depth 11
	// with the request that no report has counted yet: 12
	// in flight at the end: 0
}

// A host with a rule of its own: the worker with the fewest prompt tokens of ours to
// compute. It notes with each request how many those are, and learns from the first
// tokens how long one takes.
func ExampleWatch() {
	var now time.Time // of a simulation; a host leaves Config.Clock nil
	table := load.NewTable(load.Config{Clock: func() time.Time { return now }})
	table.Add("engine-1", "http://10.0.0.1:30000")
	table.Add("engine-2", "http://10.0.0.2:30000")

	watch := load.Watch{
		FirstToken: func(w *load.Worker, wait time.Duration, tokens uint64) {
			fmt.Printf("%s: %v for %d tokens, %v each\n", w.ID(), wait, tokens, wait/time.Duration(tokens))
		},
	}
	pick := func(promptTokens int64) load.Ticket {
		for {
			var best *load.Worker
			var least load.Count
			view := table.View()
			for i := range view.Len() {
				w := view.At(i).Worker()
				if c := w.Count(); best == nil || c.PendingTokens() < least.PendingTokens() {
					best, least = w, c
				}
			}
			tokens := least.PendingTokens() + promptTokens
			ticket, ok := view.ReserveIf(best, least.Seen(), load.Booking{
				Rank: load.NoRank, PromptTokens: promptTokens, Watch: &watch, Note: uint64(tokens),
			})
			if ok { // else somebody else was counted there since we looked
				return ticket
			}
		}
	}

	first, second, third := pick(3000), pick(1000), pick(500)
	defer first.Done()
	defer second.Done()
	defer third.Done()
	now = now.Add(60 * time.Millisecond)
	second.FirstToken()
	now = now.Add(30 * time.Millisecond)
	third.FirstToken()
	now = now.Add(90 * time.Millisecond)
	first.FirstToken()
	// Output:
	// engine-2: 60ms for 1000 tokens, 60µs each
	// engine-2: 90ms for 1500 tokens, 60µs each
	// engine-1: 180ms for 3000 tokens, 60µs each
}
