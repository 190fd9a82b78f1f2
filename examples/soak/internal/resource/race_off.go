//go:build !race

package resource

const raceDetector = false
