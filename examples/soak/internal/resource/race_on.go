//go:build race

package resource

// raceDetector keeps a shadow of all memory that has ever been used, and gives nothing
// of it back.
const raceDetector = true
