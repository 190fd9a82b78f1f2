package fleetsim

// eventKind says what happens, and what the numbers of an event mean.
type eventKind uint8

const (
	// What requests wait for.
	stepEnds     eventKind = iota // group, incarnation of its engine
	requestComes                  // request: it reaches its rank
	tokenSeen                     // request: its gateway sees the first token
	endSeen                       // request: its gateway sees the end
	failureSeen                   // request: its gateway sees that the engine has failed it
	batchSeen                     // slot of the batch, gateway
	scheduled                     // index in Config.Events

	// What happens besides.
	crashSeen  // engine, its incarnation
	reportDue  // rank, incarnation of its engine
	reportSeen // slot of the report, gateway
	sampleDue  // nothing
)

func (k eventKind) awaited() bool { return k <= scheduled }

// event is small: a run makes hundreds of thousands.
type event struct {
	at   int64 // nanoseconds
	seq  uint64
	kind eventKind
	a, b int32
}

func (e *event) before(o *event) bool { return e.at < o.at || e.at == o.at && e.seq < o.seq }

// agenda is a heap of events, the earliest on top. Events of one instant come out
// in the order that they went in, which makes a run reproducible.
type agenda struct {
	heap    []event
	seq     uint64
	awaited int // events that requests may wait for
}

func (q *agenda) add(at int64, kind eventKind, a, b int32) {
	q.seq++
	if kind.awaited() {
		q.awaited++
	}
	e := event{at, q.seq, kind, a, b}
	h := append(q.heap, e)
	i := len(h) - 1
	for i > 0 {
		parent := (i - 1) / 4
		if !e.before(&h[parent]) {
			break
		}
		h[i] = h[parent]
		i = parent
	}
	h[i] = e
	q.heap = h
}

// next returns when the earliest event is.
func (q *agenda) next() (at int64, ok bool) {
	if len(q.heap) == 0 {
		return 0, false
	}
	return q.heap[0].at, true
}

func (q *agenda) take() event {
	h := q.heap
	top := h[0]
	if top.kind.awaited() {
		q.awaited--
	}
	n := len(h) - 1
	e := h[n]
	h = h[:n]
	q.heap = h
	i := 0
	for {
		first := 4*i + 1
		if first >= n {
			break
		}
		least := first
		for c := first + 1; c < min(first+4, n); c++ {
			if h[c].before(&h[least]) {
				least = c
			}
		}
		if !h[least].before(&e) {
			break
		}
		h[i] = h[least]
		i = least
	}
	if n > 0 {
		h[i] = e
	}
	return top
}

// queue is a first-in first-out queue of requests whose head can be given back.
type queue struct {
	items []int32
	head  int
}

func (q *queue) len() int     { return len(q.items) - q.head }
func (q *queue) front() int32 { return q.items[q.head] }
func (q *queue) push(r int32) {
	if q.head > 64 && q.head > len(q.items)/2 {
		q.items = append(q.items[:0], q.items[q.head:]...)
		q.head = 0
	}
	q.items = append(q.items, r)
}

func (q *queue) pop() int32 {
	r := q.items[q.head]
	q.head++
	return r
}

func (q *queue) pushFront(r int32) {
	if q.head == 0 {
		q.items = append(q.items, 0)
		copy(q.items[1:], q.items)
	} else {
		q.head--
	}
	q.items[q.head] = r
}

// ending is a decoding request, by the step that produces its last token.
type ending struct {
	step int64
	req  int32
}

// endings is a heap of them. A request that has been retracted meanwhile leaves
// its entry behind: see rank.ends.
type endings []ending

func (h *endings) add(e ending) {
	s := append(*h, e)
	i := len(s) - 1
	for i > 0 {
		parent := (i - 1) / 2
		if !e.before(s[parent]) {
			break
		}
		s[i] = s[parent]
		i = parent
	}
	s[i] = e
	*h = s
}

func (e ending) before(o ending) bool { return e.step < o.step || e.step == o.step && e.req < o.req }

func (h *endings) take() ending {
	s := *h
	top := s[0]
	n := len(s) - 1
	e := s[n]
	s = s[:n]
	i := 0
	for {
		c := 2*i + 1
		if c >= n {
			break
		}
		if c+1 < n && s[c+1].before(s[c]) {
			c++
		}
		if !s[c].before(e) {
			break
		}
		s[i] = s[c]
		i = c
	}
	if n > 0 {
		s[i] = e
	}
	*h = s
	return top
}
