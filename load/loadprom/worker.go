package loadprom

import (
	"strconv"

	dto "github.com/prometheus/client_model/go"

	"github.com/plimsoll-go/plimsoll/load"
)

var (
	workerHealthy   = gauge("plimsoll_worker_healthy", "Whether the worker may be picked, by the word of the host.", "worker")
	workerAside     = gauge("plimsoll_worker_set_aside", "Whether the worker is not picked for now, because it has just failed a request.", "worker")
	workerTrusted   = gauge("plimsoll_worker_trusted", "Whether the reports of the worker are trusted.", "worker")
	workerUntrusted = gauge("plimsoll_worker_untrusted", "Whether this is why the reports of the worker are not trusted.", "worker", "reason")
	workerRanks     = gauge("plimsoll_worker_ranks", "Ranks that the worker says it reports on.", "worker")
	workerDepth     = gauge("plimsoll_worker_depth_requests", "Requests running and waiting on all ranks, as picks see it; of trusted workers only.", "worker")
	workerAge       = gauge("plimsoll_worker_report_age_seconds", "Age of the newest report of the rank where that is oldest.", "worker")
	workerInFlight  = gauge("plimsoll_worker_in_flight_requests", "Own requests, picked and not done.", "worker")
	workerSince     = gauge("plimsoll_worker_uncounted_requests", "Own requests in flight that the worker's reports cannot have counted yet.", "worker")
	workerUnstarted = gauge("plimsoll_worker_unstarted_requests", "Own requests in flight without a first token.", "worker")
	workerPending   = gauge("plimsoll_worker_pending_prompt_tokens", "Prompt tokens of own requests without a first token, where known.", "worker")
	workerPicks     = counter("plimsoll_worker_picks_total", "Own requests that the worker was picked for.", "worker")
	workerLeaked    = counter("plimsoll_worker_leaked_picks_total", "Picks that the host dropped without Done.", "worker")
	workerReports   = counter("plimsoll_worker_reports_total", "Reports taken, of all ranks.", "worker")
	workerFlawed    = counter("plimsoll_worker_flawed_reports_total", "Reports taken with something in them made unknown.", "worker")
	workerDropped   = counter("plimsoll_worker_dropped_messages_total", "Messages of the worker's ranks that were not taken, by the reason.", "worker", "reason")

	workerFamilies = []*family{
		workerHealthy, workerAside, workerTrusted, workerUntrusted, workerRanks, workerDepth, workerAge,
		workerInFlight, workerSince, workerUnstarted, workerPending, workerPicks, workerLeaked,
		workerReports, workerFlawed, workerDropped,
	}

	rankRunning       = gauge("plimsoll_rank_running_requests", "Requests in the running batch, by a fresh report.", "worker", "rank")
	rankWaiting       = gauge("plimsoll_rank_waiting_requests", "Requests queued, by a fresh report.", "worker", "rank")
	rankWaitingTokens = gauge("plimsoll_rank_waiting_prompt_tokens", "Prompt tokens queued that are still to be computed, by a fresh report.", "worker", "rank")
	rankMaxRunning    = gauge("plimsoll_rank_max_running_requests", "Requests that the engine runs at most at once, by a fresh report.", "worker", "rank")
	rankKVUsage       = gauge("plimsoll_rank_kv_usage_ratio", "Share of the KV cache in use, by a fresh report.", "worker", "rank")
	rankAge           = gauge("plimsoll_rank_report_age_seconds", "Age of the newest report.", "worker", "rank")
	rankInFlight      = gauge("plimsoll_rank_in_flight_requests", "Own requests in flight that this rank was chosen for.", "worker", "rank")
	rankPrefill       = counter("plimsoll_rank_prefill_tokens_total", "Prompt tokens that the engine says it has computed.", "worker", "rank")
	rankPrefillBusy   = counter("plimsoll_rank_prefill_busy_seconds_total", "Time that the engine says it has spent on computing them.", "worker", "rank")

	rankFamilies = []*family{
		rankRunning, rankWaiting, rankWaitingTokens, rankMaxRunning, rankKVUsage, rankAge, rankInFlight,
		rankPrefill, rankPrefillBusy,
	}
)

