package loadhttp

import (
	"bytes"
	"compress/flate"
	"encoding/json"
	"math"
	"net/http"
	"strings"
	"time"

	"github.com/plimsoll-go/plimsoll/load"
	"github.com/plimsoll-go/plimsoll/selector"
)

// update is one server-sent event. The first one that a viewer gets, and each that
// follows on one that it has missed, has everything; the others have what is new.
type update struct {
	At       int64             `json:"at"` // Unix milliseconds, as all times here
	Level    Level             `json:"level"`
	Headline string            `json:"headline"`
	Policy   string            `json:"policy,omitempty"`
	Fleet    *Fleet            `json:"fleet"`
	Learned  *selector.Learned `json:"learned,omitempty"`

	Rows   []json.RawMessage `json:"rows"`           // that are new or have changed
	Gone   []string          `json:"gone,omitempty"` // rows
	Picks  []Explained       `json:"picks"`
	Events []Event           `json:"events"`

	Whole *whole `json:"whole,omitempty"`
}

// whole is what only an update that has everything has.
type whole struct {
	Title    string            `json:"title"`
	Page     string            `json:"page"` // the version of it, which an older page loads
	Since    int64             `json:"since"`
	Window   int64             `json:"window"`   // milliseconds
	Interval int64             `json:"interval"` // milliseconds
	Samples  int               `json:"samples"`  // that a history holds
	Picks    int               `json:"picks"`
	Events   int               `json:"events"`
	Advice   map[string]string `json:"advice"`  // by state
	History  []History         `json:"history"` // of each of the rows
}

// row is what the page shows of a worker in its table.
type row struct {
	ID     string `json:"id"`
	State  string `json:"state"`
	Level  Level  `json:"level"`
	Reason string `json:"reason,omitempty"`
	Notes  []Note `json:"notes,omitempty"`
	Owned  bool   `json:"owned,omitempty"`

	Running       load.Maybe[int64]   `json:"running,omitzero"`
	Waiting       load.Maybe[int64]   `json:"waiting,omitzero"`
	WaitingTokens load.Maybe[int64]   `json:"tokens,omitzero"`
	Since         int64               `json:"since,omitempty"` // own requests since the report
	Depth         load.Maybe[int64]   `json:"depth,omitzero"`  // the next sample of the history
	KVUsage       load.Maybe[float64] `json:"kv,omitzero"`
	Reported      int64               `json:"reported,omitempty"`

	InFlight  int64               `json:"in_flight"`
	Unstarted int64               `json:"unstarted,omitempty"`
	Rate      float64             `json:"rate"`
	Share     float64             `json:"share"`
	Speed     load.Maybe[float64] `json:"speed,omitzero"`

	Ranks []rankCell `json:"ranks"`
}

// rankCell is running, waiting, the time of the report (0: none) and whether it counts.
type rankCell [4]int64

func newRow(w *Worker) row {
	r := row{
		ID: w.ID, State: w.State, Level: w.Level, Reason: w.Reason, Notes: w.Notes, Owned: w.Owned,
		Running: w.Running, Waiting: w.Waiting, WaitingTokens: w.WaitingTokens,
		Depth: w.DepthNow, KVUsage: rounded(w.KVUsage, 1000),
		InFlight: w.InFlight, Unstarted: w.Unstarted,
		Rate: round(w.PickRate, 100), Share: round(w.Share, 1e5), Speed: rounded(w.Speed, 100),
		Ranks: make([]rankCell, len(w.Ranks)),
	}
	if !w.Owned {
		r.Since = w.SinceReport
	}
	for i := range w.Ranks {
		rank := &w.Ranks[i]
		c := &r.Ranks[i]
		if rank.Report != nil {
			c[0], c[1], c[2] = rank.Report.Running, rank.Report.Waiting, w.reported(rank.Age)
		}
		if rank.Fresh {
			c[3] = 1
		}
	}
	if w.Running.IsKnown() {
		r.Reported = w.reported(w.Age)
	}
	return r
}

