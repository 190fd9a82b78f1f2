package loadprom

import (
	"time"

	"github.com/plimsoll-go/plimsoll/selector"
)

var (
	learnedPerToken   = gauge("plimsoll_learned_prompt_token_seconds", "What a prompt token takes on a rank of speed 1.")
	learnedBase       = gauge("plimsoll_learned_base_seconds", "What a first token takes besides the prompt tokens before it.")
	learnedPerRequest = gauge("plimsoll_learned_request_seconds", "What a request on a rank is worth.")
	learnedFirstToken = gauge("plimsoll_learned_first_token_seconds", "Mean time from a pick to its first token.")
	learnedResponse   = gauge("plimsoll_learned_response_seconds", "Mean time from a pick to its end.")
	learnedPrompt     = gauge("plimsoll_learned_prompt_tokens", "Prompt tokens of the mean request.")
	learnedReplicas   = gauge("plimsoll_learned_replicas", "Replicas of the gateway, as configured or as many as its share of the load makes.")
	learnedOthers     = gauge("plimsoll_learned_others_requests", "Requests of others on the average rank.")
	learnedBias       = gauge("plimsoll_learned_bias_seconds", "By which a worker outside of the gateway's slice has to be better.")
	learnedAway       = gauge("plimsoll_learned_away_ratio", "By how much longer than expected a request waits outside of the slice.")
	workerSpeed       = gauge("plimsoll_worker_speed_ratio", "Learned speed of the worker's ranks, next to the average one.", "worker")
	workerSpeedFrom   = gauge("plimsoll_worker_speed_requests", "Requests that the speed is learned from, of which the older ones count less.", "worker")

	learnedFamilies = []*family{
		learnedPerToken, learnedBase, learnedPerRequest, learnedFirstToken, learnedResponse, learnedPrompt,
		learnedReplicas, learnedOthers, learnedBias, learnedAway, workerSpeed, workerSpeedFrom,
	}
)

func putLearned(to sink, l selector.Learned, labels workerLabels) {
	for _, d := range [...]struct {
		family *family
		value  time.Duration
	}{
		{learnedPerToken, l.PerToken}, {learnedBase, l.Base}, {learnedPerRequest, l.PerRequest},
		{learnedFirstToken, l.FirstToken}, {learnedResponse, l.Response}, {learnedBias, l.Bias},
	} {
		put(to, d.family, d.value.Seconds())
	}
	put(to, learnedPrompt, l.Prompt)
	put(to, learnedReplicas, l.Replicas)
	put(to, learnedOthers, l.Others)
	put(to, learnedAway, l.Away)

	// A policy learns of a removal with its next pick, which may be a while.
	for _, s := range l.Speeds {
		label := labels[s.Worker]
		if label == nil {
			continue
		}
		put(to, workerSpeedFrom, s.Requests, label)
		if s.Requests > 0 { // else it is only taken to be as fast as the others
			put(to, workerSpeed, s.Speed, label)
		}
	}
}
