package simengine

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"net/http"
	"reflect"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/plimsoll-go/plimsoll/snapshot"
)

// untilGarbage reads until n broken messages have come, and returns how many good
// ones came after the first of them.
func (s *subscription) untilGarbage(t *testing.T, n int) (good int) {
	t.Helper()
	for broken := 0; broken < n; {
		if _, err := read(s.frames(t)); err != nil {
			broken++
		} else if broken > 0 {
			good++
		}
	}
	return good
}

// untilGood reads until a message makes sense.
func (s *subscription) untilGood(t *testing.T) reading {
	t.Helper()
	for {
		if r, err := read(s.frames(t)); err == nil {
			return r
		}
	}
}

// endless is more broken messages than a test reads.
const endless = 1 << 30

func TestMutedEngineServesButPublishesNothing(t *testing.T) {
	e := fast(t, Config{Wire: WireLoadSnapshot})
	s := subscribe(t, e.LoadEndpoints()[0])
	s.next(t)
	if err := e.Mute(0); err != nil {
		t.Fatal(err)
	}
	// Broken messages get through a mute and show that the link is up. At their pace,
	// 100 of them leave time for a good one to come between.
	if err := e.Garbage(endless); err != nil {
		t.Fatal(err)
	}
	if good := s.untilGarbage(t, 100); good != 0 {
		t.Errorf("%d good messages from a muted engine", good)
	}
	if r := post(t, e.URL()+textPath, `{"prompt":"a"}`); r.status != http.StatusOK {
		t.Errorf("status %d from a muted engine", r.status)
	}
	if loads := loadsOf(t, e, ""); len(loads) != 1 {
		t.Errorf("loads of a muted engine: %v", loads)
	}
	if err := e.Unmute(); err != nil {
		t.Fatal(err)
	}
	s.untilGood(t)
}

func TestMuteEndsByItself(t *testing.T) {
	e := fast(t, Config{Wire: WireLoadSnapshot})
	s := subscribe(t, e.LoadEndpoints()[0])
	s.next(t)
	if err := e.Mute(200 * time.Millisecond); err != nil {
		t.Fatal(err)
	}
	if err := e.Garbage(endless); err != nil {
		t.Fatal(err)
	}
	s.untilGarbage(t, 1)
	s.untilGood(t)
}

func TestOneRankIsMutedAndTheOthersGoOn(t *testing.T) {
	e := fast(t, Config{Wire: WireLoadSnapshot, Ranks: 2})
	endpoints := e.LoadEndpoints()
	muted, other := subscribe(t, endpoints[0]), subscribe(t, endpoints[1])
	muted.next(t)
	if err := e.MuteRank(0, 0); err != nil {
		t.Fatal(err)
	}
	if err := e.Garbage(endless); err != nil {
		t.Fatal(err)
	}
	if good := muted.untilGarbage(t, 100); good != 0 {
		t.Errorf("%d good messages from a muted rank", good)
	}
	other.untilGood(t)
	if err := e.Unmute(); err != nil {
		t.Fatal(err)
	}
	muted.untilGood(t)
}

func TestFloodGoesOnWithoutAPause(t *testing.T) {
	for _, wire := range []Wire{WireLoadStat, WireLoadSnapshot} {
		e := fast(t, Config{Wire: wire})
		s := subscribe(t, e.LoadEndpoints()[0])
		s.next(t)
		if err := e.Flood(time.Hour); err != nil {
			t.Fatal(err)
		}
		// At its usual pace an idle engine takes minutes over these.
		s.until(t, func(r reading) bool { return r.seq >= 2000 })
		if err := e.Flood(0); err != nil {
			t.Fatal(err)
		}
	}
}

