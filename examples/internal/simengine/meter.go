package simengine

import "time"

// meterWindow is the time over which throughput is averaged.
const meterWindow = time.Second

// meter measures tokens per second over the last full window.
type meter struct {
	since  time.Time
	tokens int
	rate   float64
}

func (m *meter) add(now time.Time, tokens int) {
	if m.since.IsZero() {
		m.since = now
	}
	m.tokens += tokens
	if elapsed := now.Sub(m.since); elapsed >= meterWindow {
		m.rate = float64(m.tokens) / elapsed.Seconds()
		m.since, m.tokens = now, 0
	}
}

// stop says that the engine went idle, whose throughput is 0.
func (m *meter) stop() { *m = meter{} }
