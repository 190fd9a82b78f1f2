package snapshot_test

import (
	"fmt"

	"github.com/plimsoll-go/plimsoll/snapshot"
)

// Both forms can be written as well, for tests and for engines of one's own.
func ExampleLoadSnapshot() {
	sent := snapshot.LoadSnapshot{NumRunningReqs: 17, NumWaitingReqs: 5}

	var got snapshot.LoadSnapshot
	if err := got.Decode(sent.Append(nil)); err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(got.NumRunningReqs, got.NumWaitingReqs)
	// Output: 17 5
}

// LoadStat is an array that has grown: of an older engine the last fields are not there,
// which is not the same as 0.
func ExampleLoadStat() {
	old := snapshot.LoadStat{Present: snapshot.StatForm(6), NumRunningReqs: 2}

	var got snapshot.LoadStat
	if err := got.Decode(old.Append(nil)); err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println("running", got.NumRunningReqs, got.Present.Has(snapshot.FieldNumRunningReqs))
	fmt.Println("uncached tokens", got.NumWaitingUncachedTokens, got.Present.Has(snapshot.FieldNumWaitingUncachedTokens))
	// Output:
	// running 2 true
	// uncached tokens 0 false
}

// What Split makes of the frames of a message, and Join the other way round.
func ExampleMessage() {
	frames := snapshot.Join(nil, "load", 41, []byte{0x80})
	m, err := snapshot.Split(frames)
	fmt.Println(len(frames), m.Seq, len(m.Payload), err)

	_, err = snapshot.Split(frames[:2])
	fmt.Println(err, "-", snapshot.Reason(err))
	// Output:
	// 3 41 1 <nil>
	// snapshot: message: message does not have three frames - frame_count
}
