// Package tokenspeed reads and writes the output batches of TokenSpeed engines:
// BatchTokenIDOutSlim, the message in which a rank sends the tokens of every
// request that it has made progress on, and with them its load.
//
// # Use
//
// Split takes the frames of a message apart and tells a batch from the news that
// the engine has died. A router that only passes the payload on reads what it
// needs of it into a Summary:
//
//	payload, err := tokenspeed.Split(frames)
//	if err == nil {
//		err = summary.Decode(payload)
//	}
//
// One that needs the tokens decodes a Batch, which contains the Summary. Append
// goes the other way, for simulated engines and tests, and writes the bytes the
// engine writes.
//
// # Older and newer engines
//
// The array has grown at its end and will grow again: 9 elements, then 10 with
// the rank, then 14 with the load. What a sender leaves off is absent, so that an
// incomplete load is no load; what is not known here is skipped.
//
// # What can go wrong, and what is left then
//
// A load that cannot be true (more pages in use than there are, a negative count)
// is refused by itself, in Summary.LoadErr, because the requests that the batch
// ends have ended all the same. A batch whose columns differ in length is
// refused, yet if the two columns that say who has finished match each other
// they are there to be used: a request that is never released counts as load for
// ever. Anything else that is wrong refuses all of it.
//
// A Summary does not look into the columns that it does not need, only for where
// they end. So it may accept what a Batch refuses, never the other way round.
//
// # Hostile input
//
// An engine is not trusted. Payloads are bounded by MaxPayload, the nesting of
// values that are skipped by 32, and no header is believed beyond the bytes that
// follow it. A Batch stores nothing before all of the payload has been stepped
// over, so what it keeps is at most 16 times what was sent. Decoding into a
// reused value allocates nothing once it has grown to the size of the batches,
// and an error allocates the error.
//
// # Concurrency
//
// The functions may be called from any goroutine. A value belongs to one
// goroutine at a time; it is meant to be reused. Request ids are not copied: they
// point into the payload, which must not change as long as they are used, and is
// kept from the garbage collector until the value is decoded into again or reset.
//
// # What it does not do
//
// It opens no socket, keeps no state between messages and never looks at the
// clock. That an engine index belongs to a rank, that an id is in flight, and
// that a finished request does not come again, is for the caller to know.
package tokenspeed
