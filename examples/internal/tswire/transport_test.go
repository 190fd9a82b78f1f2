package tswire

import (
	"context"
	"errors"
	"reflect"
	"strings"
	"testing"
	"time"

	zmq "github.com/pebbe/zmq4"

	"github.com/plimsoll-go/plimsoll/tokenspeed"
)

func TestRequestsReachTheirRankAndBatchesTheFrontend(t *testing.T) {
	f, conns := group(t, FrontendConfig{Ranks: 3, FirstIndex: 7})
	messages := serve(t, f)
	for rank, c := range conns {
		want := Request{ID: strings.Repeat("x", rank+1), Prompt: []int64{1, 2}, MaxNewTokens: 3, Stream: true}
		if err := f.Add(rank, want); err != nil {
			t.Fatal(err)
		}
		if err := f.Abort(rank, want.ID, "other"); err != nil {
			t.Fatal(err)
		}
		add, err := c.Receive()
		if err != nil {
			t.Fatal(err)
		}
		if add.Add == nil || !reflect.DeepEqual(*add.Add, want) {
			t.Errorf("rank %d got %+v, want %+v", rank, add.Add, want)
		}
		abort, err := c.Receive()
		if err != nil {
			t.Fatal(err)
		}
		if abort.Add != nil || !reflect.DeepEqual(abort.Abort, []string{want.ID, "other"}) {
			t.Errorf("rank %d got %+v", rank, abort)
		}
		if err := c.Send([]byte(want.ID)); err != nil {
			t.Fatal(err)
		}
		if got := next(t, messages); len(got) != 1 || string(got[0]) != want.ID {
			t.Errorf("frontend got %q", got)
		}
	}
}

func TestRankPassesOverWhatMakesNoSense(t *testing.T) {
	f, conns := group(t, FrontendConfig{})
	f.input.mu.Lock()
	err := f.input.sendLocked(0, identityOf(0), []byte("nonsense"))
	f.input.mu.Unlock()
	if err != nil {
		t.Fatal(err)
	}
	if err := f.Abort(0, "a"); err != nil {
		t.Fatal(err)
	}
	if c, err := conns[0].Receive(); err != nil || !reflect.DeepEqual(c.Abort, []string{"a"}) {
		t.Errorf("%+v, %v", c, err)
	}
}

func TestLastWord(t *testing.T) {
	f, conns := group(t, FrontendConfig{Ranks: 2})
	messages := serve(t, f)
	if err := conns[1].Send([]byte("batch")); err != nil {
		t.Fatal(err)
	}
	if err := conns[1].Close(); err != nil {
		t.Fatal(err)
	}
	if got := next(t, messages); string(got[0]) != "batch" {
		t.Errorf("%q", got)
	}
	if _, err := tokenspeed.Split(next(t, messages)); !errors.Is(err, tokenspeed.ErrEngineDead) {
		t.Errorf("the last word means %v", err)
	}
}

// Nothing tells of a rank that was killed but the attempt to send it something.
func TestKilledRankIsUnreachable(t *testing.T) {
	f, conns := group(t, FrontendConfig{Ranks: 2})
	messages := serve(t, f)
	if err := conns[0].Kill(); err != nil {
		t.Fatal(err)
	}
	for deadline := time.Now().Add(patience); ; time.Sleep(time.Millisecond) {
		err := f.Abort(0, "a")
		if errors.Is(err, ErrUnreachable) {
			break
		}
		if err != nil || time.Now().After(deadline) {
			t.Fatalf("the killed rank takes commands: %v", err)
		}
	}
	if err := f.Abort(1, "a"); err != nil {
		t.Errorf("the other rank: %v", err)
	}
	if err := conns[1].Send([]byte("batch")); err != nil {
		t.Fatal(err)
	}
	if got := next(t, messages); string(got[0]) != "batch" {
		t.Errorf("the first word after the death: %q", got)
	}
}

func TestRankThatTheGroupDoesNotHave(t *testing.T) {
	f, _ := group(t, FrontendConfig{})
	for _, rank := range []int{-1, 1, 65_536} {
		if err := f.Add(rank, Request{ID: "a", Prompt: []int64{1}}); !errors.Is(err, ErrUnreachable) {
			t.Errorf("rank %d: %v", rank, err)
		}
	}
}