func TestFrozenEngineTakesConnectionsAndDoesNothing(t *testing.T) {
	e := start(t, Config{Wire: WireLoadSnapshot, Admin: "127.0.0.1:0", Speed: standstill}) // until it is told otherwise
	s := subscribe(t, e.LoadEndpoints()[0])
	s.next(t)
	ctx := testContext(t)
	type answer struct {
		response
		err error
	}
	ask := func(body string) <-chan answer {
		answered := make(chan answer, 1)
		go func() {
			r, err := do(ctx, http.MethodPost, e.URL()+textPath, body)
			answered <- answer{r, err}
		}()
		return answered
	}
	before := ask(`{"prompt":"a","max_tokens":200}`)
	s.until(t, func(r reading) bool { running, _ := r.counts(); return running == 1 })
	if err := e.Freeze(); err != nil {
		t.Fatal(err)
	}
	if err := e.Garbage(endless); err != nil { // what it was told is done when it thaws
		t.Fatal(err)
	}
	if err := e.SetSpeed(20 / standstill); err != nil { // and so is this
		t.Fatal(err)
	}
	during := ask(`{"prompt":"a","max_tokens":1}`)
	impatient, cancel := context.WithTimeout(ctx, 300*time.Millisecond)
	defer cancel()
	if _, err := do(impatient, http.MethodGet, e.URL()+"/health", ""); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("a frozen engine was asked for its health: %v, want %v", err, context.DeadlineExceeded)
	}
	select {
	case a := <-before:
		t.Errorf("a frozen engine went on: %v, %v", a.status, a.err)
	case a := <-during:
		t.Errorf("a frozen engine answered: %v, %v", a.status, a.err)
	default:
	}
	if r := post(t, e.AdminURL()+"/sim/thaw", ""); r.status != http.StatusAccepted {
		t.Fatalf("thaw: status %d", r.status)
	}
	for name, c := range map[string]<-chan answer{"before": before, "during": during} {
		if a := <-c; a.err != nil || a.status != http.StatusOK {
			t.Errorf("asked %s the freeze: %v, %v", name, a.status, a.err)
		}
	}
	s.untilGarbage(t, 1)
	s.untilGood(t)
}

// What is frozen can be killed, and comes back well.
func TestFrozenEngineDies(t *testing.T) {
	e := fast(t, Config{})
	if err := e.Freeze(); err != nil {
		t.Fatal(err)
	}
	leave := inBackground(t, e, `{"prompt":"a"}`)
	if err := e.Restart(0); err != nil {
		t.Fatal(err)
	}
	leave()
	if r := post(t, e.URL()+textPath, `{"prompt":"a"}`); r.status != http.StatusOK {
		t.Errorf("status %d after a restart", r.status)
	}
	e.Die()
	if err := errors.Join(e.Freeze(), e.Thaw()); !errors.Is(err, ErrDead) {
		t.Errorf("freezing a dead engine: %v, want %v", err, ErrDead)
	}
}

func TestDeadEngineCutsRefusesAndForgets(t *testing.T) {
	e := start(t, Config{Speed: standstill})
	streaming := make(chan error, 1)
	waiting := make(chan error, 1)
	body := func(stream string) string { return `{"prompt":"a","max_tokens":3,"stream":` + stream + `}` }
	ctx := testContext(t)
	go func() { _, err := do(ctx, http.MethodPost, e.URL()+textPath, body("true")); streaming <- err }()
	go func() { _, err := do(ctx, http.MethodPost, e.URL()+textPath, body("false")); waiting <- err }()
	subscribe(t, e.LoadEndpoints()[0]).until(t, func(r reading) bool {
		running, waiting := r.counts() // the second one is too late for the first step, or not
		return running+waiting == 2
	})

	e.Die()
	e.Die()
	for name, c := range map[string]chan error{"streamed": streaming, "whole": waiting} {
		if err := <-c; err == nil || ctx.Err() != nil {
			t.Errorf("a %s answer survived: %v", name, err)
		}
	}
	if _, err := do(ctx, http.MethodGet, e.URL()+"/health", ""); !errors.Is(err, syscall.ECONNREFUSED) {
		t.Errorf("a new connection: %v, want it refused", err)
	}
	if e.Alive() || e.Loads() != nil || e.LoadEndpoints() != nil || e.Totals().Added != 0 {
		t.Error("a dead engine tells of load")
	}
	for name, err := range map[string]error{"Mute": e.Mute(0), "Unmute": e.Unmute(), "Garbage": e.Garbage(1), "FailNext": e.FailNext(1, FailCut)} {
		if !errors.Is(err, ErrDead) {
			t.Errorf("%s of a dead engine: %v, want %v", name, err, ErrDead)
		}
	}
	if err := e.SetSpeed(1); err != nil {
		t.Errorf("SetSpeed of a dead engine: %v", err)
	}
}

