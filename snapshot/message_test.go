package snapshot

import (
	"bytes"
	"errors"
	"math"
	"testing"
)

func TestSplitRefusesWhatIsNotAMessage(t *testing.T) {
	seq := []byte{0, 0, 0, 0, 0, 0, 0, 7}
	payload := []byte{0x80}
	for _, tt := range []struct {
		name   string
		frames [][]byte
		want   error
		field  string
	}{
		{"no frames", nil, ErrFrameCount, ""},
		{"two frames", [][]byte{seq, payload}, ErrFrameCount, ""},
		{"four frames", [][]byte{nil, seq, payload, nil}, ErrFrameCount, ""},
		{"an empty sequence", [][]byte{nil, nil, payload}, ErrSeqSize, "seq"},
		{"a sequence of seven bytes", [][]byte{nil, seq[1:], payload}, ErrSeqSize, "seq"},
		{"a sequence of nine bytes", [][]byte{nil, append([]byte{0}, seq...), payload}, ErrSeqSize, "seq"},
		{"the end of the stream", [][]byte{nil, bytes.Repeat([]byte{0xff}, 8), nil}, ErrEndOfStream, "seq"},
		{"a payload above the limit", [][]byte{nil, seq, make([]byte, MaxPayload+1)}, ErrPayloadSize, "payload"},
	} {
		m, err := Split(tt.frames)
		var d *DecodeError
		if !errors.As(err, &d) || d.Err != tt.want || d.Type != "message" || d.Field != tt.field {
			t.Errorf("%s: got %v, want %v", tt.name, err, tt.want)
		}
		if m.Topic != nil || m.Payload != nil || m.Seq != 0 {
			t.Errorf("%s: got %+v together with an error", tt.name, m)
		}
	}
}

func TestSplitTakesEveryTopicAndEverySequenceButTheReservedOne(t *testing.T) {
	limit := make([]byte, MaxPayload)
	for _, topic := range []string{"", "load", "anything"} {
		// 500 and then 0 is a publisher that has restarted: its values are valid at once.
		for _, seq := range []int64{0, 1, 500, 0, math.MaxInt64, math.MinInt64, -2} {
			m, err := Split(Join(nil, topic, seq, limit))
			if err != nil || m.Seq != seq || string(m.Topic) != topic || len(m.Payload) != MaxPayload {
				t.Errorf("topic %q, seq %d: got seq %d, %v", topic, seq, m.Seq, err)
			}
		}
	}
}

func TestAReadingRecognisesTheMessageByItsFirstByte(t *testing.T) {
	for _, tt := range []struct {
		name    string
		payload []byte
		kind    Kind
		want    error
	}{
		{"an idle snapshot, as some builds write it", []byte{0x80}, KindLoadSnapshot, nil},
		{"an idle snapshot, as the engine writes it", []byte{0xde, 0, 0}, KindLoadSnapshot, nil},
		{"a snapshot with the longest header", []byte{0xdf, 0, 0, 0, 0}, KindLoadSnapshot, nil},
		{"a stat", stat(1, 2, 3, 4), KindLoadStat, nil},
		{"a stat with the 16-bit header", append([]byte{0xdc, 0, 5}, stat(1, 2, 3, 4)[1:]...), KindLoadStat, nil},
		{"an empty frame", nil, KindUnknown, ErrTruncated},
		{"nil", []byte{0xc0}, KindUnknown, ErrNotLoad},
		{"a number", []byte{7}, KindUnknown, ErrNotLoad},
		{"text", []byte("ENGINE_CORE_DEAD"), KindUnknown, ErrNotLoad},
		{"a byte msgpack does not use", []byte{0xc1}, KindUnknown, ErrNotLoad},
		{"a broken snapshot", wire([]pair{{"num_running_reqs", -1}}), KindUnknown, ErrNegative},
		{"a broken stat", stat(-1, 0, 0, 0), KindUnknown, ErrNegative},
	} {
		r := Reading{Kind: KindLoadStat} // what is left from the message before
		err := r.Decode(tt.payload)
		if r.Kind != tt.kind || !errors.Is(err, tt.want) {
			t.Errorf("%s: got %v, %v, want %v, %v", tt.name, r.Kind, err, tt.kind, tt.want)
		}
		var d *DecodeError
		if err != nil && !errors.As(err, &d) {
			t.Errorf("%s: %v is not a DecodeError", tt.name, err)
		}
	}
}
