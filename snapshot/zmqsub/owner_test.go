package zmqsub

import (
	"errors"
	"log/slog"
	"runtime"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/plimsoll-go/plimsoll/snapshot"
)

const rank0, rank1 = "tcp://10.0.0.1:5557", "tcp://10.0.0.1:5558"

// check that every message is accounted for exactly once.
func checkBooks(t testing.TB, c Counts) {
	t.Helper()
	if c.Messages != c.Delivered+c.Superseded+c.TotalDropped() {
		t.Errorf("%d messages are not %d delivered + %d superseded + %d dropped %v",
			c.Messages, c.Delivered, c.Superseded, c.TotalDropped(), c.Dropped)
	}
}

func TestOnlyTheNewestMessageOfADrainIsDelivered(t *testing.T) {
	inBubble(t, Config{}, nil, func(t *testing.T, b *bench) {
		var in inbox
		b.subscribe(t, rank0, in.deliver)
		time.Sleep(time.Second)
		arrived := time.Now()
		b.port.source(rank0).push(message(500), message(501), message(0), message(1))
		synctest.Wait()

		got := in.all()
		if len(got) != 1 || got[0].Seq != 1 || got[0].running != 1 || got[0].Err != nil {
			t.Fatalf("deliveries: %+v", got)
		}
		if !got[0].Received.Equal(arrived) || got[0].Size != len(payload(1)) {
			t.Errorf("received %v, size %d", got[0].Received, got[0].Size)
		}
		e := b.Stats().Endpoints[0]
		if e.Messages != 4 || e.Superseded != 3 || e.Delivered != 1 || !e.LastMessage.Equal(arrived) {
			t.Errorf("stats: %+v", e)
		}
		checkBooks(t, e.Counts)
	})
}

func TestWhatIsNotAMessageNeverDisplacesTheNewestOne(t *testing.T) {
	inBubble(t, Config{}, nil, func(t *testing.T, b *bench) {
		var in inbox
		b.subscribe(t, rank0, in.deliver)
		framing := []string{"one frame", "two frames", "four frames", "many frames", "seq of 7", "seq of 9", "seq -1", "oversize"}
		messages := [][][]byte{message(3)}
		for _, name := range framing {
			messages = append(messages, garbage()[name])
		}
		b.port.source(rank0).push(messages...)
		synctest.Wait()

		got := in.all()
		if len(got) != 2 || !errors.Is(got[0].Err, snapshot.ErrPayloadSize) || got[0].Size != snapshot.MaxPayload+1 || got[1].running != 3 {
			t.Fatalf("want the last error, then the reading: %+v", got)
		}
		c := b.Stats().Counts
		want := map[string]uint64{"frame_count": 4, "seq_size": 2, "end_of_stream": 1, "payload_size": 1}
		for reason, n := range want {
			if c.Dropped[reason] != n {
				t.Errorf("dropped %v, want %v", c.Dropped, want)
				break
			}
		}
		checkBooks(t, c)
	})
}

func TestPayloadsThatDoNotDecodeAreCountedAndTheNextOneIsTaken(t *testing.T) {
	inBubble(t, Config{MaxPayload: 100}, nil, func(t *testing.T, b *bench) {
		var in inbox
		b.subscribe(t, rank0, in.deliver)
		src := b.port.source(rank0)
		bad := [][]byte{{0xc1}, {}, {0xdd, 0xff, 0xff, 0xff, 0xff}, make([]byte, 101)}
		for i, p := range bad {
			src.push(messageOf(int64(i), p))
			time.Sleep(time.Second)
		}
		src.push(message(9))
		synctest.Wait()

		got := in.all()
		if len(got) != len(bad)+1 {
			t.Fatalf("%d deliveries: %+v", len(got), got)
		}
		for i := range bad {
			if got[i].Err == nil || got[i].Received.IsZero() {
				t.Errorf("payload %x: %+v", bad[i], got[i])
			}
		}
		if got[len(bad)].running != 9 {
			t.Errorf("the last one: %+v", got[len(bad)])
		}
		c := b.Stats().Counts
		if c.TotalDropped() != uint64(len(bad)) || c.Dropped["payload_size"] != 1 {
			t.Errorf("dropped: %v", c.Dropped)
		}
		checkBooks(t, c)
	})
}

