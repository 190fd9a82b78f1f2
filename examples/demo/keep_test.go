package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"net/http"
	"net/url"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/plimsoll-go/plimsoll/load/loadhttp"
)

// person reads the guide, looks at the page and copies commands.
type person struct {
	*testing.T
	setup  *setup
	client *http.Client
	told   []string // URLs of commands, as the guide has them
	page   *bufio.Scanner
	rows   map[string]shown // by worker, as the page shows them
}

// shown is a row of the page's table.
type shown struct {
	ID, State, Reason string
}

// limit is for what takes seconds on a machine that has nothing else to do.
const limit = 60 * time.Second

func newPerson(t *testing.T, s *setup) *person {
	ctx, cancel := context.WithTimeout(t.Context(), 6*limit)
	transport := &http.Transport{}
	p := &person{T: t, setup: s, client: &http.Client{Transport: transport}, rows: make(map[string]shown)}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, s.statusPage()+"stream", nil)
	if err != nil {
		t.Fatal(err)
	}
	res, err := p.client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		cancel()
		res.Body.Close()
		transport.CloseIdleConnections()
	})
	p.page = bufio.NewScanner(res.Body)
	p.page.Buffer(nil, 1<<20)
	var guide strings.Builder
	s.guide(&guide)
	for _, command := range regexp.MustCompile(`curl -X POST '(\S+)'`).FindAllStringSubmatch(guide.String(), -1) {
		p.told = append(p.told, command[1])
	}
	if !strings.Contains(guide.String(), s.statusPage()) {
		t.Errorf("the guide does not say where the page is:\n%s", &guide)
	}
	return p
}

// do runs the command of the guide that ends in what.
func (p *person) do(what string) {
	p.Helper()
	for _, u := range p.told {
		if !strings.HasSuffix(u, what) {
			continue
		}
		res, err := p.client.Post(u, "", nil)
		if err != nil {
			p.Fatal(err)
		}
		res.Body.Close()
		if res.StatusCode != http.StatusAccepted {
			p.Fatalf("%s: %s", u, res.Status)
		}
		return
	}
	p.Fatalf("the guide does not say how to %s: %q", what, p.told)
}

// sees watches the page until it shows a worker in a state, for reasons that have all
// these words.
func (p *person) sees(worker, state string, words ...string) {
	p.Helper()
	for deadline := time.Now().Add(limit); time.Now().Before(deadline) && p.page.Scan(); {
		data, ok := bytes.CutPrefix(p.page.Bytes(), []byte("data: "))
		if !ok {
			continue
		}
		var update struct{ Rows []shown }
		if err := json.Unmarshal(data, &update); err != nil {
			p.Fatal(err)
		}
		for _, row := range update.Rows {
			p.rows[row.ID] = row
		}
		if row := p.rows[worker]; row.State == state && containsAll(row.Reason, words) {
			return
		}
	}
	p.Fatalf("the page shows %+v, want %s because of %q", p.rows[worker], state, words)
}

func containsAll(text string, words []string) bool {
	for _, w := range words {
		if !strings.Contains(text, w) {
			return false
		}
	}
	return true
}

// picked returns how many picks there were of a worker.
func (p *person) picked(worker string) uint64 {
	p.Helper()
	res, err := p.client.Get(p.setup.statusPage() + "status.json?worker=" + url.QueryEscape(worker))
	if err != nil {
		p.Fatal(err)
	}
	defer res.Body.Close()
	var st loadhttp.Status
	if err := json.NewDecoder(res.Body).Decode(&st); err != nil || len(st.Workers) != 1 {
		p.Fatalf("%s: %d workers, %v", worker, len(st.Workers), err)
	}
	return st.Workers[0].Picked
}

// morePicks waits until a worker has been picked so many times more.
func (p *person) morePicks(worker string, n uint64) {
	p.Helper()
	before := p.picked(worker)
	for deadline := time.Now().Add(limit); p.picked(worker) < before+n; time.Sleep(50 * time.Millisecond) {
		if time.Now().After(deadline) {
			p.Fatalf("%s was picked %d times, and then not %d times more", worker, before, n)
		}
	}
}

func TestWhatIsBrokenByTheGuideShowsOnThePage(t *testing.T) {
	s, err := setUp()
	if err != nil {
		t.Fatal(err)
	}
	defer s.close()
	if err := s.waitTrusted(t.Context(), newProgress(&bytes.Buffer{}, false)); err != nil {
		t.Fatal(err)
	}
	ctx, leave := context.WithCancel(t.Context())
	left := make(chan struct{})
	go func() { defer close(left); s.trickle(ctx) }()
	defer func() { leave(); <-left }()
	p := newPerson(t, s)
	broken, other := s.engines[0].URL(), s.engines[1].URL()
	p.sees(broken, "trusted")
	p.morePicks(broken, 1)

	p.do("/sim/die")
	p.sees(broken, "unhealthy", "down: failed", "connection refused", "stale: rank 0")
	before := p.picked(broken)
	p.morePicks(other, 10)
	if n := p.picked(broken) - before; n != 0 {
		t.Errorf("%d picks of an engine that is down", n)
	}
	p.do("/sim/restart")
	p.sees(broken, "trusted")
	p.morePicks(broken, 1)

	p.do("/sim/mute")
	p.sees(broken, "stale", "stale: rank 0")
	p.morePicks(other, 1)
	p.do("/sim/unmute")
	p.sees(broken, "trusted")

	p.do("/sim/restart?ranks=4")
	p.sees(broken, "trusted")
	p.morePicks(broken, 1)
}
