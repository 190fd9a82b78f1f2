// Package loadprom tells Prometheus what is known of the workers in a [load.Table], how
// the picks among them come about, and what a policy has learned of them.
//
//	picks, firstToken, pickTime := new(loadprom.Picks), loadprom.NewFirstToken(), loadprom.NewPickDuration()
//	prometheus.MustRegister(picks, firstToken, pickTime, loadprom.New(table, loadprom.Config{
//		Policy:     func() selector.Policy { return policy },
//		Subscriber: func() loadprom.Counts { return loadprom.Counts(subscriber.Stats().Counts) },
//		Fleet:      fleet.Status,
//	}))
//	http.Handle("/metrics", promhttp.Handler())
//
// For each request the host then calls [Picks.Observe] or [Picks.Failed], and has the
// histograms observe what it measures. Several tables in one process are told apart by
// prometheus.WrapRegistererWith.
//
// Beside this file there are a dashboard for Grafana, grafana/plimsoll.json, and alerting
// rules, alerts.yml.
//
// # Metrics
//
// Of the fleet:
//
//	plimsoll_workers                       in the table
//	plimsoll_trusted_workers               of those, whose reports are trusted
//	plimsoll_untrusted_workers{reason}     and whose are not: all reasons of load.Why, also with 0
//	plimsoll_report_window_seconds         age up to which a report is fresh
//	plimsoll_omitted_workers               that have no series of their own, see Config
//	plimsoll_omitted_ranks                 likewise
//
// Of each worker:
//
//	plimsoll_worker_healthy{worker}                          0 or 1: see load.Worker.SetHealthy
//	plimsoll_worker_set_aside{worker}                        0 or 1: see load.Worker.SetAside
//	plimsoll_worker_trusted{worker}                          0 or 1
//	plimsoll_worker_untrusted{worker,reason}                 0 or 1: all reasons, of which at most one is 1
//	plimsoll_worker_ranks{worker}                            advertised; absent if none are
//	plimsoll_worker_depth_requests{worker}                   running and waiting on all ranks; absent unless trusted
//	plimsoll_worker_report_age_seconds{worker}               of the oldest rank's newest report; absent without any
//	plimsoll_worker_in_flight_requests{worker}               own requests, picked and not done
//	plimsoll_worker_uncounted_requests{worker}               of those, that the reports cannot have counted; absent without any
//	plimsoll_worker_unstarted_requests{worker}               of those in flight, without a first token
//	plimsoll_worker_pending_prompt_tokens{worker}            of those, the prompts, where known
//	plimsoll_worker_picks_total{worker}                      own requests so far
//	plimsoll_worker_leaked_picks_total{worker}               of those, dropped by the host without Done
//	plimsoll_worker_reports_total{worker}                    taken
//	plimsoll_worker_flawed_reports_total{worker}             of those, with something made unknown
//	plimsoll_worker_dropped_messages_total{worker,reason}    not taken
//	plimsoll_worker_speed_ratio{worker}                      learned: 0.5 takes twice as long as the average; absent before the first sample
//	plimsoll_worker_speed_requests{worker}                   what that is learned from
//	plimsoll_worker_ask_failures{worker}                     times in a row that it could not be asked what it publishes
//
// Of each rank. All but the age and the own requests are what its newest report says, and
// absent where it does not say, where there is none, and as soon as it is stale:
//
//	plimsoll_rank_running_requests{worker,rank}              in the batch
//	plimsoll_rank_waiting_requests{worker,rank}              in the queue
//	plimsoll_rank_waiting_prompt_tokens{worker,rank}         of those, still to be computed
//	plimsoll_rank_max_running_requests{worker,rank}          that it runs at most at once
//	plimsoll_rank_kv_usage_ratio{worker,rank}                share of the KV cache in use
//	plimsoll_rank_prefill_tokens_total{worker,rank}          prompt tokens computed, by the engine's count
//	plimsoll_rank_prefill_busy_seconds_total{worker,rank}    spent on them
//	plimsoll_rank_report_age_seconds{worker,rank}            of the newest report; absent without any
//	plimsoll_rank_in_flight_requests{worker,rank}            own requests that the rank was chosen for
//
// Of picks, by [Picks] and by what the host measures:
//
//	plimsoll_picks_total{policy,reason,basis}    see selector.Reason and selector.Basis
//	plimsoll_failed_picks_total                  there was no worker to pick
//	plimsoll_first_token_seconds                 histogram: from a pick to its first token
//	plimsoll_pick_duration_seconds               histogram: what a pick takes
//
// Of what the policy goes by, where it is a selector.Learner; see selector.Learned:
//
//	plimsoll_learned_prompt_token_seconds    that a prompt token takes on a rank of speed 1
//	plimsoll_learned_base_seconds            that the first token takes besides
//	plimsoll_learned_request_seconds         that a request there is worth
//	plimsoll_learned_first_token_seconds     mean time from a pick to its first token
//	plimsoll_learned_response_seconds        mean time from a pick to its end
//	plimsoll_learned_prompt_tokens           of the mean request
//	plimsoll_learned_replicas                of the gateway
//	plimsoll_learned_others_requests         on the average rank
//	plimsoll_learned_bias_seconds            by which a worker outside of the slice has to be better
//	plimsoll_learned_away_ratio              by how much longer than expected a request waits there
//
// Of the subscriber, over all its subscriptions, ended ones included:
//
//	plimsoll_subscriber_messages_total                    received
//	plimsoll_subscriber_delivered_messages_total          handed on
//	plimsoll_subscriber_superseded_messages_total         not looked at, since a newer one was there
//	plimsoll_subscriber_dropped_messages_total{reason}    no report
//	plimsoll_subscriber_reconnects_total                  fresh connections because of silence
//
// Of each load socket that is subscribed now, since it was:
//
//	plimsoll_endpoint_messages_total{endpoint}      received
//	plimsoll_endpoint_reconnects_total{endpoint}    fresh connections because of silence
//	plimsoll_omitted_endpoints                      that have no series of their own, see Config
//
// Of each worker that the host drives through a load.Connector:
//
//	plimsoll_connector_requests_total{worker}                   that ranks were reserved for
//	plimsoll_connector_ended_requests_total{worker,by}          of those, by a batch, a release, an abort or a failure
//	plimsoll_connector_refused_requests_total{worker}           whose id was in flight
//	plimsoll_connector_unknown_ends_total{worker}               ids that batches ended and that were not in flight
//	plimsoll_connector_batches_total{worker}                    taken
//	plimsoll_connector_loadless_batches_total{worker}           of those, without a load
//	plimsoll_connector_dropped_messages_total{worker,reason}    not taken, or not their load
//	plimsoll_connector_rank_score{worker,rank}                  what the next reservation compares the rank by
//	plimsoll_connector_rank_silenced_total{worker,rank}         times that its last word was overruled
//
// Of discovery:
//
//	plimsoll_source_workers{source}    that it named last
//	plimsoll_source_problem{source}    0 or 1: something is wrong, and what it named last stays
//	plimsoll_refused_workers           named, and not to be used
//
// # Unknown is absent
//
// What is not known has no sample: it is not 0. So sums over ranks come out too small where
// one of them is silent, and plimsoll_worker_depth_requests is what to plot for a worker.
// Whether a worker is trusted, and if not why, are gauges that are there for every reason
// all the time, since an alert that waits needs a series that stays, and a reason that
// came and went would leave no 0 behind.
//
// # Bounds
//
// A worker that has left the table has no series any more, counters included: everything is
// made from one [load.Table.Status] in each scrape. One that comes back counts from 0.
// Workers and ranks with series of their own are bounded (see [Config]), and so are the
// values of the labels: reasons of drops and policies come from code and not from a
// peer, and past the first 64 and 16 of them are called other. An id that no label can
// hold, because it is long or not UTF-8, is cut and ends in ~ and a hash.
//
// # Concurrency
//
// Everything is safe for concurrent use. Picks wait for no scrape and reports for one
// Status, some milliseconds with 1,000 workers of 8 ranks. There is no goroutine.
//
// # What it does not do
//
// It registers nothing and serves nothing. Ids of workers are URLs by default: keep
// /metrics off the public side. Histograms have no label for the worker, for the sake of
// their number: that a worker is slow shows in its learned speed.
package loadprom
