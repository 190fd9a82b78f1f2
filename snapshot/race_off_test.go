//go:build !race

package snapshot

// raceEnabled is whether the race detector is on, which allocates on its own.
const raceEnabled = false
