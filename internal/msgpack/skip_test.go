package msgpack

import (
	"math"
	"strings"
	"testing"

	"github.com/tinylib/msgp/msgp"
)

// values are one of every form that msgpack has.
var values = []string{
	"\xc0", "\xc2", "\xc3", "\x00", "\x7f", "\xff", "\xe0",
	"\xcc\x80", "\xcd\x01\x00", "\xce\x00\x01\x00\x00", "\xcf\x80\x00\x00\x00\x00\x00\x00\x00",
	"\xd0\x80", "\xd1\x80\x00", "\xd2\x80\x00\x00\x00", "\xd3\x80\x00\x00\x00\x00\x00\x00\x00",
	"\xca\x3f\xc0\x00\x00", "\xcb\x3f\xf8\x00\x00\x00\x00\x00\x00",
	"\xa0", "\xa4text", "\xbf" + strings.Repeat("x", 31), "\xd9\x00", "\xd9\x04text", "\xd9\x20" + strings.Repeat("x", 32),
	"\xda\x00\x04text", "\xda\xff\xff" + strings.Repeat("x", 65535), "\xdb\x00\x00\x00\x04text", "\xdb\x00\x01\x00\x00" + strings.Repeat("x", 65536),
	"\xc4\x02ab", "\xc5\x00\x02ab", "\xc6\x00\x00\x00\x02ab",
	"\xd4\x01a", "\xd5\x01ab", "\xd6\x01abcd", "\xd7\x01abcdefgh", "\xd8\x01abcdefghabcdefgh",
	"\xc7\x00\x01", "\xc8\x00\x01\x01a", "\xc9\x00\x00\x00\x01\x01a",
	"\x90", "\x93\x01\x92\x02\x03\x04", "\x92\xcd\x01\x00\xcb\x3f\xf8\x00\x00\x00\x00\x00\x00", "\x91\xdc\x00\x01\xa1x",
	"\xdc\x00\x00", "\xdc\x00\x01\xc0", "\xdc\x00\x10" + strings.Repeat("\xcc\x80", 16), "\xdd\x00\x00\x00\x00", "\xdd\x00\x00\x00\x01\xc0",
	"\x80", "\x82\xa1a\x81\xa1b\x01\x01\xc0", "\xde\x00\x01\xc0\xc0", "\xdf\x00\x00\x00\x01\xc0\xc0",
	nested(MaxDepth),
}

// nested is nil inside n arrays.
func nested(n int) string { return strings.Repeat("\x91", n) + "\xc0" }

func TestSkippingFindsTheEndOfEveryValueUpToTheDepthLimit(t *testing.T) {
	for _, v := range values {
		p := []byte(v)
		if n, err := Skip(append(p, 0xc0), 0); err != nil || n != len(p) {
			t.Errorf("%.40x: skipped %d of %d bytes, %v", p, n, len(p), err)
		}
		for n := range min(len(p), 100) {
			if i, err := Skip(p[:n:n], 0); err != ErrTruncated || i > n {
				t.Errorf("%.40x cut to %d bytes: %d, %v", p, n, i, err)
			}
		}
	}
	if _, err := Skip([]byte(nested(MaxDepth+1)), 0); err != ErrTooDeep {
		t.Errorf("beyond the depth limit: %v", err)
	}
	if _, err := Skip([]byte("\xc1"), 0); err != ErrType {
		t.Errorf("a byte that msgpack does not use: %v", err)
	}
}

func TestAHeaderIsBelievedAsFarAsThereAreBytesForIt(t *testing.T) {
	arrays := map[int][]string{ // by the number of elements, of a byte each
		3:      {"\x93", "\xdc\x00\x03", "\xdd\x00\x00\x00\x03"},
		0xffff: {"\xdc\xff\xff", "\xdd\x00\x00\xff\xff"},
	}
	for n, headers := range arrays {
		for _, header := range headers {
			p := []byte(header + strings.Repeat("\x00", n))
			if got, i, err := ReadArrayHeader(p, 0); got != n || i != len(header) || err != nil {
				t.Errorf("%x: %d, %d, %v", header, got, i, err)
			}
			if _, i, err := ReadArrayHeader(p[:len(p)-1], 0); i != 0 || err != ErrTruncated {
				t.Errorf("%x one byte short: %d, %v", header, i, err)
			}
		}
	}
	for _, header := range []string{"\x83", "\xde\x00\x03", "\xdf\x00\x00\x00\x03"} {
		p := []byte(header + strings.Repeat("\x00", 6))
		if got, i, err := ReadMapHeader(p, 0); got != 3 || i != len(header) || err != nil {
			t.Errorf("%x: %d, %d, %v", header, got, i, err)
		}
		if _, i, err := ReadMapHeader(p[:len(p)-1], 0); i != 0 || err != ErrTruncated {
			t.Errorf("%x one byte short: %d, %v", header, i, err)
		}
	}
	for _, header := range []string{"\xdd\xff\xff\xff\xff", "\xdd\x80\x00\x00\x00", "\xdc\x00", "\xdd\x00\x00"} {
		if _, i, err := ReadArrayHeader([]byte(header), 0); i != 0 || err != ErrTruncated {
			t.Errorf("%x: %d, %v", header, i, err)
		}
	}
	for _, header := range []string{"\xdf\xff\xff\xff\xff", "\xdf\x80\x00\x00\x00", "\xde\x00", "\xdf\x00\x00"} {
		if _, i, err := ReadMapHeader([]byte(header), 0); i != 0 || err != ErrTruncated {
			t.Errorf("%x: %d, %v", header, i, err)
		}
	}
}

// FuzzSkip compares with msgp's own skipping, which differs in the depth it
// goes to and nothing else, and SkipValues with as many calls of Skip.
func FuzzSkip(f *testing.F) {
	for _, v := range values {
		f.Add([]byte(v), 1)
		f.Add([]byte(v+v), 2)
		f.Add([]byte(v[:len(v)-1]), 1)
	}
	f.Add([]byte("\xc1"), 1)
	f.Add([]byte("\xdf\x80\x00\x00\x00"), 1) // pairs, twice which is 0 in 32 bits
	for _, claim := range []string{"\xdd", "\xdf", "\xdb", "\xc6", "\xc9"} {
		f.Add([]byte(claim+"\xff\xff\xff\xff\x01"), 1)
		f.Add([]byte(claim+"\x80\x00\x00\x00\x01"), 1)
	}
	f.Fuzz(func(t *testing.T, payload []byte, n int) {
		if len(payload) > 1<<16 {
			return
		}
		end, err := Skip(payload, 0)
		rest, wantErr := msgp.Skip(payload)
		switch {
		case err == ErrTooDeep:
		case err == ErrTruncated && math.MaxInt == math.MaxInt32: // where lengths of msgp's wrap around
		case (err == nil) != (wantErr == nil):
			t.Fatalf("%x: %v, msgp says %v", payload, err, wantErr)
		case err == nil && end != len(payload)-len(rest):
			t.Fatalf("%x: %d bytes, msgp says %d", payload, end, len(payload)-len(rest))
		}

		n = int(uint(n) % 8)
		end, err = SkipValues(payload, 0, n)
		var want int
		wantErr = nil
		for range n {
			var next int
			if next, wantErr = Skip(payload, want); wantErr != nil {
				break
			}
			want = next
		}
		if err != wantErr || end != want {
			t.Fatalf("%d values of %x: %d, %v, one by one %d, %v", n, payload, end, err, want, wantErr)
		}
	})
}
