//go:build !race

package loadprom

const raceEnabled = false
