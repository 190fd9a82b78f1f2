package selector

import "github.com/plimsoll-go/plimsoll/load"

// Request is what is known of a request when its worker is picked. The zero
// Request may go to any eligible worker.
type Request struct {
	// ID names the request in the host's own terms. Policies of this package do
	// not read it; a host's may hash it.
	ID string

	// PromptTokens is the length of the prompt, if known.
	PromptTokens load.Maybe[int64]

	// Unstreamed says that the answer will come in one piece. Then its first byte says
	// nothing of the first token, and LeastWork neither learns from it nor takes the
	// prompt to be waiting until then.
	Unstreamed bool

	// Candidates restricts the choice to these workers; nil means all. Those
	// that are gone or not healthy take no part, and those that are set aside
	// only if no other is left.
	Candidates []*load.Worker

	// Exclude keeps the request from these workers, such as those that an earlier
	// attempt has failed on.
	Exclude []*load.Worker

	// Filter, if not nil, restricts the choice to workers that it accepts. It is
	// called once for each and must not call the selector or the table.
	Filter func(*load.Worker) bool

	// Prefix lists how much of the prompt each worker has in its cache, as far
	// as the host knows. Workers not listed are taken to have nothing.
	Prefix []PrefixMatch

	// Worker pins the request to one worker. It overrides Candidates, Exclude
	// and Filter, and no policy is asked but one that chooses the rank.
	Worker *load.Worker

	// Rank pins the request to a data-parallel rank of whichever worker is
	// chosen. Workers known not to have it take no part. Where it is unknown, a
	// RankPolicy chooses, or else the engine; load.NoRank leaves it to the engine in
	// any case.
	Rank load.Maybe[int]
}

// restricts reports whether not every eligible worker will do.
func (r *Request) restricts() bool {
	return r.Worker != nil || r.Candidates != nil || r.Exclude != nil || r.Filter != nil || r.Rank.IsKnown()
}

// PrefixMatch says how many tokens of the prompt a worker has cached.
type PrefixMatch struct {
	Worker *load.Worker
	Tokens int64
}
