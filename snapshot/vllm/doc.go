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
// # What a message speaks of
//
// Outputs.Kind says it. A KindBatch speaks of the rank in EngineIndex. A
// KindUtilityReply answers a call of the front end and a KindWaveNotice concerns
// all ranks at once: neither says anything of a rank, and the index in a reply
// is 0 from some versions whatever rank sent it. They never have a load or
// finished ids.
//
// # Unknown is not zero
//
// A batch without scheduler statistics, or with statistics that lack a count, has
// no load, which is not a load of 0. Statistics that cannot be right are refused
// by themselves, in LoadErr, because the requests that the batch ends have ended
// all the same. A KV usage that is missing is unknown, and one that is no number
// from 0 to 1 is refused in the same way; the counts beside it stand.
//
// # Versions
//
// The message is an array that grows at its end, and so is each of its outputs,
// within which positions have moved besides. Only what has kept its place is
// read, and the finish reason from either of the two places it has had; the rest
// is skipped. Engines from before there was an engine index are refused.
//
// # Next to package tokenspeed
//
// What both packages have is called and behaves alike: Split, EngineIndex, Load,
// LoadErr, Requests, Len, At, Finished and Reasons, the reasons themselves, the
// errors. A number that can be missing while its neighbours are there, which only
// vLLM has, is a Maybe.
//
// There is one type for all of a message, since what is wanted of an output lies
// at its beginning. The ids of tokens are left in the payload until they are asked
// for, and are no part of what is checked before that: a router that passes
// outputs on only has to count them.
//
// # Hostile input
//
// An engine is not trusted. Payloads are bounded by MaxPayload, the requests of a
// message by MaxRequests, the nesting of what is skipped by a limit of its own,
// and no header is believed beyond the bytes that follow it. Decoding into a
// reused value allocates nothing once it has grown to the size of the messages,
// and an error allocates the error.
//
// # Concurrency
//
// The functions may be called from any goroutine. An Outputs belongs to one
// goroutine at a time; it is meant to be reused. Request ids are not copied: they
// point into the payload, which must not change as long as they are used, and is
// kept from the garbage collector until the value is decoded into again or reset.
//
// # What it does not do
//
// It opens no socket, keeps no state between messages and never looks at the
// clock. It does not look at what a front end needs besides tokens to answer
// requests: logprobs, tensors and the frames that hold them. Nothing else that an
// engine sends is read here, be it KV events or metrics.
package vllm
