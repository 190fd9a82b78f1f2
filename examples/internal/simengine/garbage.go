package simengine

import (
	"bytes"
	"encoding/binary"
	"math"

	"github.com/plimsoll-go/plimsoll/snapshot"
)

// garbage is a message that a subscriber must survive and must not believe.
type garbage struct {
	name   string
	frames [][]byte
}

// garbageKinds lists one message per way in which a load message can be wrong:
// first the framing, then the bytes, then the values.
var garbageKinds = func() []garbage {
	seq := binary.BigEndian.AppendUint64(nil, 7)
	idle := []byte{0x80}
	tagged := func(tag string, rest ...byte) []byte {
		b := append([]byte{0x90 | byte(1+4+1), 0xa0 | byte(len(tag))}, tag...)
		return append(b, rest...)
	}
	count := func(value ...byte) []byte {
		key := "num_running_reqs"
		b := append([]byte{0x81, 0xa0 | byte(len(key))}, key...)
		return append(b, value...)
	}
	float := func(f float64) []byte {
		return binary.BigEndian.AppendUint64([]byte{0xcb}, math.Float64bits(f))
	}
	payload := func(name string, p []byte) garbage {
		return garbage{name, [][]byte{{}, seq, p}}
	}
	return []garbage{
		{"a single frame", [][]byte{idle}},
		{"two frames", [][]byte{seq, idle}},
		{"four frames", [][]byte{{}, seq, idle, idle}},
		{"a seq of four bytes", [][]byte{{}, seq[:4], idle}},
		{"the end of stream seq", [][]byte{{}, binary.BigEndian.AppendUint64(nil, math.MaxUint64), idle}},
		payload("an empty payload", nil),
		payload("a payload over the limit", bytes.Repeat([]byte{0x80}, snapshot.MaxPayload+1)),
		payload("text", []byte("load: 3 running, 4 waiting")),
		payload("a string", []byte("\xa4idle")),
		payload("a map cut off", count(0x05)[:9]),
		payload("an array cut off", tagged("LoadStat", 1, 2)),
		payload("another tag", tagged("KVEvents", 0, 0, 0, 0, 0xc0)),
		payload("an array too short", append([]byte{0x93, 0xa8}, "LoadStat\x01\x02"...)),
		payload("a map that claims 2^32-1 pairs", []byte{0xdf, 0xff, 0xff, 0xff, 0xff}),
		payload("a deep nest", append(append([]byte{0x81, 0xa1, 'x'}, bytes.Repeat([]byte{0x91}, 10_000)...), 0xc0)),
		payload("a negative count in a map", count(0xff)),
		payload("a negative count in an array", tagged("LoadStat", 0xff, 0, 0, 0, 0xc0)),
		payload("a count that is not a number", count(float(math.NaN())...)),
		payload("an infinite count", count(float(math.Inf(1))...)),
		payload("half a request", count(float(0.5)...)),
		payload("a count that is text", count(0xa1, '3')),
	}
}()
