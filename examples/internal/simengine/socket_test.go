package simengine

import (
	"encoding/json"
	"reflect"
	"testing"
	"time"

	zmq "github.com/pebbe/zmq4"

	"github.com/plimsoll-go/plimsoll/snapshot"
)

// One state, told three ways: by the socket, by /v1/loads and by the Engine.
func TestSocketAndLoadsTellTheSame(t *testing.T) {
	for _, wire := range []Wire{WireLoadStat, WireLoadSnapshot} {
		t.Run(wire.String(), func(t *testing.T) {
			e := busy(t, wire)
			told := loadsOf(t, e, "")
			for rank, own := range e.Loads() {
				r := subscribe(t, e.LoadEndpoints()[rank]).next(t)
				var got any
				var want any
				if wire == WireLoadStat {
					if r.Kind != snapshot.KindLoadStat || r.topic != "load" {
						t.Errorf("rank %d: %v under topic %q", rank, r.Kind, r.topic)
					}
					got, want = r.Stat, statOf(&own)
				} else {
					if r.Kind != snapshot.KindLoadSnapshot || r.topic != "" {
						t.Errorf("rank %d: %v under topic %q", rank, r.Kind, r.topic)
					}
					// What a sender marks and what a receiver finds marked is not the same,
					// and the clock goes on.
					own.Timestamp = r.Snapshot.Timestamp
					own.Present = r.Snapshot.Present
					own.DecodeMoments = r.Snapshot.DecodeMoments
					got, want = r.Snapshot, own
				}
				if !reflect.DeepEqual(got, want) {
					t.Errorf("rank %d: the socket says\n%+v, the engine\n%+v", rank, got, want)
				}
				// The same as JSON, which is what a poller gets.
				own.Timestamp = told[rank]["timestamp"].(float64)
				own.DecodeMoments = nil
				b, err := json.Marshal(toJSON(&own, func(string) bool { return true }))
				if err != nil {
					t.Fatal(err)
				}
				var asJSON map[string]any
				if err := json.Unmarshal(b, &asJSON); err != nil {
					t.Fatal(err)
				}
				if !reflect.DeepEqual(asJSON, told[rank]) {
					t.Errorf("rank %d: /v1/loads says\n%v, the engine\n%v", rank, told[rank], asJSON)
				}
			}
		})
	}
}

func TestSocketFollowsARequestThroughTheEngine(t *testing.T) {
	e := start(t, Config{Speed: standstill})
	s := subscribe(t, e.LoadEndpoints()[0])
	idle := s.next(t)
	if idle.Stat.NumRunningReqs != 0 || idle.Stat.MaxTotalNumTokens != 400_000 || idle.Stat.MaxRunningRequests != 256 {
		t.Errorf("idle: %+v", idle.Stat)
	}
	inBackground(t, e, `{"prompt":[1,2,3],"max_tokens":4}`)
	s.until(t, func(r reading) bool {
		return r.Stat.NumRunningReqs == 1 && r.Stat.NumTokens == 3 && r.Stat.NumWaitingUncachedTokens == 3
	})
	if err := e.SetSpeed(1 / standstill); err != nil {
		t.Fatal(err)
	}
	done := s.until(t, func(r reading) bool { return r.Stat.NumRunningReqs == 0 })
	if done.Stat.NumTokens != 0 || done.Stat.TotalPrefillUncachedTokens != 3 || done.Stat.TotalPrefillBusyUS == 0 {
		t.Errorf("done: %+v", done.Stat)
	}
	if done.seq <= idle.seq {
		t.Errorf("seq went from %d to %d", idle.seq, done.seq)
	}
}

func TestEveryMessageHasTheNextSeq(t *testing.T) {
	e := fast(t, Config{Wire: WireLoadSnapshot})
	s := subscribe(t, e.LoadEndpoints()[0])
	seq := s.next(t).seq
	for range 5 {
		seq++
		if got := s.next(t).seq; got != seq {
			t.Fatalf("seq %d, want %d", got, seq)
		}
	}
}

// The bytes of the first messages, without TCP, where a subscriber is always late.
func TestFirstMessagesOnTheWire(t *testing.T) {
	for _, tt := range []struct {
		wire  Wire
		topic string
	}{{WireLoadStat, "load"}, {WireLoadSnapshot, ""}} {
		t.Run(tt.wire.String(), func(t *testing.T) {
			zctx, err := zmq.NewContext()
			if err != nil {
				t.Fatal(err)
			}
			pub, err := zctx.NewSocket(zmq.PUB)
			if err != nil {
				t.Fatal(err)
			}
			sub, err := zctx.NewSocket(zmq.SUB)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { pub.Close(); sub.Close(); zctx.Term() })
			for _, err := range []error{sub.SetRcvtimeo(patience), sub.SetSubscribe(""), pub.Bind("inproc://load"), sub.Connect("inproc://load")} {
				if err != nil {
					t.Fatal(err)
				}
			}
			r := newRank(3, tick, 1, func() {})
			o := outlet{rank: r, socket: pub, cadence: cadence{wire: tt.wire}}
			now := time.Unix(1000, 0)
			for seq := range byte(3) {
				if err := o.sendLoad(now.Add(time.Duration(seq) * time.Second)); err != nil {
					t.Fatal(err)
				}
				frames, err := sub.RecvMessageBytes(0)
				if err != nil {
					t.Fatal(err)
				}
				if len(frames) != 3 || string(frames[0]) != tt.topic || string(frames[1]) != string([]byte{0, 0, 0, 0, 0, 0, 0, seq}) {
					t.Fatalf("message %d is %q", seq, frames)
				}
				m, err := read(frames)
				if err != nil {
					t.Fatal(err)
				}
				if m.Snapshot.DPRank+m.Stat.AttnDPRank != 3 {
					t.Errorf("message %d names another rank: %+v", seq, m)
				}
			}
		})
	}
}

func TestPublisherComesBackWhenSomethingIsDue(t *testing.T) {
	p := newPublisher(publisherConfig{ranks: 1, wire: WireLoadStat})
	now := time.Unix(1000, 0)
	if d := p.publish(now, nil); d != statHeartbeat {
		t.Errorf("with nothing to send: %v, want %v", d, statHeartbeat)
	}
	p.mute(allRanks, now.Add(300*time.Millisecond))
	outlets := []outlet{{cadence: cadence{wire: WireLoadStat}}}
	if d := p.publish(now, outlets); d != 300*time.Millisecond {
		t.Errorf("muted: %v, want the end of the mute", d)
	}
	// A mute must not lose what happens during it.
	p.mark(0)
	p.publish(now, outlets)
	if !outlets[0].cadence.marked {
		t.Error("a mark was lost")
	}
}