func TestBacklogThatArrivesInPiecesIsWorkedOffBeforeAnythingIsDelivered(t *testing.T) {
	inBubble(t, Config{}, nil, func(t *testing.T, b *bench) {
		var in inbox
		b.subscribe(t, rank0, in.deliver)
		src := b.port.source(rank0)
		for piece := range int64(10) {
			var messages [][][]byte
			for i := range int64(200) {
				messages = append(messages, message(piece*200+i))
			}
			src.push(messages...)
			time.Sleep(time.Millisecond)
		}
		// A trickle is still part of it.
		last := time.Now()
		src.push(message(2000))
		time.Sleep(10 * time.Millisecond)

		got := in.all()
		if len(got) != 1 || got[0].Seq != 2000 || got[0].Received.Before(last) {
			t.Fatalf("%d deliveries, %+v", len(got), got)
		}
		if c := b.Stats().Counts; c.Superseded != 2000 || c.Delivered != 1 {
			t.Errorf("stats: %+v", c)
		}

		// Afterwards a single message is delivered at once again.
		src.push(message(2001))
		synctest.Wait()
		if r, _ := in.last(); r.Seq != 2001 {
			t.Errorf("after the backlog: %+v", r)
		}
	})
}

func TestMessageSoonAfterABurstIsHeldWithIt(t *testing.T) {
	inBubble(t, Config{}, nil, func(t *testing.T, b *bench) {
		var in inbox
		b.subscribe(t, rank0, in.deliver)
		src := b.port.source(rank0)
		var messages [][][]byte
		for seq := range int64(burst) {
			messages = append(messages, message(seq))
		}
		src.push(messages...)
		time.Sleep(quietFor / 2)
		src.push(message(burst))
		synctest.Wait()
		if got := in.all(); len(got) > 0 {
			t.Fatalf("before the socket was quiet: %+v", got)
		}
		time.Sleep(roundEvery + quietFor)
		if got := in.all(); len(got) != 1 || got[0].Seq != burst {
			t.Errorf("deliveries: %+v", got)
		}
	})
}

func TestPublisherThatNeverPausesIsDeliveredAndStarvesNobody(t *testing.T) {
	inBubble(t, Config{}, nil, func(t *testing.T, b *bench) {
		var loud, quiet inbox
		b.subscribe(t, rank0, loud.deliver)
		b.subscribe(t, rank1, quiet.deliver)
		start := time.Now()
		loudSource := b.port.source(rank0)
		stopFlood := make(chan struct{})
		go func() {
			for {
				var messages [][][]byte
				for i := range int64(400) { // more than a drain takes
					messages = append(messages, message(i))
				}
				loudSource.push(messages...)
				select {
				case <-stopFlood:
					return
				case <-time.After(time.Millisecond):
				}
			}
		}()
		time.Sleep(time.Millisecond)
		b.port.source(rank1).push(message(1))
		time.Sleep(roundEvery)
		if r, ok := quiet.last(); !ok || r.running != 1 {
			t.Error("the quiet rank waited for the loud one")
		}
		time.Sleep(time.Second)
		close(stopFlood)
		time.Sleep(settleLimit)

		got := loud.readings()
		if len(got) == 0 {
			t.Fatal("nothing was delivered during the flood")
		}
		if wait := got[0].Received.Sub(start); wait > settleLimit+2*roundEvery {
			t.Errorf("the first delivery took %v", wait)
		}
		for i := 1; i < len(got); i++ {
			if gap := got[i].Received.Sub(got[i-1].Received); gap > settleLimit+2*roundEvery {
				t.Errorf("no delivery for %v", gap)
			}
		}
	})
}