func TestClosedIsClosed(t *testing.T) {
	f, conns := group(t, FrontendConfig{})
	f.Close()
	f.Close()
	if err := f.Abort(0, "a"); !errors.Is(err, ErrClosed) {
		t.Errorf("Abort: %v", err)
	}
	if err := f.Serve(func([][]byte) {}); err != nil {
		t.Errorf("Serve: %v", err)
	}
	c := conns[0]
	received := make(chan error)
	go func() {
		_, err := c.Receive() // most likely it waits when Kill comes
		received <- err
	}()
	c.Kill()
	c.Close()
	if err := <-received; !errors.Is(err, ErrClosed) {
		t.Errorf("Receive: %v", err)
	}
	if err := c.Send(nil); !errors.Is(err, ErrClosed) {
		t.Errorf("Send: %v", err)
	}
}

// A frontend that does not read makes the rank wait, and must not keep it from
// ending.
func TestStalledFrontendDoesNotKeepARank(t *testing.T) {
	f, conns := group(t, FrontendConfig{})
	_ = f // not served
	sent := make(chan error)
	go func() {
		payload := make([]byte, 1<<20)
		for {
			if err := conns[0].Send(payload); err != nil {
				sent <- err
				return
			}
		}
	}()
	conns[0].Kill()
	if err := <-sent; !errors.Is(err, ErrClosed) {
		t.Errorf("Send: %v", err)
	}
}

func TestAcceptSaysWhomItWaitsFor(t *testing.T) {
	f := listen(t, FrontendConfig{Ranks: 3})
	ctx, cancel := context.WithCancel(t.Context())
	accepted := make(chan error)
	go func() {
		_, err := f.Accept(ctx)
		accepted <- err
	}()
	c, err := Dial(testContext(t), DialConfig{Handshake: f.Endpoint(), EngineIndex: 1})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Kill()
	cancel()
	if err := <-accepted; !errors.Is(err, context.Canceled) || !strings.Contains(err.Error(), "ranks 0") || !strings.Contains(err.Error(), "2") {
		t.Errorf("%v", err)
	}
}

func TestAcceptEndsWithTheFrontend(t *testing.T) {
	f := listen(t, FrontendConfig{})
	accepted := make(chan error)
	go func() {
		_, err := f.Accept(t.Context())
		accepted <- err
	}()
	f.Close()
	if err := <-accepted; !errors.Is(err, ErrClosed) {
		t.Errorf("%v", err)
	}
}

// dealer dials like a rank and sends what it is told.
func dealer(t *testing.T, endpoint, identity string, messages ...string) {
	t.Helper()
	zctx, err := zmq.NewContext()
	if err != nil {
		t.Fatal(err)
	}
	s, err := zctx.NewSocket(zmq.DEALER)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close(); zctx.Term() })
	for _, err := range []error{s.SetLinger(0), s.SetIdentity(identity), s.Connect(endpoint)} {
		if err != nil {
			t.Fatal(err)
		}
	}
	for _, m := range messages {
		if _, err := s.Send(m, 0); err != nil {
			t.Fatal(err)
		}
	}
}

func TestStrangersDoNotKeepAGroupFromMeeting(t *testing.T) {
	f := listen(t, FrontendConfig{FirstIndex: 3})
	hello := string(appendStatus(nil, statusHello))
	dealer(t, f.Endpoint(), "somebody", hello)
	dealer(t, f.Endpoint(), string(identityOf(2)), hello)
	dealer(t, f.Endpoint(), string(identityOf(4)), hello, "\xc1")
	accepted := make(chan error)
	go func() {
		_, err := f.Accept(testContext(t))
		accepted <- err
	}()
	c, err := Dial(testContext(t), DialConfig{Handshake: f.Endpoint(), EngineIndex: 3})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Kill()
	if err := <-accepted; err != nil {
		t.Error(err)
	}
}

func TestDialWithoutAFrontendEndsWithItsContext(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	f := listen(t, FrontendConfig{}) // there, and not accepting
	if _, err := Dial(ctx, DialConfig{Handshake: f.Endpoint()}); !errors.Is(err, context.Canceled) {
		t.Errorf("%v", err)
	}
}

// Somebody else may have the first HELLO: a frontend that was about to close.
func TestDialCallsAgain(t *testing.T) {
	f := listen(t, FrontendConfig{})
	dialled := make(chan *Conn, 1)
	go func() {
		c, err := Dial(testContext(t), DialConfig{Handshake: f.Endpoint()})
		if err != nil {
			t.Error(err)
		}
		dialled <- c
	}()
	f.handshake.mu.Lock()
	_, _, err := f.handshake.fromRankLocked()
	f.handshake.mu.Unlock()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.Accept(testContext(t)); err != nil {
		t.Fatal(err)
	}
	if c := <-dialled; c != nil {
		c.Kill()
	}
}

