package load

import (
	"strconv"
	"testing"
	"unsafe"
)

// What every pick reads of a worker must not be on a cache line that reports write to, or
// that marks on another worker do. Nothing but its size makes an object begin where
// a line begins.
func TestBooksHaveACacheLineOfTheirOwn(t *testing.T) {
	if strconv.IntSize == 64 && unsafe.Sizeof(Worker{})%cacheLine != 0 {
		t.Errorf("a worker has %d bytes, which is no whole number of cache lines", unsafe.Sizeof(Worker{}))
	}
	if end := unsafe.Offsetof(Worker{}.id); unsafe.Offsetof(Worker{}.books) != 0 || end != cacheLine {
		t.Errorf("the books of a worker end at %d", end)
	}
	table, _ := newTestTable()
	for i := range 100 {
		w := table.Add(strconv.Itoa(i), "")
		if at := uintptr(unsafe.Pointer(&w.books)) % cacheLine; strconv.IntSize == 64 && at != 0 {
			t.Fatalf("the books of worker %d begin at byte %d of a cache line", i, at)
		}
	}
}
