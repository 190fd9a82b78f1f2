package traffic

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/plimsoll-go/plimsoll/examples/internal/simengine"
	"github.com/plimsoll-go/plimsoll/examples/soak/internal/check"
	"github.com/plimsoll-go/plimsoll/examples/soak/internal/truth"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// scene is two engines that are listed and well, and a gateway that does what the test
// says.
type scene struct {
	*testing.T
	world   *truth.World
	a, b    *truth.Engine
	list    *check.List
	checks  Checks
	traffic *Traffic
}

func stage(t *testing.T, gateway func(s *scene, w http.ResponseWriter, r *http.Request)) *scene {
	s := &scene{T: t, world: truth.NewWorld("http://a", "http://b"), list: check.NewList(time.Now())}
	s.a, s.b = s.world.Engines[0], s.world.Engines[1]
	s.a.Lives(1)
	s.b.Lives(1)
	if err := s.world.List.Write([]string{"http://a", "http://b"}, func() error { return nil }); err != nil {
		t.Fatal(err)
	}
	s.checks = NewChecks(s.list, 1)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { gateway(s, w, r) }))
	t.Cleanup(server.Close)
	s.traffic = New(Config{
		Name: "gateway a", URL: server.URL, Rate: 200, World: s.world, Checks: s.checks,
		Silence: 20 * time.Millisecond, Settle: 0, List: time.Millisecond, Bound: 10 * time.Minute, Birth: 10 * time.Minute,
	})
	t.Cleanup(s.traffic.client.CloseIdleConnections)
	return s
}

// accept has an engine take the request that is being served, and says that it will
// answer it.
func accept(s *scene, w http.ResponseWriter, r *http.Request, e *truth.Engine) (id string) {
	id = r.Header.Get("X-Request-Id")
	s.world.Requests.Accepted(e, id)
	w.Header().Set("X-Plimsoll-Worker", e.ID)
	return id
}

// answer answers as an engine does.
func answerTo(w http.ResponseWriter, r *http.Request) {
	var req struct {
		Stream bool  `json:"stream"`
		Tokens int64 `json:"max_tokens"`
	}
	if err := json.NewDecoder(r.Body).Decode(&req); err != nil {
		panic(err)
	}
	if !req.Stream {
		fmt.Fprintf(w, `{"choices":[{"text":%q,"finish_reason":"length"}]}`, simengine.Text(req.Tokens))
		return
	}
	text := simengine.Text(req.Tokens)
	fmt.Fprintf(w, "data: {\"choices\":[{\"text\":%q}]}\n\n", text[:len(text)/2])
	_ = http.NewResponseController(w).Flush()
	fmt.Fprintf(w, "data: {\"choices\":[{\"text\":%q}]}\n\n", text[len(text)/2:])
	fmt.Fprint(w, "data: {\"choices\":[{\"text\":\"\",\"finish_reason\":\"length\"}]}\n\ndata: [DONE]\n\n")
}

// untilLeft waits until the client has left, which a server only notices when it has
// read the request.
func untilLeft(r *http.Request) {
	_, _ = io.Copy(io.Discard, r.Body)
	<-r.Context().Done()
}

func refuse(w http.ResponseWriter, status int, code string) {
	w.WriteHeader(status)
	fmt.Fprintf(w, `{"error":{"code":%q}}`, code)
}

// well answers as a gateway does that has an engine.
func well(s *scene, w http.ResponseWriter, r *http.Request) {
	id := accept(s, w, r, s.a)
	answerTo(w, r)
	s.world.Requests.Ended(s.a, id, true)
}

var (
	whole    = request{id: "1", output: 5}
	streamed = request{id: "2", output: 5, stream: true, chat: true}
)

// ask sends both kinds of request and returns what became of them.
func (s *scene) ask() map[Outcome]int {
	s.traffic.one(whole)
	s.traffic.one(streamed)
	return s.traffic.Tally().Outcomes
}