func TestEndlessSocketIsLeftAfterABoundedDrain(t *testing.T) {
	inBubble(t, Config{}, nil, func(t *testing.T, b *bench) {
		for name, message := range map[string][][]byte{
			"small messages": message(1),
			"large messages": messageOf(1, make([]byte, 4*snapshot.MaxPayload)),
			"endless parts":  make([][]byte, 3*drainFrames),
		} {
			var in inbox
			stop := b.subscribe(t, rank0, in.deliver)
			src := b.port.source(rank0)
			before := b.Stats().Messages
			src.flood(message)
			time.Sleep(5 * time.Millisecond)
			src.flood(nil)
			time.Sleep(settleLimit)
			if b.Stats().Messages == before {
				t.Errorf("%s: nothing was read", name)
			}
			stop()
			synctest.Wait()
		}
		checkBooks(t, b.Stats().Counts)
	})
}

func TestWhatABoundedDrainLeavesIsReadThoughNothingMoreArrives(t *testing.T) {
	inBubble(t, Config{}, nil, func(t *testing.T, b *bench) {
		var in inbox
		b.subscribe(t, rank0, in.deliver)
		const n = 3 * drainBytes / snapshot.MaxPayload // few messages, and more than one drain
		var messages [][][]byte
		for seq := range int64(n) {
			messages = append(messages, messageOf(seq, append(payload(seq), make([]byte, snapshot.MaxPayload)...)))
		}
		messages = append(messages, message(n))
		b.port.source(rank0).push(messages...)
		time.Sleep(settleLimit)
		if r, _ := in.last(); r.running != n {
			t.Errorf("last delivery: %+v", r)
		}
	})
}

func TestRoundsArePacedWhileMessagesFlow(t *testing.T) {
	inBubble(t, Config{}, nil, func(t *testing.T, b *bench) {
		var in inbox
		b.subscribe(t, rank0, in.deliver)
		src := b.port.source(rank0)
		for i := range int64(10_000) { // a second's worth of an unthrottled publisher
			src.push(message(i))
			time.Sleep(100 * time.Microsecond)
		}
		time.Sleep(roundEvery)
		if r, _ := in.last(); r.Seq != 9999 {
			t.Errorf("last delivery: %+v", r)
		}
		// Every round is a wait.
		if n, limit := b.port.waited(), int(time.Second/roundEvery)*11/10; n > limit {
			t.Errorf("%d rounds in a second, want at most %d", n, limit)
		}
	})
}

func TestIdleOwnerSleeps(t *testing.T) {
	inBubble(t, Config{Silence: 24 * time.Hour}, nil, func(t *testing.T, b *bench) {
		b.subscribe(t, rank0, func(snapshot.Delivery) {})
		synctest.Wait()
		before := b.port.waited()
		time.Sleep(20 * time.Hour)
		if n := b.port.waited() - before; n > 2 {
			t.Errorf("woke %d times with nothing to do", n)
		}
	})
}

func TestSilentRankGetsFreshConnectionsFurtherAndFurtherApart(t *testing.T) {
	inBubble(t, Config{}, nil, func(t *testing.T, b *bench) {
		var in inbox
		b.subscribe(t, rank0, in.deliver)
		synctest.Wait()
		start := time.Now()
		time.Sleep(5*time.Second - 1)
		if n := b.Stats().Reconnects; n != 0 {
			t.Fatalf("%d reconnects before the silence was over", n)
		}
		time.Sleep(10 * time.Minute)

		var at []time.Duration
		for _, o := range b.port.openings()[1:] {
			at = append(at, o.Sub(start))
		}
		want := []time.Duration{5, 15, 35, 75, 135, 195}
		for i := range want {
			want[i] *= time.Second
		}
		if len(at) < len(want) || !slices.Equal(at[:len(want)], want) {
			t.Fatalf("fresh connections at %v, want %v and then every minute", at, want)
		}
		if b.port.openSources() != 1 {
			t.Errorf("%d sockets for one subscription", b.port.openSources())
		}

		// A message of any kind resets the back-off.
		b.port.source(rank0).push(garbage()["one frame"])
		synctest.Wait()
		before := b.Stats().Reconnects
		time.Sleep(5*time.Second - 1)
		if n := b.Stats().Reconnects; n != before {
			t.Errorf("reconnected early after a message")
		}
		time.Sleep(time.Millisecond)
		if n := b.Stats().Reconnects; n != before+1 {
			t.Errorf("%d reconnects after the silence, want 1", n-before)
		}
		b.port.source(rank0).push(message(1))
		synctest.Wait()
		if r, ok := in.last(); !ok || r.running != 1 {
			t.Errorf("the fresh connection delivers nothing: %+v", r)
		}
	})
}

