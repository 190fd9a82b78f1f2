package msgpack

import (
	"math"
	"slices"
	"strings"
	"testing"
)

// join puts values behind one another, in front of bytes that are none of them.
func join(values ...string) (p []byte, end int) {
	s := strings.Join(values, "")
	return []byte(s + "\xc1\xc1\xc1\xc1\xc1\xc1\xc1\xc1\xc1"), len(s)
}

func TestAColumnOfCountsTakesThemInEveryForm(t *testing.T) {
	column := []string{
		"\x00", "\x7f", "\xcc\xff", "\xcd\xff\xff", "\xce\xff\xff\xff\xff", "\xcf\x7f\xff\xff\xff\xff\xff\xff\xff",
		"\xd0\x07", "\xd1\x01\x00", "\xca\x40\x00\x00\x00", "\xcb\x40\x08\x00\x00\x00\x00\x00\x00",
	}
	want := []int64{9, 0, 127, 255, 65535, 1<<32 - 1, math.MaxInt64, 7, 256, 2, 3}
	p, end := join(column...)
	got, i, err := AppendCounts([]int64{9}, p, 0, len(column))
	if err != nil || i != end || !slices.Equal(got, want) {
		t.Errorf("got %v up to %d, %v, want %v up to %d", got, i, err, want, end)
	}
	// Without bytes behind it, the last one is not read in place.
	for k, v := range column {
		got, i, err := AppendCounts(nil, []byte(v), 0, 1)
		if err != nil || i != len(v) || got[0] != want[1+k] {
			t.Errorf("%x: got %v up to %d, %v", v, got, i, err)
		}
	}
}

func TestAColumnOfFloatsTakesEveryNumber(t *testing.T) {
	column := []string{
		"\xcb\xbf\xe0\x00\x00\x00\x00\x00\x00", "\xcb\x80\x00\x00\x00\x00\x00\x00\x00", "\xcb\xff\xf0\x00\x00\x00\x00\x00\x00", "\xcb\x7f\xf8\x00\x00\x00\x00\x00\x01",
		"\xca\xbf\x00\x00\x00", "\x05", "\xff", "\xd1\xff\x00", "\xcf\xff\xff\xff\xff\xff\xff\xf8\x00",
	}
	want := []float64{-0.5, math.Copysign(0, -1), math.Inf(-1), math.Float64frombits(0x7ff8000000000001), -0.5, 5, -1, -256, 1<<64 - 2048}
	p, end := join(column...)
	got, i, err := AppendFloats(nil, p, 0, len(column))
	same := slices.EqualFunc(got, want, func(a, b float64) bool { return math.Float64bits(a) == math.Float64bits(b) })
	if err != nil || i != end || !same {
		t.Errorf("got %v up to %d, %v, want %v up to %d", got, i, err, want, end)
	}
}

func TestAColumnOfStringsRefersToThePayload(t *testing.T) {
	p, end := join("\xa0", "\xa1a", "\xd9\x01b", "\xda\x00\x01c", "\xdb\x00\x00\x00\x01d")
	got, i, err := AppendStrings(nil, p, 0, 5)
	if err != nil || i != end {
		t.Fatalf("up to %d, %v", i, err)
	}
	if next, err := SkipStrings(p, 0, 5); err != nil || next != end {
		t.Errorf("skipped up to %d, %v", next, err)
	}
	sent := string(p)
	for _, s := range got {
		_ = append(s, 'y')
	}
	if string(p) != sent {
		t.Error("appending to a string has changed what follows it")
	}
	p[2] = 'x'
	if want := "|x|b|c|d"; string(slices.Concat(got[0], []byte("|"), got[1], []byte("|"), got[2], []byte("|"), got[3], []byte("|"), got[4])) != want {
		t.Errorf("got %q, want %s", got, want)
	}
}