// A client must be able to tell half a stream from a whole one.
func TestStreamOfADyingEngineDoesNotEndProperly(t *testing.T) {
	e := start(t, Config{})
	req, err := http.NewRequestWithContext(testContext(t), http.MethodPost, e.URL()+textPath,
		strings.NewReader(`{"prompt":"a","max_tokens":100000,"stream":true}`))
	if err != nil {
		t.Fatal(err)
	}
	resp, err := client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	lines := bufio.NewReader(resp.Body)
	if _, err := lines.ReadString('\n'); err != nil {
		t.Fatal(err)
	}
	e.Die()
	rest, err := io.ReadAll(lines)
	if err == nil || strings.Contains(string(rest), "[DONE]") {
		t.Errorf("the stream ended with %v", err)
	}
}

func TestRestartedEngineIsBackOnItsPorts(t *testing.T) {
	e := start(t, Config{Wire: WireLoadSnapshot, Speed: standstill})
	url, endpoints := e.URL(), e.LoadEndpoints()
	inBackground(t, e, `{"prompt":"a"}`)
	untilLoad(t, e, 1, 0)
	s := subscribe(t, endpoints[0])
	last := s.until(t, func(r reading) bool { return r.seq >= 5 }).seq

	// The subscriber may be slow to reconnect, and then finds a seq higher than the
	// one it left.
	for back := false; !back; {
		if err := e.Restart(0); err != nil {
			t.Fatal(err)
		}
		for range 20 {
			if r := s.next(t); r.seq < last {
				back = true
				if r.Snapshot.NumRunningReqs != 0 {
					t.Errorf("the engine remembers %d requests", r.Snapshot.NumRunningReqs)
				}
				break
			}
		}
	}
	if e.URL() != url || e.LoadEndpoints()[0] != endpoints[0] || !e.Alive() {
		t.Errorf("back at %s and %v, was at %s and %v", e.URL(), e.LoadEndpoints(), url, endpoints)
	}
	if r := get(t, url+"/health"); r.status != http.StatusOK {
		t.Errorf("status %d", r.status)
	}
}

func TestRestartWithOtherRanksMovesTheLoadPorts(t *testing.T) {
	e := fast(t, Config{Ranks: 2, Wire: WireLoadSnapshot})
	for _, ranks := range []int{4, 1, 0} {
		if err := e.Restart(ranks); err != nil {
			t.Fatal(err)
		}
		want := max(ranks, 1)
		endpoints := e.LoadEndpoints()
		if len(endpoints) != want || len(loadsOf(t, e, "")) != want {
			t.Fatalf("restart with %d ranks: endpoints %v", ranks, endpoints)
		}
		for rank, endpoint := range endpoints {
			if r := subscribe(t, endpoint).next(t); r.Kind != snapshot.KindLoadSnapshot || r.Snapshot.DPRank != int64(rank) {
				t.Errorf("rank %d publishes as %d", rank, r.Snapshot.DPRank)
			}
		}
	}
	for _, ranks := range []int{-1, maxRanks + 1} {
		if err := e.Restart(ranks); err == nil || !e.Alive() {
			t.Errorf("restart with %d ranks: %v, alive %v", ranks, err, e.Alive())
		}
	}
}

func TestEngineComesBackWithOtherFlags(t *testing.T) {
	e := fast(t, Config{Ranks: 2, Wire: WireLoadSnapshot})
	base, release, err := ClaimPorts("127.0.0.1", 4)
	if err != nil {
		t.Fatal(err)
	}
	defer release()
	restart := func(change func(*Config)) {
		t.Helper()
		if err := e.RestartWith(change); err != nil {
			t.Fatal(err)
		}
	}
	// A load range with a place of its own does not move with the number of ranks.
	restart(func(c *Config) { c.LoadPortBase = base })
	restart(func(c *Config) { c.Ranks = 3 })
	endpoints := e.LoadEndpoints()
	if want := fmt.Sprintf("tcp://127.0.0.1:%d", base); len(endpoints) != 3 || endpoints[0] != want {
		t.Errorf("endpoints %v, want three from %s on", endpoints, want)
	}
	if !bytes.Contains(get(t, e.URL()+"/server_info").body, fmt.Appendf(nil, `"load_endpoint_port_base":%d`, base)) {
		t.Error("/server_info does not say where")
	}
	subscribe(t, endpoints[2]).untilGood(t)
	restart(func(c *Config) { c.NoLoadSocket = true })
	if endpoints := e.LoadEndpoints(); len(endpoints) != 0 {
		t.Errorf("endpoints %v, want none", endpoints)
	}
	if err := e.RestartWith(func(c *Config) { c.Ranks = -1 }); err == nil || !e.Alive() {
		t.Errorf("a configuration without sense: %v, alive %v", err, e.Alive())
	}
	if err := e.RestartWith(func(c *Config) { c.NoLoadSocket, c.LoadPortBase = false, maxPort-1 }); err == nil || e.Alive() {
		t.Errorf("load ports that there are not: %v, alive %v", err, e.Alive())
	}
}

