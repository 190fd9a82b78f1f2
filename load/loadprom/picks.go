package loadprom

import (
	"slices"
	"sync"
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/plimsoll-go/plimsoll/selector"
)

var (
	picksTotal  = counter("plimsoll_picks_total", "Picks, by the policy, the reason of the choice and what the load that it names was made of.", "policy", "reason", "basis")
	failedPicks = counter("plimsoll_failed_picks_total", "Requests that there was no worker for.")

	pickFamilies = []*family{picksTotal, failedPicks}
)

// Picks counts picks. It is a prometheus.Collector; the zero Picks is ready to use and
// must not be copied.
type Picks struct {
	failed atomic.Uint64

	// Replaced as a whole, with mu held, when a policy is seen for the first time. There
	// are one or two, so that looking through them is quicker than a map.
	policies atomic.Pointer[[]*policyPicks]
	mu       sync.Mutex
}

// policyPicks are those of one policy. A reason or basis that there is no room for is
// counted under 0, which is called unknown or none.
type policyPicks struct {
	policy string
	n      [maxReasons][maxBases]atomic.Uint64
}

const (
	maxPolicies = 16
	maxReasons  = 32
	maxBases    = 8
)

// Observe counts a pick. It waits for no lock and allocates nothing, but for the first pick
// of a policy. The zero Pick, which comes with an error, is not counted.
func (p *Picks) Observe(pick selector.Pick) {
	if pick.Worker == nil {
		return
	}
	reason, basis := int(pick.Reason), int(pick.Basis)
	if reason >= maxReasons {
		reason = 0
	}
	if basis >= maxBases {
		basis = 0
	}
	p.of(pick.Policy).n[reason][basis].Add(1)
}

// Failed counts a request that there was no worker for: Pick has returned an error.
func (p *Picks) Failed() { p.failed.Add(1) }

func (p *Picks) all() []*policyPicks {
	if all := p.policies.Load(); all != nil {
		return *all
	}
	return nil
}

// of returns the counts of a policy, or where there are too many those of all others.
func (p *Picks) of(policy string) *policyPicks {
	all := p.all()
	for _, one := range all {
		if one.policy == policy {
			return one
		}
	}
	if len(all) >= maxPolicies && policy != other {
		return p.of(other)
	}
	p.add(policy, len(all))
	return p.of(policy)
}

// add makes room for a policy that was not among so many. If another one has come
// meanwhile, whoever wants this one has to look again.
func (p *Picks) add(policy string, among int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if all := p.all(); len(all) == among {
		all = append(slices.Clip(all), &policyPicks{policy: policy})
		p.policies.Store(&all)
	}
}

// Describe implements prometheus.Collector.
func (p *Picks) Describe(to chan<- *prometheus.Desc) {
	for _, f := range pickFamilies {
		to <- f.desc
	}
}

// Collect implements prometheus.Collector.
func (p *Picks) Collect(to chan<- prometheus.Metric) {
	put(to, failedPicks, p.failed.Load())
	for _, one := range p.all() {
		policy := pair("policy", labelOf(one.policy))
		for reason := range one.n {
			for basis := range one.n[reason] {
				if n := one.n[reason][basis].Load(); n > 0 {
					put(to, picksTotal, n,
						pair("basis", selector.Basis(basis).String()), policy, pair("reason", selector.Reason(reason).String()))
				}
			}
		}
	}
}