// reported returns when a report came that is of an age now. It is rounded, so that it
// is the same each time that it is asked for, as a rule: a row is sent anew when it differs.
func (w *Worker) reported(age time.Duration) int64 {
	return w.read.Add(-age).Round(10 * time.Millisecond).UnixMilli()
}

func round(x, parts float64) float64 { return math.Round(x*parts) / parts }

func rounded(x load.Maybe[float64], parts float64) load.Maybe[float64] {
	if v, ok := x.Get(); ok {
		return load.Known(round(v, parts))
	}
	return x
}

// rowsLocked returns the encoded rows of the picture.
func (p *picture) rowsLocked() [][]byte {
	if p.rows == nil {
		p.rows = make([][]byte, len(p.status.Workers))
		for i := range p.rows {
			p.rows[i] = encode(newRow(&p.status.Workers[i]))
		}
	}
	return p.rows
}

func (p *picture) update() update {
	s := &p.status
	return update{
		At: s.At.UnixMilli(), Level: s.Level, Headline: s.Headline, Policy: s.Policy, Fleet: &s.Fleet,
		Learned: s.Learned, Rows: []json.RawMessage{}, Events: []Event{},
	}
}

// allLocked returns the update that has everything of the picture, which is the newest.
func (h *Handler) allLocked(p *picture) *packet {
	if p.all != nil {
		return p.all
	}
	u := p.update()
	u.Picks, u.Events = p.status.Picks, p.status.Events
	u.Whole = &whole{
		Title: p.status.Title, Page: pageVersion, Since: h.began.UnixMilli(),
		Window: p.status.Window.Milliseconds(), Interval: p.status.Interval.Milliseconds(),
		Samples: h.config.History, Picks: h.config.Picks, Events: h.config.Events,
		Advice: make(map[string]string), History: make([]History, len(p.tracks)),
	}
	for _, s := range states {
		u.Whole.Advice[s.name] = s.advice
	}
	for i, row := range p.rowsLocked() {
		u.Rows = append(u.Rows, row)
		u.Whole.History[i] = h.historyLocked(p.tracks[i])
	}
	p.all = newPacket(encode(u))
	return p.all
}

// newsLocked returns the update that leads from the picture before to p.
func (h *Handler) newsLocked(before, p *picture) *packet {
	if p.news != nil {
		return p.news
	}
	u := p.update()
	u.Picks, _ = h.picks.since(before.lastPick)
	u.Picks = upTo(u.Picks, p.lastPick)
	for _, e := range p.status.Events {
		if e.change > before.lastEvent {
			u.Events = append(u.Events, e)
		}
	}
	old, rows := before.rowsLocked(), p.rowsLocked()
	i := 0
	for j := range rows {
		id := p.status.Workers[j].ID
		for ; i < len(old) && before.status.Workers[i].ID < id; i++ {
			u.Gone = append(u.Gone, before.status.Workers[i].ID)
		}
		if i < len(old) && before.status.Workers[i].ID == id {
			i++
			if bytes.Equal(old[i-1], rows[j]) {
				continue
			}
		}
		u.Rows = append(u.Rows, rows[j])
	}
	for ; i < len(old); i++ {
		u.Gone = append(u.Gone, before.status.Workers[i].ID)
	}
	p.news = newPacket(encode(u))
	return p.news
}

func encode(v any) []byte {
	b, err := json.Marshal(v)
	if err != nil {
		panic(err) // nothing that is encoded here can fail
	}
	return b
}

// packet is an event as it is written to a viewer, and the same compressed, which is
// done once for all of them: the pieces of a deflate stream that refer to nothing
// before them can be put one after the other in any order.
type packet struct {
	plain, deflated []byte
}