func TestAColumnBlamesTheElementThatIsWrong(t *testing.T) {
	counts := func(p []byte, n int) (int, error) { _, i, err := AppendCounts(nil, p, 0, n); return i, err }
	floats := func(p []byte, n int) (int, error) { _, i, err := AppendFloats(nil, p, 0, n); return i, err }
	kept := func(p []byte, n int) (int, error) { _, i, err := AppendStrings(nil, p, 0, n); return i, err }
	skipped := func(p []byte, n int) (int, error) { return SkipStrings(p, 0, n) }
	values := func(p []byte, n int) (int, error) { return SkipValues(p, 0, n) }
	for _, tt := range []struct {
		name string
		read func([]byte, int) (int, error)
		in   string // three elements, the second of which is wrong
		at   int
		want error
	}{
		{"a negative count", counts, "\x01\xff\x01", 1, ErrNegative},
		{"a negative count of eight bytes", counts, "\x01\xd3\x80\x00\x00\x00\x00\x00\x00\x00\x01", 1, ErrNegative},
		{"a fraction", counts, "\xcc\x80\xcb\x3f\xe0\x00\x00\x00\x00\x00\x00\x01", 2, ErrNotInteger},
		{"a count above 2^63-1", counts, "\xcd\x01\x00\xcf\x80\x00\x00\x00\x00\x00\x00\x00\x01", 3, ErrOutOfRange},
		{"NaN for a count", counts, "\x01\xcb\x7f\xf8\x00\x00\x00\x00\x00\x00\x01", 1, ErrNotFinite},
		{"a string for a count", counts, "\x01\xa1x\x01", 1, ErrType},
		{"nil for a count", counts, "\x01\xc0\x01", 1, ErrType},
		{"a count that is cut", counts, "\xce\x00\x00\x00\x01\xce\x00\x00\x01", 5, ErrTruncated},
		{"a count that is not there", counts, "\x01", 1, ErrTruncated},
		{"a string for a float", floats, "\x01\xa1x\x01", 1, ErrType},
		{"a float that is cut", floats, "\x01\xcb\x3f\xe0\x00\x00\x00\x00\x00", 1, ErrTruncated},
		{"half a float that is cut", floats, "\x01\xca\x3f\xe0\x00", 1, ErrTruncated},
		{"an integer for a float that is cut", floats, "\x01\xcd\x01", 1, ErrTruncated},
		{"a negative integer for a float that is cut", floats, "\x01\xd1\x01", 1, ErrTruncated},
		{"a float that is not there", floats, "\x01", 1, ErrTruncated},
		{"a number for a string", kept, "\xa1a\x01\xa1b", 2, ErrType},
		{"a number for a string to skip", skipped, "\xa1a\x01\xa1b", 2, ErrType},
		{"binary for a string", skipped, "\xa1a\xc4\x01b\xa1b", 2, ErrType},
		{"a string that is cut", kept, "\xa1a\xd9\x02b", 2, ErrTruncated},
		{"a string whose length is cut", kept, "\xa1a\xd9", 2, ErrTruncated},
		{"a string of 2^32-1 bytes", kept, "\xa1a\xdb\xff\xff\xff\xff", 2, ErrTruncated},
		{"a value that is not there", values, "\x01", 1, ErrTruncated},
		{"a row that is cut", values, "\x91\x01\x92\x01", 2, ErrTruncated},
		{"a number in a row that is cut", values, "\x91\x01\x92\x01\xcd\x01", 2, ErrTruncated},
		{"a string in a row that is cut", values, "\x91\x01\x92\x01\xa2x", 2, ErrTruncated},
		{"a row of 2^32-1", values, "\x91\x01\xdd\xff\xff\xff\xff\x01", 2, ErrTruncated},
		{"a row that nests too deeply", values, "\x91\x01" + nested(MaxDepth+1), 2, ErrTooDeep},
		{"a byte that msgpack does not use", values, "\x91\x01\x92\x01\xc1\x01", 2, ErrType},
	} {
		if i, err := tt.read([]byte(tt.in), 3); i != tt.at || err != tt.want {
			t.Errorf("%s: %v at %d, want %v at %d", tt.name, err, i, tt.want, tt.at)
		}
	}
}

func TestReasonsAreThoseOfTheCauses(t *testing.T) {
	own := NewCause("own", "of a package's own")
	if Reason(own) != "own" || own.Error() != "of a package's own" || Reason(nil) != "" || Reason(errOther{}) != "other" {
		t.Error("a cause does not give its label")
	}
}

type errOther struct{}

func (errOther) Error() string { return "" }

func TestCountsAreAppendedInTheirShortestForm(t *testing.T) {
	for v, want := range map[int64]string{
		0: "\x00", 127: "\x7f", 128: "\xcc\x80", 255: "\xcc\xff", 256: "\xcd\x01\x00", 65536: "\xce\x00\x01\x00\x00",
		1 << 32: "\xcf\x00\x00\x00\x01\x00\x00\x00\x00", -1: "\xff", -33: "\xd0\xdf",
	} {
		if got := AppendCount(nil, v); string(got) != want {
			t.Errorf("%d: got %x, want %x", v, got, want)
		}
	}
}
