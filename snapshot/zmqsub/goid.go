package zmqsub

import (
	"bytes"
	"runtime"
	"strconv"
)

// goroutineID identifies the calling goroutine. Go does not offer this, and for
// good reason; here it answers the one question that nothing else can: whether
// stop was called from inside the deliver function that it would wait for. If
// the form of the header ever changed the answer would be 0, which is nobody:
// stop would wait as from any other goroutine.
func goroutineID() uint64 {
	var buf [64]byte
	header := buf[:runtime.Stack(buf[:], false)]
	header, _ = bytes.CutPrefix(header, []byte("goroutine "))
	number, _, _ := bytes.Cut(header, []byte(" "))
	id, _ := strconv.ParseUint(string(number), 10, 64)
	return id
}