func TestSpeakingRankKeepsItsConnection(t *testing.T) {
	inBubble(t, Config{}, nil, func(t *testing.T, b *bench) {
		b.subscribe(t, rank0, func(snapshot.Delivery) {})
		for i := range int64(100) {
			time.Sleep(4 * time.Second)
			b.port.source(rank0).push(message(i))
		}
		if n := b.Stats().Reconnects; n != 0 {
			t.Errorf("%d reconnects", n)
		}
	})
}

func TestBlockedDeliverDoesNotMakeOtherRanksSilent(t *testing.T) {
	inBubble(t, Config{}, nil, func(t *testing.T, b *bench) {
		var in inbox
		b.subscribe(t, rank0, func(snapshot.Delivery) { time.Sleep(time.Minute) })
		b.subscribe(t, rank1, in.deliver)
		b.port.source(rank0).push(message(1))
		synctest.Wait()
		b.port.source(rank1).push(message(2)) // waits in its queue for a minute
		time.Sleep(time.Minute + time.Second)
		if r, ok := in.last(); !ok || r.running != 2 {
			t.Error("the message that had waited was lost")
		}
		for _, e := range b.Stats().Endpoints {
			if e.Endpoint == rank1 && e.Reconnects != 0 {
				t.Errorf("%d reconnects of a rank that spoke", e.Reconnects)
			}
		}
	})
}

func TestOutOfDescriptorsTheOldConnectionStays(t *testing.T) {
	inBubble(t, Config{}, nil, func(t *testing.T, b *bench) {
		var in inbox
		b.subscribe(t, rank0, in.deliver)
		b.port.fail(ErrLimit, nil)
		if _, err := b.Subscribe(rank1, in.deliver); !errors.Is(err, ErrLimit) {
			t.Errorf("Subscribe: %v, want ErrLimit", err)
		}
		time.Sleep(time.Minute)
		b.port.source(rank0).push(message(4))
		synctest.Wait()
		if r, ok := in.last(); !ok || r.running != 4 {
			t.Error("the subscription did not survive")
		}
		st := b.Stats()
		if st.Reconnects != 0 || len(st.Endpoints) != 1 {
			t.Errorf("stats: %+v", st)
		}
	})
}

func TestFailingPollDoesNotSpin(t *testing.T) {
	log := &records{}
	inBubble(t, Config{Logger: slog.New(log)}, nil, func(t *testing.T, b *bench) {
		var in inbox
		b.subscribe(t, rank0, in.deliver)
		synctest.Wait()
		before := b.port.waited()
		b.port.fail(nil, errors.New("no memory"))
		time.Sleep(30 * time.Second)
		if n, limit := b.port.waited()-before, int(30*time.Second/waitFailurePause)+2; n > limit {
			t.Errorf("polled %d times in 30 s, want at most %d", n, limit)
		}
		if n := len(log.all()); n != 1 {
			t.Errorf("%d log records", n)
		}
		b.port.fail(nil, nil)
		b.port.source(rank0).push(message(1))
		time.Sleep(2 * waitFailurePause)
		if _, ok := in.last(); !ok {
			t.Error("the owner did not recover")
		}
	})
}