func TestBadConfig(t *testing.T) {
	for _, endpoint := range []string{"127.0.0.1:1", "ipc:///tmp/x", "tcp://127.0.0.1", "tcp://*:5570", "tcp://0.0.0.0:5570", "tcp://[::]:5570", "tcp://:5570"} {
		if _, err := Listen(FrontendConfig{Endpoint: endpoint}); err == nil {
			t.Errorf("endpoint %s was accepted", endpoint)
		}
	}
	for _, c := range []FrontendConfig{{Ranks: -1}, {FirstIndex: -1}, {FirstIndex: 65_535, Ranks: 2}} {
		if _, err := Listen(c); err == nil {
			t.Errorf("%+v was accepted", c)
		}
	}
	f := listen(t, FrontendConfig{})
	if _, err := Listen(FrontendConfig{Endpoint: f.Endpoint()}); err == nil {
		t.Error("a port was bound twice")
	}
	for _, c := range []DialConfig{{EngineIndex: -1}, {EngineIndex: 65_536}, {Handshake: "nowhere"}} {
		if _, err := Dial(t.Context(), c); err == nil {
			t.Errorf("%+v was accepted", c)
		}
	}
}

// A rank that has left may come again before its group is complete. A second one of
// its index must not, and nor is it to wait in silence.
func TestRankThatComesTwice(t *testing.T) {
	f := listen(t, FrontendConfig{Ranks: 2, FirstIndex: 7})
	f.handshake.mu.Lock()
	defer f.handshake.mu.Unlock()
	f.input.mu.Lock()
	defer f.input.mu.Unlock()
	ranks := make([]rankState, 2)
	dial := func(ctx context.Context) <-chan *Conn {
		dialled := make(chan *Conn, 1)
		go func() {
			c, err := Dial(ctx, DialConfig{Handshake: f.Endpoint(), EngineIndex: 8})
			if err != nil && ctx.Err() == nil {
				t.Error(err)
			}
			dialled <- c
		}()
		return dialled
	}
	// A rank that comes back while libzmq is still closing the line of the one before has
	// dialled a line that is never read. It has to come once more, as one does that is
	// restarted again.
	if err := f.input.SetRcvtimeo(5 * time.Second); err != nil {
		t.Fatal(err)
	}
	meet := func() *Conn {
		for deadline := time.Now().Add(patience); ; {
			dialled := dial(testContext(t))
			for ranks[1] = (rankState{}); !ranks[1].ready; {
				if err := f.greetLocked(ranks); err != nil {
					t.Fatal(err)
				}
			}
			err := f.registerLocked(ranks)
			c := <-dialled
			if err == nil {
				return c
			}
			c.Kill()
			if !errors.Is(err, ErrStalled) || time.Now().After(deadline) {
				t.Fatal(err)
			}
		}
	}
	first := meet()
	first.Kill()
	for deadline := time.Now().Add(patience); f.reachableLocked(identityOf(8)); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("the killed rank stays")
		}
	}
	second := meet()
	defer second.Kill()

	ctx, cancel := context.WithCancel(testContext(t))
	third := dial(ctx)
	if err := f.greetLocked(ranks); !errors.Is(err, ErrSameIndex) || !strings.Contains(err.Error(), "index: 8") {
		t.Errorf("%v", err)
	}
	if c, err := second.Receive(); err != nil || c.Add != nil || len(c.Abort) != 0 {
		t.Errorf("the one that was there is told %+v, %v", c, err)
	}
	cancel()
	if c := <-third; c != nil {
		c.Kill()
		t.Error("a second rank of one index was taken")
	}
}

func TestRankMissesItsFrontend(t *testing.T) {
	f, conns := group(t, FrontendConfig{Ranks: 2})
	for rank, c := range conns {
		select {
		case <-c.Gone():
			t.Errorf("rank %d misses a frontend that is there", rank)
		default:
		}
	}
	f.Close()
	for rank, c := range conns {
		select {
		case <-c.Gone():
		case <-time.After(patience):
			t.Errorf("rank %d does not miss its frontend", rank)
		}
	}
}

func TestRankMissesAFrontendThatWasNeverAtItsAddress(t *testing.T) {
	f := listen(t, FrontendConfig{})
	f.init = appendInit(nil, addresses{input: "tcp://127.0.0.1:1", output: "tcp://127.0.0.1:1"})
	ctx, cancel := context.WithCancel(testContext(t))
	accepted := make(chan error)
	go func() {
		_, err := f.Accept(ctx)
		accepted <- err
	}()
	c, err := Dial(testContext(t), DialConfig{Handshake: f.Endpoint()})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Kill()
	select {
	case <-c.Gone():
	case <-time.After(patience):
		t.Error("the rank waits for ever")
	}
	cancel()
	<-accepted
}