// broke checks that these checks were broken, and no others.
func (s *scene) broke(checks ...*check.Check) {
	s.Helper()
	for _, r := range s.list.Results() {
		want := false
		for _, c := range checks {
			want = want || c.Name == r.Name
		}
		if want != (r.Broken > 0) {
			s.Errorf("%q was broken %d times, want it %v:\n%s", r.Name, r.Broken, want, strings.Join(r.First, "\n"))
		}
	}
}

func TestAnswersThatAreRightBreakNothing(t *testing.T) {
	s := stage(t, well)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var running sync.WaitGroup
	running.Go(func() { s.traffic.Run(ctx) })
	for s.traffic.Tally().Requests() < 100 {
		time.Sleep(time.Millisecond)
	}
	cancel()
	running.Wait()
	s.broke()
	tally := s.traffic.Tally()
	answered := tally.Outcomes[Streamed] + tally.Outcomes[InOne]
	if answered == 0 || tally.Outcomes[LeftLater] == 0 || tally.Attempts < answered || tally.Attempts > tally.Requests() ||
		tally.Retried != 0 || tally.Excused != 0 || tally.Outcomes[Wrong] != 0 {
		t.Errorf("%+v", tally)
	}
	if sum := tally.Plus(tally); sum.Requests() != 2*tally.Requests() || sum.Attempts != 2*tally.Attempts {
		t.Errorf("twice %+v is %+v", tally, sum)
	}
}

// Each of these gateways loses what an engine has accepted.
func TestLostAnswerIsSeen(t *testing.T) {
	for name, gateway := range map[string]func(s *scene, w http.ResponseWriter, r *http.Request){
		"cut before the answer": func(s *scene, w http.ResponseWriter, r *http.Request) {
			accept(s, w, r, s.a)
			panic(http.ErrAbortHandler)
		},
		"cut within the answer": func(s *scene, w http.ResponseWriter, r *http.Request) {
			accept(s, w, r, s.a)
			fmt.Fprint(w, "data: {\"choices\":[{\"text\":\"a\"}]}\n\n")
			_ = http.NewResponseController(w).Flush()
			panic(http.ErrAbortHandler)
		},
		"ended in the middle": func(s *scene, w http.ResponseWriter, r *http.Request) {
			accept(s, w, r, s.a)
			fmt.Fprint(w, "data: {\"choices\":[{\"text\":\"a\"}]}\n\n")
		},
		"a word missing": func(s *scene, w http.ResponseWriter, r *http.Request) {
			accept(s, w, r, s.a)
			text := strings.Replace(simengine.Text(5), "ship", "boat", 1)
			if r.URL.Path == whole.path() {
				fmt.Fprintf(w, `{"choices":[{"text":%q,"finish_reason":"length"}]}`, text)
				return
			}
			fmt.Fprintf(w, "data: {\"choices\":[{\"delta\":{\"content\":%q},\"finish_reason\":\"length\"}]}\n\ndata: [DONE]\n\n", text)
		},
		"an error instead": func(s *scene, w http.ResponseWriter, r *http.Request) {
			accept(s, w, r, s.a)
			refuse(w, http.StatusBadGateway, "gateway_error")
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := stage(t, gateway)
			if got := s.ask(); got[Wrong] != 2 {
				t.Errorf("%v", got)
			}
			s.broke(s.checks.Lost, s.checks.Failed)
		})
	}
}

// The client has an answer, and an engine that is well has worked for nothing.
func TestRetryWithoutNeedIsSeen(t *testing.T) {
	s := stage(t, func(s *scene, w http.ResponseWriter, r *http.Request) {
		accept(s, w, r, s.b)
		well(s, w, r)
	})
	if got := s.ask(); got[Wrong] != 2 {
		t.Errorf("%v", got)
	}
	s.broke(s.checks.Lost)
	if text := strings.Join(s.checks.Lost.Result().First, "\n"); !strings.Contains(text, "was accepted by e01, which was well all the while") {
		t.Error(text)
	}
}

func TestAnswerOfAnEngineThatWasNotAskedIsSeen(t *testing.T) {
	s := stage(t, func(s *scene, w http.ResponseWriter, r *http.Request) {
		accept(s, w, r, s.a)
		w.Header().Set("X-Plimsoll-Worker", "http://b")
		answerTo(w, r)
	})
	if got := s.ask(); got[Wrong] != 2 {
		t.Errorf("%v", got)
	}
	s.broke(s.checks.Lost)
}

