//go:build race

package selector

// raceEnabled says that the race detector is on, which allocates by itself.
const raceEnabled = true
