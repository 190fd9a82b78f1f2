package loadhttp

import (
	"bytes"
	"crypto/sha256"
	"embed"
	"encoding/base64"
	"encoding/json"
	"net/http"
	"path"
	"strings"
	"sync"
	"time"

	"github.com/plimsoll-go/plimsoll/load"
	"github.com/plimsoll-go/plimsoll/selector"
)

// Config configures a Handler. The zero Config is ready to use.
type Config struct {
	// Title stands on top of the page, such as which gateway this is; "Plimsoll"
	// if it is empty.
	Title string

	// Policy returns the policy that picks now. What it has learned is shown, if it
	// is a selector.Learner. It is called once an interval while somebody looks, and
	// must not call the handler. nil: nothing learned is shown.
	Policy func() selector.Policy

	// WhyOut returns why the host has taken a worker out (see load.Worker.SetHealthy),
	// such as "drained by an operator", and "" if it does not say. Notice returns what
	// the host has to say of itself, such as that its configuration was refused, as a
	// sentence that ends the headline; "" if there is nothing. Neither may call the
	// handler. nil: nothing is said.
	WhyOut func(worker string) string
	Notice func() string

	// Interval is the time between two samples, and between two updates of the page.
	// 0 means a second.
	Interval time.Duration

	// History is how many samples are kept of each worker; 0 means 120.
	History int

	// Picks and Events are how many of the last ones are kept; 0 means 32 and 200.
	Picks, Events int

	// Viewers is how many streams there may be at once; 0 means 64.
	Viewers int
}

func (c *Config) setDefaults() {
	if c.Title == "" {
		c.Title = "Plimsoll"
	}
	if c.Interval <= 0 {
		c.Interval = time.Second
	}
	for _, d := range []struct {
		n   *int
		def int
	}{{&c.History, 120}, {&c.Picks, 32}, {&c.Events, 200}, {&c.Viewers, 64}} {
		if *d.n <= 0 {
			*d.n = d.def
		}
	}
}

// Handler serves the page and what it is made of. Make one with New.
type Handler struct {
	// immutable
	table  *load.Table
	config Config
	began  time.Time
	stop   chan struct{}
	ended  chan struct{} // when the goroutine has

	closing sync.Once
	picks   picks

	// mu may be held when the table's is taken, and a learner's.
	mu      sync.Mutex
	seq     uint64 // of the newest sample, from 1
	at      time.Time
	tracks  map[*load.Worker]*track
	events  events
	viewers int
	changed chan struct{} // closed when there is a newer sample

	now    *picture // of the newest sample; nil until somebody asks
	before *picture // of the one before; nil if nobody asked
}

// New returns a handler that shows the table. Close ends it.
func New(t *load.Table, c Config) *Handler {
	c.setDefaults()
	h := &Handler{
		table: t, config: c, began: time.Now(),
		stop: make(chan struct{}), ended: make(chan struct{}), changed: make(chan struct{}),
		tracks: make(map[*load.Worker]*track),
	}
	h.picks.ring = make([]*Explained, c.Picks)
	h.events.max = c.Events
	h.sample()
	go h.run()
	return h
}

func (h *Handler) run() {
	defer close(h.ended)
	tick := time.NewTicker(h.config.Interval)
	defer tick.Stop()
	for {
		select {
		case <-h.stop:
			return
		case <-tick.C:
			h.sample()
		}
	}
}

// Close ends the goroutine and all streams: a server that is shut down waits for
// them, so hand it to http.Server.RegisterOnShutdown. What was last seen is served on.
func (h *Handler) Close() {
	h.closing.Do(func() { close(h.stop) })
	<-h.ended
}

// Status returns what status.json does, without the history.
func (h *Handler) Status() Status {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.pictureLocked().status
}

//go:embed page
var page embed.FS

// asset is a file of the page.
type asset struct {
	contentType string
	body        []byte
	etag        string
}

// assets are by the last element of the path: the page itself is where a folder is
// asked for.
var assets, pageVersion = func() (map[string]asset, string) {
	types := map[string]string{".html": "text/html; charset=utf-8", ".css": "text/css; charset=utf-8", ".js": "text/javascript; charset=utf-8"}
	all, version := make(map[string]asset), sha256.New()
	files, err := page.ReadDir("page")
	if err != nil {
		panic(err) // it is compiled in
	}
	for _, f := range files {
		body, err := page.ReadFile("page/" + f.Name())
		if err != nil {
			panic(err)
		}
		version.Write(body)
		all[f.Name()] = asset{types[path.Ext(f.Name())], body, `"` + tag(sha256.Sum256(body)) + `"`}
	}
	all[""] = all["page.html"]
	delete(all, "page.html")
	return all, tag([sha256.Size]byte(version.Sum(nil)))
}()

func tag(sum [sha256.Size]byte) string { return base64.RawURLEncoding.EncodeToString(sum[:12]) }

// policy keeps the page to what it is made of, whatever a worker is called.
const policy = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src data:; " +
	"base-uri 'none'; form-action 'none'; frame-ancestors 'none'"

// ServeHTTP serves what the last element of the path names.
func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	header := w.Header()
	header.Set("Content-Security-Policy", policy)
	header.Set("X-Content-Type-Options", "nosniff")
	header.Set("Referrer-Policy", "no-referrer")
	header.Set("Cross-Origin-Resource-Policy", "same-origin")
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		header.Set("Allow", "GET, HEAD")
		http.Error(w, "the status is read-only", http.StatusMethodNotAllowed)
		return
	}
	if r.URL.Path == "" {
		// The prefix was stripped, and what the page refers to is below it. Relative,
		// since a path that begins with two slashes names a host.
		asked, _, _ := strings.Cut(r.RequestURI, "?")
		header.Set("Location", path.Base(asked)+"/")
		w.WriteHeader(http.StatusMovedPermanently)
		return
	}
	name := r.URL.Path[strings.LastIndexByte(r.URL.Path, '/')+1:]
	switch name {
	case "status.json":
		h.serveStatus(w, r)
	case "stream":
		h.serveStream(w, r)
	default:
		a, ok := assets[name]
		if !ok {
			http.NotFound(w, r)
			return
		}
		header.Set("Content-Type", a.contentType)
		header.Set("Cache-Control", "no-cache") // ask whether it has changed
		header.Set("ETag", a.etag)
		http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(a.body))
	}
}

func (h *Handler) serveStatus(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "no-store")
	query := r.URL.Query()
	h.mu.Lock()
	status := h.pictureLocked().status
	if query.Has("worker") {
		status.Workers = only(status.Workers, query.Get("worker"))
	}
	if query.Get("history") == "1" {
		status.Workers = h.withHistoryLocked(status.Workers)
	}
	h.mu.Unlock()
	if query.Has("worker") && len(status.Workers) == 0 {
		w.WriteHeader(http.StatusNotFound) // with the rest, which says so: no workers
	}
	_ = json.NewEncoder(w).Encode(status) // an error here is a client that has left
}

// only returns the worker with an ID, if there is one.
func only(workers []Worker, id string) []Worker {
	for i := range workers {
		if workers[i].ID == id {
			return workers[i : i+1]
		}
	}
	return []Worker{}
}