func TestTraceTellsWhatHappens(t *testing.T) {
	var mu sync.Mutex
	sent := map[int64]int64{} // running requests by seq
	ends := map[string][]bool{}
	accepted := make(chan string, 10)
	e := start(t, Config{Wire: WireLoadSnapshot, TimeScale: 10, Trace: &Trace{
		Report: func(rank int, seq int64, load *snapshot.LoadSnapshot) {
			mu.Lock()
			defer mu.Unlock()
			sent[seq] = load.NumRunningReqs
		},
		Accepted: func(id string, rank int) { accepted <- id },
		Ended: func(id string, whole bool) {
			mu.Lock()
			defer mu.Unlock()
			ends[id] = append(ends[id], whole)
		},
	}})
	if r := post(t, e.URL()+textPath, `{"prompt":"a","stream":true}`, "X-Request-Id: well"); r.status != http.StatusOK {
		t.Fatalf("status %d", r.status)
	}
	if id := <-accepted; id != "well" {
		t.Errorf("%q was accepted", id)
	}
	if r := post(t, e.URL()+textPath, `{"prompt":1}`, "X-Request-Id: bad"); r.status != http.StatusBadRequest {
		t.Fatalf("status %d", r.status)
	}
	cut := make(chan error, 1)
	go func() {
		_, err := do(testContext(t), http.MethodPost, e.URL()+textPath, `{"prompt":"a","max_tokens":100000}`, "X-Request-Id: cut")
		cut <- err
	}()
	if id := <-accepted; id != "cut" {
		t.Errorf("%q was accepted", id)
	}
	m := untilLoad(t, e, 1, 0)
	e.Die()
	if err := <-cut; err == nil {
		t.Error("an answer survived the engine")
	}
	mu.Lock()
	defer mu.Unlock()
	if n, ok := sent[m.seq]; !ok || n != 1 {
		t.Errorf("message %d was sent with %d running, %v", m.seq, n, ok)
	}
	if want := map[string][]bool{"well": {true}, "cut": {false}}; !reflect.DeepEqual(ends, want) {
		t.Errorf("ended: %v, want %v", ends, want)
	}
	if want := strings.Fields(Text(3)); !slices.Equal(want, words[:3]) {
		t.Errorf("three tokens are %q", want)
	}
}

func TestSpeedSurvivesARestart(t *testing.T) {
	e := fast(t, Config{})
	if err := e.SetSpeed(standstill); err != nil {
		t.Fatal(err)
	}
	if err := e.Restart(0); err != nil {
		t.Fatal(err)
	}
	for _, r := range e.life.Load().ranks {
		if got, want := r.currentSpeed(), 10_000*standstill; got != want {
			t.Errorf("speed %v, want %v", got, want)
		}
	}
	for _, factor := range []float64{0, -1, math.Inf(1)} {
		if err := e.SetSpeed(factor); err == nil {
			t.Errorf("speed %v was accepted", factor)
		}
	}
}

func TestNextRequestsFail(t *testing.T) {
	e := fast(t, Config{})
	ask := func() (response, error) {
		return do(testContext(t), http.MethodPost, e.URL()+textPath, `{"prompt":"a","max_tokens":1}`)
	}
	if err := e.FailNext(2, FailError); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if r, err := ask(); err != nil || r.status != http.StatusInternalServerError || r.errorCode(t) != "simulated_failure" {
			t.Errorf("status %d, %v", r.status, err)
		}
	}
	if r, err := ask(); err != nil || r.status != http.StatusOK {
		t.Errorf("after the failures: status %d, %v", r.status, err)
	}
	if err := e.FailNext(1, FailCut); err != nil {
		t.Fatal(err)
	}
	if _, err := ask(); !errors.Is(err, io.EOF) {
		t.Errorf("a cut connection: %v, want %v", err, io.EOF)
	}
	if r, err := ask(); err != nil || r.status != http.StatusOK {
		t.Errorf("after the cut: status %d, %v", r.status, err)
	}
	if err := e.FailNext(5, FailCut); err != nil {
		t.Fatal(err)
	}
	if err := e.FailNext(0, FailCut); err != nil {
		t.Fatal(err)
	}
	if r, err := ask(); err != nil || r.status != http.StatusOK {
		t.Errorf("after taking it back: status %d, %v", r.status, err)
	}
}

