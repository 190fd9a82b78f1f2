// Package resource looks at what this process uses. Descriptors, threads and resident
// memory are told where there is a /proc, and what C code has allocated where there is
// the GNU C library; elsewhere they are unknown.
package resource

import (
	"bytes"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Use is what the process uses at one moment. What is unknown is -1.
type Use struct {
	Goroutines  int
	Descriptors int
	Threads     int
	Heap        int64 // bytes that the last garbage collection left
	CHeap       int64 // bytes that ZeroMQ has allocated
	Resident    int64 // bytes, without what C's allocator can give back
}

// Now returns what is used now.
func Now() Use {
	trim()
	heap := []metrics.Sample{{Name: "/gc/heap/live:bytes"}}
	metrics.Read(heap)
	return Use{
		Goroutines:  runtime.NumGoroutine(),
		Descriptors: count(Descriptors()),
		Threads:     count(Threads()),
		Heap:        int64(heap[0].Value.Uint64()),
		CHeap:       cHeap(),
		Resident:    resident(),
	}
}

// Settled returns what is used when all that can be freed has been.
func Settled() Use {
	for range 3 { // what a finalizer lets go of goes the next time
		runtime.GC()
		time.Sleep(10 * time.Millisecond)
	}
	debug.FreeOSMemory()
	return Now()
}

// Kinds counts things by kind; nil if they cannot be told.
type Kinds map[string]int

func count(k Kinds) int {
	if k == nil {
		return -1
	}
	n := 0
	for _, v := range k {
		n += v
	}
	return n
}

// Beyond returns what there is more of than in the other, or "" if nothing is.
func (k Kinds) Beyond(before Kinds) string {
	var more []string
	for _, kind := range slices.Sorted(maps.Keys(k)) {
		if n := k[kind] - before[kind]; n > 0 {
			more = append(more, fmt.Sprintf("%d %s", n, kind))
		}
	}
	return strings.Join(more, ", ")
}

// Only returns those of a kind that begins so.
func (k Kinds) Only(prefix string) Kinds {
	k = maps.Clone(k)
	maps.DeleteFunc(k, func(kind string, _ int) bool { return !strings.HasPrefix(kind, prefix) })
	return k
}

// Descriptors returns the open descriptors, by what they are of.
func Descriptors() Kinds {
	dir, err := os.Open("/proc/self/fd")
	if err != nil {
		return nil
	}
	defer dir.Close()
	names, err := dir.Readdirnames(-1)
	if err != nil {
		return nil
	}
	kinds := Kinds{}
	for _, name := range names {
		if name == strconv.Itoa(int(dir.Fd())) {
			continue
		}
		what, err := os.Readlink(filepath.Join("/proc/self/fd", name))
		if err != nil {
			continue // closed meanwhile
		}
		what, _, _ = strings.Cut(what, ":[") // the number of a socket tells nothing
		kinds[what]++
	}
	return kinds
}

// Threads returns the threads, by name. Those of ZeroMQ have names of their own; the
// others are the Go runtime's, which keeps what it has once needed.
func Threads() Kinds {
	names, err := filepath.Glob("/proc/self/task/*/comm")
	if err != nil || len(names) == 0 {
		return nil
	}
	kinds := Kinds{}
	for _, name := range names {
		text, err := os.ReadFile(name)
		if err != nil {
			continue // it has ended meanwhile
		}
		kinds[string(bytes.TrimSpace(text))]++
	}
	return kinds
}

// resident returns the resident memory. That of the race detector says nothing.
func resident() int64 {
	if raceDetector {
		return -1
	}
	text, err := os.ReadFile("/proc/self/statm")
	if err != nil {
		return -1
	}
	fields := strings.Fields(string(text))
	if len(fields) < 2 {
		return -1
	}
	pages, err := strconv.ParseInt(fields[1], 10, 64)
	if err != nil {
		return -1
	}
	return pages * int64(os.Getpagesize())
}
