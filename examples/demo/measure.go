package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"sync"
	"sync/atomic"
	"time"
)

// outcome is what a client sees of one request.
type outcome struct {
	first  time.Duration // until the first piece of content
	whole  time.Duration
	worker string
	err    error
}

// measure sends the plan under one policy, as soon as the engines have nothing
// left of what was before. title is what progress calls it.
func (s *setup) measure(ctx context.Context, policy, title string, t traffic, say *progress) (row, error) {
	if err := s.waitIdle(ctx, say); err != nil {
		return row{}, err
	}
	say.clear()
	if err := s.gateway.SetPolicy(policy, nil); err != nil {
		return row{}, err
	}
	before := s.gateway.Counts().Picks[policy]
	plan := t.plan()
	total := len(t.own())
	outcomes, late, err := send(ctx, s.urlOf, plan, func(at time.Duration, sent, answered int) {
		say.update("%s: %.1fs of %v, %d of %d sent, %d answered", title, min(at, t.length).Seconds(), t.length, sent, total, answered)
	})
	if err != nil {
		return row{}, err
	}
	r := newRow(policy, plan, outcomes, s.slow)
	r.late = late
	for basis, n := range s.gateway.Counts().Picks[policy] {
		r.bases[basis] = n - before[basis]
	}
	return r, nil
}

// urlOf returns where the requests go that are to go there.
func (s *setup) urlOf(to int) string {
	if to == toGateway {
		return s.url
	}
	return s.engines[to].URL()
}

// send sends the plan on time and returns when everything is answered. late is by
// how much it did not keep the time. tick is told now and then how it goes with
// the gateway's requests.
func send(ctx context.Context, urlOf func(to int) string, plan []request, tick func(at time.Duration, sent, answered int)) (outcomes []outcome, late time.Duration, err error) {
	client := newClient()
	defer client.CloseIdleConnections()
	outcomes = make([]outcome, len(plan))
	var answered atomic.Int64
	var wg sync.WaitGroup
	start := time.Now()
	ticker := time.NewTicker(100 * time.Millisecond)
	defer ticker.Stop()

	next, sent := 0, 0
	due := time.NewTimer(0)
	defer due.Stop()
	for next < len(plan) && ctx.Err() == nil {
		due.Reset(plan[next].at - time.Since(start))
		select {
		case <-due.C:
			i, own := next, plan[next].to == toGateway
			late = max(late, time.Since(start)-plan[i].at)
			wg.Go(func() {
				outcomes[i] = client.complete(ctx, urlOf(plan[i].to), plan[i])
				if own {
					answered.Add(1)
				}
			})
			next++
			if own {
				sent++
			}
		case <-ticker.C:
			tick(time.Since(start), sent, int(answered.Load()))
		case <-ctx.Done():
		}
	}
	all := make(chan struct{})
	go func() {
		wg.Wait()
		close(all)
	}()
	for {
		select {
		case <-all:
			return outcomes, late, context.Cause(ctx)
		case <-ticker.C:
			tick(time.Since(start), sent, int(answered.Load()))
		}
	}
}

// client is many users at once.
type client struct{ *http.Client }

func newClient() client {
	return client{&http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 1000}}}
}

// complete sends one request, streamed, and takes its times.
func (c client) complete(ctx context.Context, url string, r request) (o outcome) {
	// The clock starts when the user presses the button.
	start := time.Now()
	body, err := json.Marshal(map[string]any{
		"messages":   []map[string]string{{"role": "user", "content": text(r.prompt)}},
		"max_tokens": r.output,
		"stream":     true,
	})
	if err != nil {
		return outcome{err: err}
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, url+"/v1/chat/completions", bytes.NewReader(body))
	if err != nil {
		return outcome{err: err}
	}
	req.Header.Set("Content-Type", "application/json")
	res, err := c.Do(req)
	if err != nil {
		return outcome{err: err}
	}
	defer res.Body.Close()
	if res.StatusCode != http.StatusOK {
		message, _ := io.ReadAll(io.LimitReader(res.Body, 1<<10))
		return outcome{err: fmt.Errorf("%s: %s", res.Status, bytes.TrimSpace(message))}
	}
	o.worker = res.Header.Get("X-Plimsoll-Worker")
	o.err = readStream(res.Body, func() { o.first = time.Since(start) })
	o.whole = time.Since(start)
	return o
}

var errCut = errors.New("the answer ended before its end")

// readStream reads server-sent events to their end, and tells when the first one
// with content came.
func readStream(r io.Reader, first func()) error {
	lines := bufio.NewScanner(r)
	for lines.Scan() {
		data, ok := bytes.CutPrefix(lines.Bytes(), []byte("data: "))
		if !ok {
			continue
		}
		if string(data) == "[DONE]" {
			if first != nil {
				return errors.New("the answer has no content")
			}
			return nil
		}
		if first != nil && hasContent(data) {
			first()
			first = nil
		}
	}
	if err := lines.Err(); err != nil {
		return err
	}
	return errCut
}

func hasContent(event []byte) bool {
	var chunk struct {
		Choices []struct {
			Delta struct {
				Content string `json:"content"`
			} `json:"delta"`
		} `json:"choices"`
	}
	return json.Unmarshal(event, &chunk) == nil && len(chunk.Choices) > 0 && chunk.Choices[0].Delta.Content != ""
}
