// Package vllm reads what a vLLM engine core sends to its front end: the
// EngineCoreOutputs of each step, with which the load of the rank and the ids of
// the requests that have ended come along.
//
// # Use
//
// Split takes the frames of a message apart, Outputs.Decode reads its payload:
//
//	payload, err := vllm.Split(frames)
//	if err == nil {
//		err = outputs.Decode(payload)
//	}
//
// # Whose word it is
//
// Kind says what a message speaks of. A KindBatch speaks of the rank in
// EngineIndex. A KindUtilityReply answers a call and a KindWaveNotice concerns
// all ranks at once: neither says anything about a rank, and the reply carries
// engine index 0 from some versions whatever rank sent it. They have no load and
// no finished ids.
//
// # Unknown is not zero
//
// A batch without scheduler statistics, or with statistics that lack a count, has
// no load, which is not a load of 0. Statistics that cannot be right refuse the
// load, with the cause in LoadErr, and leave the batch standing: what has ended
// has ended. A KV usage that is missing or no ratio is unknown alone.
//
// # Versions
//
// The message is an array that grows at its end, and so is each of its outputs,
// in which positions have moved besides. Only what has kept its place is read:
// everything else is stepped over, whatever it is. Senders that put the outputs
// first, from before there was an engine index, are refused.
//
// # Hostile input
//
// An engine is not trusted. Payloads are bounded by MaxPayload, the requests of a
// message by MaxRequests, the nesting of what is skipped by a limit of its own,
// and no header is believed beyond the bytes that follow it. Decoding into a
// reused value allocates nothing, and an error allocates the error.
//
// # Concurrency
//
// The functions may be called from any goroutine. An Outputs belongs to one
// goroutine at a time and is meant to be reused. The ids in it point into the
// payload it was decoded from: they are good until the next Decode, and as long
// as nobody writes to the payload. Whoever keeps one copies it.
//
// # What it does not do
//
// It opens no socket, keeps no state between messages, and does not touch what a
// front end needs to answer requests with: log probabilities, tensors and the
// frames beside the payload.
package vllm