// untilAlive polls, since a fault ordered over HTTP happens after the answer.
func untilAlive(t *testing.T, e *Engine, alive bool) {
	t.Helper()
	for ctx := testContext(t); ; {
		_, err := do(ctx, http.MethodGet, e.URL()+"/health", "")
		if (err == nil) == alive && e.Alive() == alive {
			return
		}
		if ctx.Err() != nil {
			t.Fatalf("the engine is still alive=%v", e.Alive())
		}
	}
}

func TestFaultsOverHTTP(t *testing.T) {
	e := fast(t, Config{Admin: "127.0.0.1:0", Wire: WireLoadSnapshot})
	order := func(url, fault string, status int) {
		t.Helper()
		if r := post(t, url+"/sim/"+fault, ""); r.status != status {
			t.Errorf("%s: status %d, want %d: %s", fault, r.status, status, r.body)
		}
	}
	s := subscribe(t, e.LoadEndpoints()[0])
	s.next(t)
	order(e.URL(), "mute?for=1h", http.StatusAccepted)
	order(e.AdminURL(), "garbage?n=1000000", http.StatusAccepted)
	if good := s.untilGarbage(t, 60); good != 0 {
		t.Errorf("%d good messages from a muted engine", good)
	}
	order(e.AdminURL(), "garbage?n=0", http.StatusAccepted)
	order(e.AdminURL(), "unmute", http.StatusAccepted)
	s.untilGood(t)
	order(e.URL(), "mute?rank=0", http.StatusAccepted)
	order(e.URL(), "unmute", http.StatusAccepted)
	order(e.URL(), "flood?for=1ms", http.StatusAccepted)
	order(e.URL(), "freeze", http.StatusAccepted)
	order(e.AdminURL(), "thaw", http.StatusAccepted)
	order(e.URL(), "freeze?for=1ms", http.StatusAccepted)
	order(e.URL(), "slow?factor=0.25", http.StatusAccepted)
	if got := e.life.Load().ranks[0].currentSpeed(); got != 2500 {
		t.Errorf("speed %v, want 2500", got)
	}
	order(e.URL(), "fail", http.StatusAccepted)
	if r := post(t, e.URL()+textPath, `{"prompt":"a"}`); r.status != http.StatusInternalServerError {
		t.Errorf("status %d, want the failure", r.status)
	}
	order(e.URL(), "die", http.StatusAccepted)
	untilAlive(t, e, false)
	order(e.AdminURL(), "garbage", http.StatusConflict)
	order(e.AdminURL(), "freeze", http.StatusConflict)
	order(e.AdminURL(), "restart?ranks=2&down=1ms", http.StatusAccepted)
	untilAlive(t, e, true)
	if n := len(e.LoadEndpoints()); n != 2 {
		t.Errorf("%d ranks, want 2", n)
	}
	order(e.URL(), "die?for=1ms", http.StatusAccepted)
	untilAlive(t, e, true)
	for _, bad := range []string{"mute?for=long", "mute?rank=all", "flood?for=x", "freeze?for=x", "die?for=-1s", "restart?down=x", "restart?ranks=-1", "restart?ranks=9999",
		"garbage?n=x", "slow", "slow?factor=0", "slow?factor=NaN", "fail?n=-1", "fail?how=softly"} {
		order(e.AdminURL(), bad, http.StatusBadRequest)
	}
}

func TestCloseDuringFaults(t *testing.T) {
	e := fast(t, Config{Admin: "127.0.0.1:0"})
	for range 3 {
		post(t, e.AdminURL()+"/sim/restart?down=1h", "")
	}
	closed := make(chan error, 2)
	go func() { closed <- e.Close() }()
	go func() { closed <- e.Close() }()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	for range 2 {
		select {
		case err := <-closed:
			if err != nil {
				t.Error(err)
			}
		case <-ctx.Done():
			t.Fatal("Close hangs")
		}
	}
	if err := e.Restart(0); !errors.Is(err, ErrClosed) {
		t.Errorf("Restart after Close: %v, want %v", err, ErrClosed)
	}
	e.Die()
	if e.Alive() {
		t.Error("alive after Close")
	}
}
