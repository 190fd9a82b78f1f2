package snapshot_test

import (
	"errors"
	"fmt"

	"github.com/plimsoll-go/plimsoll/snapshot"
)

// A receiver keeps one Reading per socket and decodes every message into it.
func ExampleReading() {
	var reading snapshot.Reading

	receive := func(frames [][]byte) {
		m, err := snapshot.Split(frames)
		if err == nil {
			err = reading.Decode(m.Payload)
		}
		if err != nil {
			fmt.Println("dropped:", snapshot.Reason(err))
			return
		}
		switch reading.Kind {
		case snapshot.KindLoadSnapshot:
			s := &reading.Snapshot
			fmt.Println(m.Seq, "running", s.NumRunningReqs, "waiting", s.NumWaitingReqs)
		case snapshot.KindLoadStat:
			s := &reading.Stat
			known := s.Present.Has(snapshot.FieldNumWaitingUncachedTokens)
			fmt.Println(m.Seq, "running", s.NumRunningReqs, "waiting", s.NumWaitingReqs, "uncached known", known)
		}
	}

	busy := snapshot.LoadSnapshot{NumRunningReqs: 17, NumWaitingReqs: 5}
	idle := snapshot.LoadSnapshot{}
	old := snapshot.LoadStat{Present: snapshot.StatForm(6), NumRunningReqs: 2}
	broken := snapshot.LoadStat{NumRunningReqs: -2}

	receive(snapshot.Join(nil, "", 0, busy.Append(nil)))
	receive(snapshot.Join(nil, "", 1, idle.Append(nil)))
	receive(snapshot.Join(nil, "load", 2, old.Append(nil)))
	receive(snapshot.Join(nil, "load", 3, broken.Append(nil)))
	receive(snapshot.Join(nil, "load", -1, nil))
	// Output:
	// 0 running 17 waiting 5
	// 1 running 0 waiting 0
	// 2 running 2 waiting 0 uncached known false
	// dropped: negative
	// dropped: end_of_stream
}

// A DecodeError says which value of which field was wrong, and where.
func ExampleDecodeError() {
	broken := snapshot.LoadSnapshot{NumWaitingReqs: -1}

	var s snapshot.LoadSnapshot
	err := s.Decode(broken.Append(nil))

	var d *snapshot.DecodeError
	if errors.As(err, &d) {
		fmt.Println(d.Field, d.Offset, errors.Is(err, snapshot.ErrNegative))
	}
	// Output: num_waiting_reqs 20 true
}
