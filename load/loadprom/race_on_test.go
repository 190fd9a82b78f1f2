//go:build race

package loadprom

// raceEnabled says that the race detector is on: it allocates, and it makes what
// runs in one goroutine slow for nothing.
const raceEnabled = true
