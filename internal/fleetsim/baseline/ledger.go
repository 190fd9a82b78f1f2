package baseline

import (
	"sync"
	"time"

	"github.com/plimsoll-go/plimsoll/load"
)

// ledger is what a gateway has sent to each place, a worker or one of its ranks,
// since that place last reported: the correction that several rules make for the
// age of their picture. A report is taken to count all that was sent before it
// came. Callers hold mu from the first read to the write.
type ledger struct {
	mu   sync.Mutex
	rows map[place]row
}

type place struct {
	worker *load.Worker
	rank   int // load.NoRank: all of them
}

type row struct {
	amount int64
	latest time.Time // report known when the row was begun
}

// sent returns what was sent to a place since it reported. Where several ranks make
// up a place, that is since all of them did.
func (l *ledger) sent(e load.Entry, rank int) int64 {
	at := place{e.Worker(), rank}
	r := l.rows[at]
	if r.amount == 0 {
		return 0
	}
	if first, _ := reportTimes(e, rank); first.After(r.latest) {
		delete(l.rows, at)
		return 0
	}
	return r.amount
}

// add says that so much more was sent to a place.
func (l *ledger) add(e load.Entry, rank int, amount int64) {
	if l.rows == nil {
		l.rows = make(map[place]row)
	}
	r := row{amount: l.sent(e, rank)}
	at := place{e.Worker(), rank}
	if r.amount > 0 {
		r.latest = l.rows[at].latest
	} else {
		_, r.latest = reportTimes(e, rank)
	}
	r.amount += amount
	l.rows[at] = r
}

// reportTimes returns when the ranks of a place reported: the first and the last of
// their newest reports, and the zero time for a rank without any.
func reportTimes(e load.Entry, rank int) (first, last time.Time) {
	from, to := 0, e.Ranks()
	if rank != load.NoRank {
		from, to = rank, rank+1
	}
	for i := from; i < to; i++ {
		var at time.Time
		if r, ok := e.Report(i); ok {
			at = r.Received
		}
		if i == from || at.Before(first) {
			first = at
		}
		if at.After(last) {
			last = at
		}
	}
	return first, last
}