func newPacket(data []byte) *packet {
	p := &packet{plain: make([]byte, 0, len(data)+8)}
	p.plain = append(p.plain, "data: "...)
	p.plain = append(p.plain, data...) // JSON has no line break that is not escaped
	p.plain = append(p.plain, "\n\n"...)
	var b bytes.Buffer
	w, _ := flate.NewWriter(&b, flate.BestSpeed) // an error is a level that does not exist
	_, _ = w.Write(p.plain)                      // to memory
	_ = w.Flush()                                // to a byte's end, and not the end of the stream
	p.deflated = b.Bytes()
	return p
}

// gzipHeader begins a gzip stream without a name and a time (RFC 1952).
const gzipHeader = "\x1f\x8b\x08\x00\x00\x00\x00\x00\x00\xff"

// writeWithin is how long a viewer may take to accept an event. One that has vanished
// without a word is given up then.
const writeWithin = 15 * time.Second

// next returns the update that leads from picture seq to the newest, if there is a
// newer one, and else a channel that is closed when there is.
func (h *Handler) next(seq uint64) (p *packet, newest uint64, wait <-chan struct{}) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if seq == h.seq {
		return nil, seq, h.changed
	}
	now := h.pictureLocked()
	if h.before != nil && seq == h.before.seq {
		return h.newsLocked(h.before, now), now.seq, nil
	}
	return h.allLocked(now), now.seq, nil
}

func (h *Handler) serveStream(w http.ResponseWriter, r *http.Request) {
	h.mu.Lock()
	full := h.viewers >= h.config.Viewers
	if !full {
		h.viewers++
	}
	h.mu.Unlock()
	if full {
		w.Header().Set("Retry-After", "30")
		http.Error(w, "too many viewers", http.StatusServiceUnavailable)
		return
	}
	defer func() {
		h.mu.Lock()
		defer h.mu.Unlock()
		h.viewers--
	}()

	header := w.Header()
	header.Set("Content-Type", "text/event-stream")
	header.Set("Cache-Control", "no-store, no-transform")
	header.Set("X-Accel-Buffering", "no")
	header.Set("Vary", "Accept-Encoding")
	zip := acceptsGzip(r)
	if zip {
		header.Set("Content-Encoding", "gzip")
	}
	if r.Method == http.MethodHead {
		return
	}
	control := http.NewResponseController(w)
	send := func(b []byte) bool {
		// In the place of the server's limit for whole answers. That of HTTP/2 ends the
		// stream when it has passed, also while nothing is written. An error is a writer
		// that knows no limits.
		_ = control.SetWriteDeadline(time.Now().Add(writeWithin))
		defer func() { _ = control.SetWriteDeadline(time.Time{}) }()
		if _, err := w.Write(b); err != nil {
			return false
		}
		return control.Flush() == nil
	}
	if zip && !send([]byte(gzipHeader)) {
		return
	}
	var seq uint64
	for {
		p, newest, wait := h.next(seq)
		seq = newest
		if p != nil {
			b := p.plain
			if zip {
				b = p.deflated
			}
			if !send(b) {
				return
			}
			continue
		}
		select {
		case <-wait:
		case <-h.stop:
			return
		case <-r.Context().Done():
			return
		}
	}
}

func acceptsGzip(r *http.Request) bool {
	for _, coding := range strings.Split(r.Header.Get("Accept-Encoding"), ",") {
		name, quality, _ := strings.Cut(strings.TrimSpace(coding), ";")
		if strings.EqualFold(strings.TrimSpace(name), "gzip") {
			quality, _ = strings.CutPrefix(strings.ReplaceAll(quality, " ", ""), "q=")
			return strings.Trim(quality, "0.") != "" || quality == ""
		}
	}
	return false
}

// upTo leaves out picks that are newer than one.
func upTo(picks []Explained, id uint64) []Explained {
	for len(picks) > 0 && picks[0].ID > id {
		picks = picks[1:]
	}
	return picks
}
