//go:build !race

package vllm

// raceEnabled is whether the race detector is on, which allocates on its own.
const raceEnabled = false
