package selector

import (
	"errors"
	"fmt"
)

var (
	// ErrNoCandidates is what a pick's error is when no worker could be chosen.
	// The error itself is a [*NoCandidatesError].
	ErrNoCandidates = errors.New("selector: no candidates")

	// ErrUnknownPolicy is what NewPolicy's error is for a name that is not one.
	ErrUnknownPolicy = errors.New("selector: unknown policy")

	// ErrBadConfig is what NewPolicy's error is for a configuration that does not
	// fit the policy.
	ErrBadConfig = errors.New("selector: bad policy configuration")
)

// NoCandidatesError says where the candidates of a pick went. It is
// ErrNoCandidates to errors.Is. A gateway answers 503 to it.
type NoCandidatesError struct {
	Known   int  // workers in the table
	Healthy int  // of those, healthy
	Pinned  bool // the request was pinned to a worker, which is not among them, or has not the rank
}

func (e *NoCandidatesError) Error() string {
	switch {
	case e.Known == 0:
		return "selector: no candidates: no worker is known"
	case e.Healthy == 0:
		return fmt.Sprintf("selector: no candidates: none of %d workers is healthy", e.Known)
	case e.Pinned:
		return fmt.Sprintf("selector: no candidates: the pinned worker or rank is not among the %d healthy of %d", e.Healthy, e.Known)
	}
	return fmt.Sprintf("selector: no candidates: the request's own restrictions leave none of %d healthy workers", e.Healthy)
}

// Is reports whether target is ErrNoCandidates.
func (e *NoCandidatesError) Is(target error) bool { return target == ErrNoCandidates }
