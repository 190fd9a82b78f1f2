package snapshot

import "encoding/binary"

// Message is what the load socket carries: three frames. Topic and Payload
// refer to the frames they came from.
type Message struct {
	Topic   []byte // empty or "load"; nothing else is on the socket, so nobody routes on it
	Seq     int64  // from 0, again from 0 when the publisher restarts
	Payload []byte // one msgpack value, for Reading.Decode
}

const (
	messageFrames = 3
	seqSize       = 8
	endOfStream   = -1
)

// Split takes a message apart. Every error is a *DecodeError around
// ErrFrameCount, ErrSeqSize, ErrEndOfStream or ErrPayloadSize.
//
// A sequence number lower than the one before is no error: the publisher has
// restarted, and load is a gauge whose last value counts.
func Split(frames [][]byte) (Message, error) {
	if len(frames) != messageFrames {
		return Message{}, &DecodeError{Type: messageType, Err: ErrFrameCount}
	}
	topic, seq, payload := frames[0], frames[1], frames[2]
	if len(seq) != seqSize {
		return Message{}, &DecodeError{Type: messageType, Field: "seq", Err: ErrSeqSize}
	}
	m := Message{Topic: topic, Seq: int64(binary.BigEndian.Uint64(seq)), Payload: payload}
	if m.Seq == endOfStream {
		return Message{}, &DecodeError{Type: messageType, Field: "seq", Err: ErrEndOfStream}
	}
	if len(payload) > MaxPayload {
		return Message{}, &DecodeError{Type: messageType, Field: "payload", Err: ErrPayloadSize}
	}
	return m, nil
}

// Join appends the three frames of a message to dst. The last one is payload
// itself, not a copy.
func Join(dst [][]byte, topic string, seq int64, payload []byte) [][]byte {
	return append(dst, []byte(topic), binary.BigEndian.AppendUint64(nil, uint64(seq)), payload)
}