func TestEngineThatDiedOrHungIsAnExcuse(t *testing.T) {
	fault := map[string]func(e *truth.Engine){
		"died": func(e *truth.Engine) { e.Dies()(); e.Lives(1) },
		"hung": func(e *truth.Engine) {
			e.Begins(truth.Frozen)
			time.Sleep(11 * time.Millisecond)
			e.Ends(truth.Frozen)
		},
	}
	for name, suffer := range fault {
		t.Run(name, func(t *testing.T) {
			s := stage(t, func(s *scene, w http.ResponseWriter, r *http.Request) {
				accept(s, w, r, s.b)
				suffer(s.b)
				well(s, w, r)
			})
			if got := s.ask(); got[InOne] != 1 || got[Streamed] != 1 {
				t.Errorf("%v", got)
			}
			s.broke()
			if tally := s.traffic.Tally(); tally.Excused != 2 || tally.Retried != 2 {
				t.Errorf("%+v", tally)
			}

			s = stage(t, func(s *scene, w http.ResponseWriter, r *http.Request) {
				accept(s, w, r, s.b)
				w.WriteHeader(http.StatusOK)
				_ = http.NewResponseController(w).Flush()
				suffer(s.b)
				panic(http.ErrAbortHandler)
			})
			if got := s.ask(); got[CutShort] != 2 {
				t.Errorf("%v", got)
			}
			s.broke()

			s = stage(t, func(s *scene, w http.ResponseWriter, r *http.Request) {
				accept(s, w, r, s.b)
				suffer(s.b)
				refuse(w, http.StatusBadGateway, "gateway_error")
			})
			if got := s.ask(); got[Failed] != 2 {
				t.Errorf("%v", got)
			}
			s.broke()
		})
	}
}

// An engine that hangs for a moment is to be waited for.
func TestHangingForAMomentIsNoExcuse(t *testing.T) {
	s := stage(t, func(s *scene, w http.ResponseWriter, r *http.Request) {
		accept(s, w, r, s.b)
		well(s, w, r)
	})
	s.traffic.config.Silence = time.Hour
	s.b.Begins(truth.Frozen)
	if got := s.ask(); got[Wrong] != 2 {
		t.Errorf("%v", got)
	}
	s.broke(s.checks.Lost)
}

func TestRefusalIsRightOnlyWhereThereIsNoHealthyEngine(t *testing.T) {
	s := stage(t, func(s *scene, w http.ResponseWriter, r *http.Request) {
		refuse(w, http.StatusServiceUnavailable, noEngine)
	})
	s.a.Dies()()
	if got := s.ask(); got[Wrong] != 2 {
		t.Errorf("%v", got)
	}
	s.broke(s.checks.Refused)
	if text := s.checks.Refused.Result().First[0]; !strings.Contains(text, "e01 was there") {
		t.Error(text)
	}
	s = stage(t, func(s *scene, w http.ResponseWriter, r *http.Request) {
		refuse(w, http.StatusServiceUnavailable, noEngine)
	})
	s.a.Dies()()
	s.b.Begins(truth.Frozen)
	if got := s.ask(); got[NoEngine] != 2 {
		t.Errorf("%v", got)
	}
	s.broke()
}