// reasons are those for which a worker is not trusted.
var reasons = func() (all []reason) {
	for w := load.Trusted + 1; w.String() != load.Why(255).String(); w++ {
		all = append(all, reason{w, pair("reason", w.String())})
	}
	return all
}()

type reason struct {
	why   load.Why
	label *dto.LabelPair
}

// workerLabels has the label of each worker that has series of its own. Whatever else is
// told of a worker is told of these alone.
type workerLabels map[string]*dto.LabelPair

func (l workerLabels) add(id string) { l[id] = pair("worker", labelOf(id)) }

func (c *Collector) worker(to sink, w *load.WorkerStatus, label *dto.LabelPair) {
	putBool(to, workerHealthy, w.Healthy, label)
	putBool(to, workerAside, w.Aside, label)
	putBool(to, workerTrusted, w.Trusted, label)
	for _, r := range reasons {
		putBool(to, workerUntrusted, w.Why == r.why, r.label, label)
	}
	if w.Advertised > 0 {
		put(to, workerRanks, w.Advertised, label)
	}
	putMaybe(to, workerDepth, w.Depth, label)
	if hasAge(w) {
		put(to, workerAge, w.Age.Seconds(), label)
		put(to, workerSince, w.SinceReport, label)
	}
	put(to, workerInFlight, w.InFlight, label)
	put(to, workerUnstarted, w.Unstarted, label)
	put(to, workerPending, w.PendingTokens, label)
	put(to, workerPicks, w.Picked, label)
	put(to, workerLeaked, w.Leaked, label)

	var reports, flawed uint64
	dropped := make(map[string]uint64)
	for i := range w.Ranks {
		r := &w.Ranks[i]
		reports += r.Reports
		flawed += r.Flawed
		for reason, n := range r.Dropped {
			dropped[c.reasons.label(reason)] += n
		}
	}
	put(to, workerReports, reports, label)
	put(to, workerFlawed, flawed, label)
	for reason, n := range dropped {
		put(to, workerDropped, n, pair("reason", reason), label)
	}
}

// hasAge reports whether the age of a worker is that of some report.
func hasAge(w *load.WorkerStatus) bool {
	for i := range w.Ranks {
		if rankHasAge(w, &w.Ranks[i]) {
			return true
		}
	}
	return false
}

// rankHasAge reports whether it matters how old the newest report of a rank is. A rank that
// is quiet is idle now, whatever was reported when.
func rankHasAge(w *load.WorkerStatus, r *load.RankStatus) bool {
	return r.Report != nil && !(w.Owned && r.Quiet)
}

// putRank tells nothing of a report that has gone stale but its age: what it said is not
// known any more, and a line that goes on at the same height would look alive.
func putRank(to sink, w *load.WorkerStatus, r *load.RankStatus, worker *dto.LabelPair) {
	labels := []*dto.LabelPair{pair("rank", strconv.Itoa(r.Rank)), worker}
	put(to, rankInFlight, r.InFlight, labels...)
	if rankHasAge(w, r) {
		put(to, rankAge, r.Age.Seconds(), labels...)
	}
	if r.Report == nil || !r.Fresh {
		return
	}
	put(to, rankRunning, r.Report.Running, labels...)
	put(to, rankWaiting, r.Report.Waiting, labels...)
	putMaybe(to, rankWaitingTokens, r.Report.WaitingTokens, labels...)
	putMaybe(to, rankMaxRunning, r.Report.MaxRunning, labels...)
	putMaybe(to, rankKVUsage, kvUsage(r.Report), labels...)
	putMaybe(to, rankPrefill, r.Report.PrefillTokens, labels...)
	if us, ok := r.Report.PrefillBusyUS.Get(); ok {
		put(to, rankPrefillBusy, float64(us)/1e6, labels...)
	}
}

// kvUsage is the share in use, also where only its parts are told.
func kvUsage(r *load.Report) load.Maybe[float64] {
	used, ok := r.KVUsed.Get()
	if _, told := r.KVUsage.Get(); told || !ok || r.KVCapacity.Or(0) <= 0 {
		return r.KVUsage
	}
	return load.Known(float64(used) / float64(r.KVCapacity.Or(0)))
}
