//go:build !linux || !cgo

package main

import (
	"fmt"
	"os"
)

func main() {
	fmt.Fprintln(os.Stderr, "scale: needs Linux (it reads /proc and listens on all of 127.0.0.0/8) and cgo")
	os.Exit(1)
}
