//go:build linux && cgo

package main

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// cpuTime is the CPU time of all threads of this process so far.
func cpuTime() (time.Duration, error) {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		return 0, os.NewSyscallError("getrusage", err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano()), nil
}

// readStatus returns the number of threads of this process and its resident
// memory in bytes.
func readStatus() (threads int, memory int64, err error) {
	b, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return 0, 0, err
	}
	var kB int64
	for line := range strings.Lines(string(b)) {
		key, value, _ := strings.Cut(line, ":")
		switch value = strings.TrimSpace(value); key {
		case "Threads":
			threads, err = strconv.Atoi(value)
		case "VmRSS":
			kB, err = strconv.ParseInt(strings.TrimSuffix(value, " kB"), 10, 64)
		}
		if err != nil {
			return 0, 0, fmt.Errorf("/proc/self/status: %q: %w", line, err)
		}
	}
	return threads, kB << 10, nil
}

func openDescriptors() (int, error) {
	entries, err := os.ReadDir("/proc/self/fd")
	return len(entries), err
}

const (
	publisherDescriptors = 3 // of a PUB socket: itself, where it listens, its connection
	spareDescriptors     = 64
)

// raiseDescriptorLimit raises the soft limit of this process and its children to
// the hard one, and returns it.
func raiseDescriptorLimit() (int, error) {
	var limit syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil {
		return 0, os.NewSyscallError("getrlimit", err)
	}
	limit.Cur = limit.Max
	// The runtime has done that for this process, but not for its children.
	if err := syscall.Setrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil {
		return 0, os.NewSyscallError("setrlimit", err)
	}
	return int(min(limit.Cur, 1<<30)), nil
}

// checkDescriptors says which of what is to be measured a process cannot have the
// descriptors for.
func (o *options) checkDescriptors(limit int) error {
	if limit < 2*spareDescriptors {
		return fmt.Errorf("a limit of %d descriptors is too low for anything (ulimit -Hn)", limit)
	}
	var short []string
	most := 0
	for _, name := range o.readers {
		for _, n := range o.ranks {
			need := descriptorsOf(name)*n + spareDescriptors
			if need > limit {
				short = append(short, fmt.Sprintf("%s with %d ranks needs %d", name, n, need))
				most = max(most, need)
			}
		}
	}
	if short == nil {
		return nil
	}
	return fmt.Errorf("a process may have %d descriptors here, and %s: raise the hard limit to %d (ulimit -Hn), or leave that out (-ranks, -readers)",
		limit, strings.Join(short, ", "), most)
}
