package tswire

import (
	"encoding/hex"
	"reflect"
	"testing"

	"github.com/tinylib/msgp/msgp"
)

// A whole request as the engine's own encoder writes it: temperature 0.5, top_p
// 0.9, at most 8 tokens, stop token 2, seed 42.
const wholeRequest = "dc0018b9546f6b656e697a656447656e6572617465526571496e707574a57665632d31c0c093010203" +
	"dc001d08c09102cb3fe0000000000000cb3feccccccccccccdce40000000cb0000000000000000cb0000000000000000cb0000000000000000cb3ff0000000000000" +
	"00c0c0c0c0c2c3c3c2c0c0c0c02ac0019000c3" +
	"c3ff00c0c3c0c0c0c2cb0000000000000000c0c0c0c0c0c0c0c0"

func unhex(t *testing.T, text string) []byte {
	t.Helper()
	b, err := hex.DecodeString(text)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func TestRequestOfTheEnginesOwnEncoder(t *testing.T) {
	got, err := readAdd(unhex(t, wholeRequest))
	if err != nil {
		t.Fatal(err)
	}
	if want := (Request{ID: "vec-1", Prompt: []int64{1, 2, 3}, MaxNewTokens: 8, Stream: true}); !reflect.DeepEqual(got, want) {
		t.Errorf("%+v, want %+v", got, want)
	}
}

func TestAbortOnTheWire(t *testing.T) {
	const want = "91a57265712d31"
	if got := hex.EncodeToString(appendAbort(nil, []string{"req-1"})); got != want {
		t.Errorf("%s, want %s", got, want)
	}
}

func TestIdentityOnTheWire(t *testing.T) {
	if got := hex.EncodeToString(identityOf(0x1234)); got != "3412" {
		t.Errorf("%s, want 3412", got)
	}
	for _, bad := range []string{"", "a", "abc", "\x00abcd"} {
		if _, ok := indexOf([]byte(bad)); ok {
			t.Errorf("%q is an identity", bad)
		}
	}
}

// What goes out comes back, and a message that breaks off anywhere is refused:
// each of them lacks something that is required, or is in the middle of a value.
func TestMessages(t *testing.T) {
	request := Request{ID: "a", Prompt: []int64{1, 200, 70_000}, MaxNewTokens: 300, IgnoreEOS: true, Stream: true, StreamInterval: 8}
	short := Request{ID: "b", Prompt: []int64{1}}
	ready := Ready{
		Model: "m", Version: "v", Rank: 1, Ranks: 2, MaxModelLen: 3, MaxRunning: 4,
		MaxBatch: 5, KVPages: 6, PageTokens: 7, KVCacheTokens: 8,
	}
	addresses := addresses{"tcp://127.0.0.1:1", "tcp://127.0.0.1:2"}
	abort := []string{"a", "b"}
	for _, tt := range []struct {
		name    string
		payload []byte
		read    func([]byte) (any, error)
		want    any
	}{
		{"request", request.append(nil), func(b []byte) (any, error) { return readAdd(b) }, request},
		{"request with defaults", short.append(nil), func(b []byte) (any, error) { return readAdd(b) }, short},
		{"abort", appendAbort(nil, abort), func(b []byte) (any, error) { return readAbort(b) }, abort},
		{"HELLO", appendStatus(nil, statusHello), func(b []byte) (any, error) { return readStatus(b) }, statusHello},
		{"INIT", appendInit(nil, addresses), func(b []byte) (any, error) { return readInit(b) }, addresses},
		{"ready", ready.append(nil), func(b []byte) (any, error) { return readReady(b) }, ready},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got, err := tt.read(tt.payload)
			if err != nil {
				t.Fatal(err)
			}
			if !reflect.DeepEqual(got, tt.want) {
				t.Errorf("%+v, want %+v", got, tt.want)
			}
			for n := range tt.payload {
				if got, err := tt.read(tt.payload[:n]); err == nil {
					t.Errorf("%d of %d bytes make %+v", n, len(tt.payload), got)
				}
			}
		})
	}
}

// Both sides may know more than the other.
func TestMapsWithMoreThanIsKnown(t *testing.T) {
	b := msgp.AppendMapHeader(nil, 4)
	b = msgp.AppendNil(msgp.AppendString(b, "status"))
	b = msgp.AppendMapHeader(msgp.AppendString(b, "kv_events_config"), 0)
	b = msgp.AppendInt64(msgp.AppendString(b, "prefix_granularity"), 256)
	b = msgp.AppendNil(msgp.AppendString(b, "kv_cache_size_tokens"))
	ready, err := readReady(b)
	if err != nil || ready != (Ready{PageTokens: 256}) {
		t.Errorf("%+v, %v", ready, err)
	}
	if status, err := readStatus(b); err != nil || status != "" {
		t.Errorf("%q, %v", status, err)
	}
	if _, err := readInit(b); err == nil {
		t.Error("an INIT without addresses was accepted")
	}
}

func TestCommandsThatMakeNoSense(t *testing.T) {
	good := Request{ID: "a", Prompt: []int64{1}}
	for name, frames := range map[string][][]byte{
		"no frames":         {},
		"no payload":        {typeAdd},
		"unknown type":      {{7}, appendAbort(nil, nil)},
		"long type":         {{0, 0}, good.append(nil)},
		"other tag":         {typeAdd, msgp.AppendString(msgp.AppendArrayHeader(nil, 1), "AbortReq")},
		"no id":             {typeAdd, (&Request{Prompt: []int64{1}}).append(nil)},
		"no prompt":         {typeAdd, (&Request{ID: "a"}).append(nil)},
		"2^32-1 ids":        {typeAbort, {0xdd, 0xff, 0xff, 0xff, 0xff}},
		"2^32-1 pairs":      {typeAdd, {0xdf, 0xff, 0xff, 0xff, 0xff}},
		"abort of a number": {typeAbort, {0x91, 0x01}},
	} {
		if c, err := readCommand(frames); err == nil {
			t.Errorf("%s: %+v", name, c)
		}
	}
	if _, err := readCommand([][]byte{typeAdd, good.append(nil), []byte("a tensor")}); err != nil {
		t.Errorf("a third frame: %v", err)
	}
}
