//go:build !cgo

package resource

func trim() {}

func cHeap() int64 { return -1 }