func TestFailureOnAnEngineThatIsWellIsSeen(t *testing.T) {
	for name, gateway := range map[string]func(s *scene, w http.ResponseWriter, r *http.Request){
		"named": func(s *scene, w http.ResponseWriter, r *http.Request) {
			w.Header().Set("X-Plimsoll-Worker", "http://a")
			refuse(w, http.StatusBadGateway, "gateway_error")
		},
		"not named": func(s *scene, w http.ResponseWriter, r *http.Request) {
			refuse(w, http.StatusBadGateway, "gateway_error")
		},
		"cut": func(s *scene, w http.ResponseWriter, r *http.Request) { panic(http.ErrAbortHandler) },
		"a rank that it should have": func(s *scene, w http.ResponseWriter, r *http.Request) {
			w.Header().Set("X-Plimsoll-Worker", "http://a")
			refuse(w, http.StatusBadRequest, "rank 3: this engine has 2")
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := stage(t, gateway)
			if got := s.ask(); got[Wrong] != 2 {
				t.Errorf("%v", got)
			}
			s.broke(s.checks.Failed)
		})
	}
	s := stage(t, func(s *scene, w http.ResponseWriter, r *http.Request) {
		w.Header().Set("X-Plimsoll-Worker", "http://a")
		refuse(w, http.StatusInternalServerError, "simulated_failure")
	})
	s.a.Begins(truth.Failing)
	if got := s.ask(); got[Failed] != 2 {
		t.Errorf("%v", got)
	}
	s.broke()
}

func TestRankThatAnEngineHadUntilJustBeforeIsCountedApart(t *testing.T) {
	s := stage(t, func(s *scene, w http.ResponseWriter, r *http.Request) {
		w.Header().Set("X-Plimsoll-Worker", "http://a")
		w.WriteHeader(http.StatusBadRequest)
		fmt.Fprint(w, `{"error":{"message":"rank 3: this engine has 2"}}`)
	})
	s.a.Dies()()
	s.a.Lives(2)
	if got := s.ask(); got[RankGone] != 2 {
		t.Errorf("%v", got)
	}
	s.broke()
}

func TestRequestToAnEngineThatIsNotListedIsSeen(t *testing.T) {
	s := stage(t, well)
	if err := s.world.List.Write([]string{"http://b"}, func() error { return nil }); err != nil {
		t.Fatal(err)
	}
	time.Sleep(2 * time.Millisecond) // all have read it
	if got := s.ask(); got[Wrong] != 2 {
		t.Errorf("%v", got)
	}
	s.broke(s.checks.Listed)
}

func TestRequestThatDoesNotEndIsSeen(t *testing.T) {
	s := stage(t, func(s *scene, w http.ResponseWriter, r *http.Request) { untilLeft(r) })
	s.traffic.config.Bound = 10 * time.Millisecond
	s.ask()
	s.broke(s.checks.Ended, s.checks.Failed)
}

// Whoever leaves has no claim, whatever becomes of the request.
func TestClientThatLeavesIsNotJudged(t *testing.T) {
	s := stage(t, func(s *scene, w http.ResponseWriter, r *http.Request) {
		accept(s, w, r, s.a)
		if r.URL.Path == streamed.path() {
			answerTo(w, r)
			return
		}
		untilLeft(r)
		panic(http.ErrAbortHandler)
	})
	early, later := whole, streamed
	early.patience.time = time.Millisecond
	later.patience.events = 1
	s.traffic.one(early)
	s.traffic.one(later)
	if got := s.traffic.Tally().Outcomes; got[LeftEarly] != 1 || got[LeftLater] != 1 {
		t.Errorf("%v", got)
	}
	s.broke()
}

func TestSameSeedSameRequests(t *testing.T) {
	drawn := func(seed uint64) (all []request) {
		rng := rand.New(rand.NewPCG(seed, 0))
		for range 200 {
			all = append(all, draw(rng, "x"))
		}
		return all
	}
	a, b, c := drawn(1), drawn(1), drawn(2)
	if fmt.Sprint(a) != fmt.Sprint(b) || fmt.Sprint(a) == fmt.Sprint(c) {
		t.Error("the seed does not decide")
	}
	var stay, chat, stream, long int
	for _, r := range a {
		for _, k := range []struct {
			n  *int
			is bool
		}{{&stay, r.patience.stays()}, {&chat, r.chat}, {&stream, r.stream}, {&long, r.output > 64}} {
			if k.is {
				*k.n++
			}
		}
	}
	if stay < 120 || stay == 200 || chat < 60 || chat > 140 || stream < 90 || stream == 200 || long == 0 || long > 60 {
		t.Errorf("of 200, %d stay, %d chat, %d stream, %d are long", stay, chat, stream, long)
	}
}