func TestDropsAreLoggedOnceAMinuteWithTheirNumber(t *testing.T) {
	log := &records{}
	inBubble(t, Config{Logger: slog.New(log)}, nil, func(t *testing.T, b *bench) {
		b.subscribe(t, rank0, func(snapshot.Delivery) {})
		src := b.port.source(rank0)
		bad := garbage()
		for i := range 15_000 { // two and a half minutes
			src.push(bad["two frames"])
			if i%2 == 0 {
				src.push(bad["seq -1"])
			}
			time.Sleep(10 * time.Millisecond)
		}
		time.Sleep(time.Minute)

		list := log.all()
		var total uint64
		for i, rec := range list {
			if n := dropped(rec); n <= total {
				t.Errorf("record %d tells of %d drops, the one before of %d", i, n, total)
			}
			total = dropped(rec)
			if i > 0 && rec.Time.Sub(list[i-1].Time) < time.Minute {
				t.Errorf("records %v apart", rec.Time.Sub(list[i-1].Time))
			}
		}
		// At once, then after 1, 2 and 3 minutes: the last one without a drop to
		// set it off.
		if len(list) != 4 || total != 22_500 {
			t.Errorf("%d records, the last of %d drops, want 4 and 22500", len(list), total)
		}
	})
}

func TestFloodOfBadMessagesIsNoFloodOfCallbacks(t *testing.T) {
	inBubble(t, Config{}, nil, func(t *testing.T, b *bench) {
		var in inbox
		b.subscribe(t, rank0, in.deliver)
		src := b.port.source(rank0)
		bad := garbage()["one frame"]
		for range 1000 {
			for range 50 {
				src.push(bad)
			}
			time.Sleep(time.Millisecond)
		}
		time.Sleep(roundEvery)
		if n, limit := len(in.all()), int(time.Second/roundEvery)*11/10; n > limit {
			t.Errorf("%d callbacks, want at most %d", n, limit)
		}
		if c := b.Stats().Counts; c.Dropped["frame_count"] != 50_000 {
			t.Errorf("dropped: %v", c.Dropped)
		}
	})
}

func TestPanicInDeliverIsNotSwallowed(t *testing.T) {
	o := newOwner(&Subscriber{}, &fakePort{signal: make(chan struct{}, 1)})
	sub := &subscription{deliver: func(snapshot.Delivery) { panic("bug") }}
	sub.bad.ok = true
	defer func() {
		if recover() != "bug" {
			t.Error("the panic did not come through")
		}
		sub.stats() // no lock is left held
	}()
	o.hand(sub)
}

func TestGoexitInDeliverClosesTheSubscriber(t *testing.T) {
	inBubble(t, Config{Owners: 2}, nil, func(t *testing.T, b *bench) {
		stop := b.subscribe(t, rank0, func(snapshot.Delivery) { runtime.Goexit() })
		b.port.source(rank0).push(message(1))
		synctest.Wait()
		if _, err := b.Subscribe(rank1, func(snapshot.Delivery) {}); !errors.Is(err, ErrClosed) {
			t.Errorf("Subscribe: %v, want ErrClosed", err)
		}
		stop()
	})
}

func TestRanksThatFallSilentTogetherDoNotHoldUpTheOthers(t *testing.T) {
	inBubble(t, Config{MaxSockets: 1000}, nil, func(t *testing.T, b *bench) {
		var in inbox
		b.subscribe(t, rank0, in.deliver)
		const silent = 500
		for range silent {
			b.subscribe(t, rank1, func(snapshot.Delivery) {})
		}
		time.Sleep(4 * time.Second)
		b.port.slowOpen(time.Millisecond)
		b.port.source(rank0).push(message(1))
		time.Sleep(time.Second) // all others are to be renewed now
		time.Sleep(10 * time.Millisecond)
		b.port.source(rank0).push(message(2))
		time.Sleep(20 * time.Millisecond)
		if r, _ := in.last(); r.running != 2 {
			t.Errorf("20 ms after it was sent: %+v", r)
		}
		time.Sleep(silent * time.Millisecond)
		if n := b.Stats().Reconnects; n != silent {
			t.Errorf("%d fresh connections, want %d", n, silent)
		}
	})
}
