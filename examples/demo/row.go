package main

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/plimsoll-go/plimsoll/selector"
)

// row is what came of one policy.
type row struct {
	policy           string
	requests, errors int
	firstError       error
	ttft50, ttft99   time.Duration
	e2e99            time.Duration
	slowShare        float64
	bases            map[string]int64 // picks by basis
	late             time.Duration    // by how much requests were sent too late, at most

	// Of the foreign requests only this matters: that they were there.
	foreign, foreignErrors int
	firstForeignError      error
}

// newRow sums up what came of each request of the plan.
func newRow(policy string, plan []request, outcomes []outcome, slow string) row {
	r := row{policy: policy, bases: make(map[string]int64)}
	var first, whole []time.Duration
	onSlow := 0
	for i, o := range outcomes {
		requests, errors, firstError := &r.requests, &r.errors, &r.firstError
		if plan[i].to != toGateway {
			requests, errors, firstError = &r.foreign, &r.foreignErrors, &r.firstForeignError
		}
		*requests++
		if o.err != nil {
			*errors++
			if *firstError == nil {
				*firstError = o.err
			}
			continue
		}
		if plan[i].to != toGateway {
			continue
		}
		first, whole = append(first, o.first), append(whole, o.whole)
		if o.worker == slow {
			onSlow++
		}
	}
	slices.Sort(first)
	slices.Sort(whole)
	r.ttft50, r.ttft99 = percentile(first, 50), percentile(first, 99)
	r.e2e99 = percentile(whole, 99)
	if len(first) > 0 {
		r.slowShare = float64(onSlow) / float64(len(first))
	}
	return r
}

// percentile returns the smallest of the sorted values that p percent of them do
// not exceed, and 0 if there are none.
func percentile(sorted []time.Duration, p float64) time.Duration {
	if len(sorted) == 0 {
		return 0
	}
	i := int(math.Ceil(p/100*float64(len(sorted)))) - 1
	return sorted[min(max(i, 0), len(sorted)-1)]
}

var columns = []string{
	"policy", "requests", "errors", "ttft_p50_ms", "ttft_p99_ms", "e2e_p99_ms", "share_slow_engine",
	selector.Engine.String(), selector.Estimated.String(), selector.Local.String(), selector.None.String(),
	"foreign", "foreign_errors",
}

func header() string { return aligned(columns) }

func (r row) String() string {
	ms := func(d time.Duration) string { return fmt.Sprint(d.Milliseconds()) }
	return aligned([]string{
		r.policy, fmt.Sprint(r.requests), fmt.Sprint(r.errors), ms(r.ttft50), ms(r.ttft99), ms(r.e2e99),
		fmt.Sprintf("%.3f", r.slowShare),
		fmt.Sprint(r.bases["engine"]), fmt.Sprint(r.bases["estimated"]), fmt.Sprint(r.bases["local"]), fmt.Sprint(r.bases["none"]),
		fmt.Sprint(r.foreign), fmt.Sprint(r.foreignErrors),
	})
}

// aligned sets cells under the columns: names to the left, numbers to the right.
// Rows are printed one by one as they come, so that nothing can be measured
// first.
func aligned(cells []string) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%-14s", cells[0])
	for i, cell := range cells[1:] {
		fmt.Fprintf(&b, " %*s", max(len(columns[i+1]), 5), cell)
	}
	return b.String()
}

// tooLate is more than a machine is ever late with anything if it has the time to
// play four engines.
const tooLate = 500 * time.Millisecond

// caveat says what to think of a row that the machine was too busy for, and
// nothing about any other.
func (r row) caveat() string {
	if r.late < tooLate {
		return ""
	}
	return fmt.Sprintf("%s: requests were sent up to %.1fs late. This machine has too much else to do, and the row says little.", r.policy, r.late.Seconds())
}

// leastByEngine is the share of picks that must have been made on fresh reports
// for a policy that goes by them.
const leastByEngine = 0.95

// verdict is what the demo exits with.
func verdict(rows []row) error {
	var errs []error
	for _, r := range rows {
		if r.errors > 0 {
			errs = append(errs, fmt.Errorf("%s: %d of %d requests failed, the first with: %w", r.policy, r.errors, r.requests, r.firstError))
		}
		if r.foreignErrors > 0 {
			errs = append(errs, fmt.Errorf("%s: %d of %d foreign requests failed, the first with: %w", r.policy, r.foreignErrors, r.foreign, r.firstForeignError))
		}
		if r.requests == 0 {
			errs = append(errs, fmt.Errorf("%s: no request was sent", r.policy))
		}
		if !slices.Contains(byEngineLoad, r.policy) {
			continue
		}
		var picks int64
		for _, n := range r.bases {
			picks += n
		}
		if byEngine := r.bases[selector.Engine.String()]; float64(byEngine) < leastByEngine*float64(picks) || picks == 0 {
			errs = append(errs, fmt.Errorf("%s: only %d of %d picks were made on fresh engine reports, want %.0f %%", r.policy, byEngine, picks, 100*leastByEngine))
		}
	}
	return errors.Join(errs...)
}
