// Package msgpack reads msgpack that nobody vouches for. It adds to msgp what a
// decoder of a peer's messages needs: numbers in whatever form they come, no
// header believed beyond the bytes that follow it, bounded nesting, and causes
// that a counter can be labelled with. Writing is left to msgp, but for
// AppendCount.
//
// Its readers take a payload and an offset and return the offset after the
// value, or one of the causes. An offset instead of a shrinking slice is what
// lets an error say where, and costs nothing while all is well.
package msgpack
