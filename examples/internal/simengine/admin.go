package simengine

import (
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"time"
)

// faultHandler serves /sim/: the faults of this engine on demand.
func (e *Engine) faultHandler() http.Handler {
	mux := http.NewServeMux()
	// A fault that ends the connection it was ordered over is returned as what to
	// do after the answer.
	handleDeadly := func(name string, fault func(url.Values) (after func(), err error)) {
		mux.HandleFunc("POST /sim/"+name, func(w http.ResponseWriter, r *http.Request) {
			after, err := fault(r.URL.Query())
			switch {
			case errors.Is(err, ErrDead):
				writeError(w, http.StatusConflict, "invalid_request_error", "engine_dead", err.Error())
			case err != nil:
				writeError(w, http.StatusBadRequest, "invalid_request_error", "bad_fault", err.Error())
			default:
				writeJSON(w, http.StatusAccepted, map[string]string{"fault": name})
				// A client that has left is no reason to go on living.
				_ = http.NewResponseController(w).Flush()
				after()
			}
		})
	}
	handle := func(name string, fault func(url.Values) error) {
		handleDeadly(name, func(q url.Values) (func(), error) { return func() {}, fault(q) })
	}
	handle("mute", func(q url.Values) error {
		d, err := durationOf(q, "for")
		if err != nil {
			return err
		}
		rank, err := intOf(q, "rank", allRanks)
		if err != nil {
			return err
		}
		return e.MuteRank(rank, d)
	})
	handle("unmute", func(url.Values) error { return e.Unmute() })
	handleDeadly("die", func(q url.Values) (func(), error) {
		d, err := durationOf(q, "for")
		return func() { e.dieFor(d) }, err
	})
	handleDeadly("restart", func(q url.Values) (func(), error) {
		down, err := durationOf(q, "down")
		if err != nil {
			return nil, err
		}
		ranks, err := intOf(q, "ranks", 0)
		if err != nil {
			return nil, err
		}
		if ranks > maxRanks {
			return nil, fmt.Errorf("ranks=%d: want at most %d", ranks, maxRanks)
		}
		return func() { e.restart(down, ranks) }, nil
	})
	handle("garbage", func(q url.Values) error {
		n, err := intOf(q, "n", len(garbageKinds))
		if err != nil {
			return err
		}
		return e.Garbage(n)
	})
	handle("flood", func(q url.Values) error {
		d, err := durationOf(q, "for")
		if err != nil {
			return err
		}
		return e.Flood(d)
	})
	handle("freeze", func(q url.Values) error {
		d, err := durationOf(q, "for")
		if err != nil {
			return err
		}
		return e.freezeFor(d)
	})
	handle("thaw", func(url.Values) error { return e.Thaw() })
	handle("slow", func(q url.Values) error {
		factor, err := strconv.ParseFloat(q.Get("factor"), 64)
		if err != nil {
			return fmt.Errorf("factor=%q: want a number", q.Get("factor"))
		}
		return e.SetSpeed(factor)
	})
	handle("fail", func(q url.Values) error {
		n, err := intOf(q, "n", 1)
		if err != nil {
			return err
		}
		how, err := parseFailure(q.Get("how"))
		if err != nil {
			return err
		}
		return e.FailNext(n, how)
	})
	return mux
}

// durationOf reads a query value such as 5s; an absent one is 0.
func durationOf(q url.Values, name string) (time.Duration, error) {
	text := q.Get(name)
	if text == "" {
		return 0, nil
	}
	d, err := time.ParseDuration(text)
	if err != nil || d < 0 {
		return 0, fmt.Errorf("%s=%q: want a duration such as 5s", name, text)
	}
	return d, nil
}

// intOf reads a query value that counts something.
func intOf(q url.Values, name string, absent int) (int, error) {
	text := q.Get(name)
	if text == "" {
		return absent, nil
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < 0 {
		return 0, fmt.Errorf("%s=%q: want a count", name, text)
	}
	return n, nil
}
