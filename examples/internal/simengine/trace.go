package simengine

import "github.com/plimsoll-go/plimsoll/snapshot"

// Trace is told what an engine really does, by whoever compares that with what
// others make of it. Any of the functions may be nil. They are called from many
// goroutines at once and must not block.
type Trace struct {
	// Report is called before a good load message is handed to a rank's socket,
	// which may still shed it. load is what it says, or of which it says a part.
	Report func(rank int, seq int64, load *snapshot.LoadSnapshot)

	// Accepted is called when a completion request has been put on a rank, with its
	// X-Request-Id, and Ended when no more is written to it: whole if that was all
	// of the answer.
	Accepted func(id string, rank int)
	Ended    func(id string, whole bool)
}

func (t *Trace) report(rank int, seq int64, load *snapshot.LoadSnapshot) {
	if t != nil && t.Report != nil {
		t.Report(rank, seq, load)
	}
}

func (t *Trace) accepted(id string, rank int) {
	if t != nil && t.Accepted != nil {
		t.Accepted(id, rank)
	}
}

func (t *Trace) ended(id string, whole bool) {
	if t != nil && t.Ended != nil {
		t.Ended(id, whole)
	}
}
