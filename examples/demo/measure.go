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

// measure sends the plan through the gateway under one policy, and waits until
// the engines have nothing left of it.
func (s *setup) measure(ctx context.Context, policy string, plan []request, say *progress) (row, error) {
	if err := s.waitIdle(ctx, say); err != nil {
		return row{}, err
	}
	if err := s.gateway.SetPolicy(policy, nil); err != nil {
		return row{}, err
	}
	before := s.gateway.Counts().Picks[policy]
	outcomes, err := send(ctx, s.url, plan, func(at time.Duration, sent, answered int) {
		say.update("%s: %.1fs, %d of %d requests sent, %d answered", policy, at.Seconds(), sent, len(plan), answered)
	})
	if err != nil {
		return row{}, err
	}
	r := newRow(policy, outcomes, s.slow)
	for basis, n := range s.gateway.Counts().Picks[policy] {
		r.bases[basis] = n - before[basis]
	}
	return r, nil
}

// send sends the plan on time and returns when everything is answered. tick is
// told how it goes, now and then.
func send(ctx context.Context, url string, plan []request, tick func(at time.Duration, sent, answered int)) ([]outcome, error) {
	client := newClient()
	defer client.CloseIdleConnections()
	outcomes := make([]outcome, len(plan))
	var answered atomic.Int64
	var wg sync.WaitGroup
	start := time.Now()
	ticker := time.NewTicker(100 * time.Millisecond)
	defer ticker.Stop()

	sent := 0
	due := time.NewTimer(0)
	defer due.Stop()
	for sent < len(plan) && ctx.Err() == nil {
		due.Reset(plan[sent].at - time.Since(start))
		select {
		case <-due.C:
			i := sent
			wg.Go(func() {
				outcomes[i] = client.complete(ctx, url, plan[i])
				answered.Add(1)
			})
			sent++
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
			return outcomes, context.Cause(ctx)
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
