package loadprom

import "github.com/plimsoll-go/plimsoll/discovery"

var (
	sourceWorkers  = gauge("plimsoll_source_workers", "Workers that the source named last.", "source")
	sourceProblem  = gauge("plimsoll_source_problem", "Whether something is wrong with the source; then what it named last stays.", "source")
	refusedWorkers = gauge("plimsoll_refused_workers", "Workers that a source names and that cannot be used.")
	askFailures    = gauge("plimsoll_worker_ask_failures", "Times in a row that the worker could not be asked what it publishes.", "worker")

	discoveryFamilies = []*family{sourceWorkers, sourceProblem, refusedWorkers, askFailures}
)

func putDiscovery(to sink, st discovery.Status, labels workerLabels) {
	// Sources need not differ in name: two lists are both called static.
	type source struct {
		workers int
		problem bool
	}
	sources := make(map[string]source, len(st.Sources))
	refused := len(st.Refused)
	for i := range st.Sources {
		s := &st.Sources[i]
		of := sources[s.Source]
		sources[s.Source] = source{of.workers + s.Workers, of.problem || s.Problem != ""}
		refused += len(s.Refused)
	}
	for name, s := range sources {
		label := pair("source", labelOf(name))
		put(to, sourceWorkers, s.workers, label)
		putBool(to, sourceProblem, s.problem, label)
	}
	put(to, refusedWorkers, refused)
	for i := range st.Workers {
		if label := labels[st.Workers[i].ID]; label != nil {
			put(to, askFailures, st.Workers[i].Failures, label)
		}
	}
}
