//go:build cgo

package resource

/*
#include <stdlib.h>
#ifdef __GLIBC__
#include <malloc.h>
static void trim(void) { malloc_trim(0); }
#else
static void trim(void) {}
#endif
#if defined(__GLIBC_PREREQ) && __GLIBC_PREREQ(2, 33)
static long long used(void) { return mallinfo2().uordblks; }
#else
static long long used(void) { return -1; }
#endif
*/
import "C"

// cHeap returns the bytes that C code, which is ZeroMQ, has allocated and not freed.
func cHeap() int64 { return int64(C.used()) }

// trim gives back what C's allocator keeps. ZeroMQ's threads come and go with the
// engines, and glibc keeps what each has freed in a place of its own: with the resident
// memory as it is, a leak could not be told from that.
func trim() { C.trim() }
