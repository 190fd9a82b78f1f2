package simengine

import (
	"errors"
	"fmt"
	"log/slog"
	"math"
	"net"
	"slices"
	"strconv"
	"strings"

	"github.com/plimsoll-go/plimsoll/examples/internal/simengine/batch"
)

// Wire says how an engine tells its load: which of SGLang's two load messages it
// publishes, or that it is of another kind.
type Wire uint8

const (
	WireLoadStat     Wire = iota // tagged array under the topic "load", as released engines publish it
	WireLoadSnapshot             // map under an empty topic
	WireTokenSpeed               // in its output batches; see TokenSpeed
)

var wireNames = [...]string{WireLoadStat: "load_stat", WireLoadSnapshot: "load_snapshot", WireTokenSpeed: "tokenspeed"}

// String returns "load_stat", "load_snapshot" or "tokenspeed".
func (w Wire) String() string { return wireNames[w] }

// MarshalText writes what UnmarshalText reads.
func (w Wire) MarshalText() ([]byte, error) { return []byte(w.String()), nil }

// UnmarshalText reads what String returns, so that a Wire can be a flag.
func (w *Wire) UnmarshalText(text []byte) error {
	i := slices.Index(wireNames[:], string(text))
	if i < 0 {
		return fmt.Errorf("unknown wire %q: want one of %s", text, strings.Join(wireNames[:], ", "))
	}
	*w = Wire(i)
	return nil
}

// Config describes an engine. The zero value is an 8B model on one H100 with one
// rank, on free ports of 127.0.0.1.
type Config struct {
	Wire Wire

	// Of an SGLang engine.

	Listen string // host:port of the HTTP server; "" = 127.0.0.1:0, port 0 = a free one
	Admin  string // host:port of a second server for /sim/ that outlives Die; "" = none

	NoLoadSocket bool // advertise and open no load sockets
	// KVPortBase is the first port of the (advertised, unused) KV-event range, after
	// which the load range is packed; see LoadPortBase. 0 = find free ones.
	KVPortBase int
	// ReplayPortBase is advertised, and moves the load range where it overlaps.
	// 0 = no replay.
	ReplayPortBase int
	// LoadPortBase is the first port of the load range where that has been given a
	// place of its own (--load-publish-endpoint tcp://*:6000), so that it stays where
	// it is whatever the number of ranks. 0 = packed after the other ranges.
	LoadPortBase int

	// Of a TokenSpeed engine.

	Handshake   string // where the frontend waits, such as tcp://127.0.0.1:5570
	EngineIndex int    // of rank 0; the others count on from it
	NoLoad      bool   // have no load to tell, like a sender that has not looked yet
	Elements    int    // of the array of a batch: 9 or 10 as older engines send, 14 as today; 0 = 14

	// Of either.

	Ranks int    // data-parallel ranks; 0 = 1
	Model string // name of the model; "" = "sim-8b"

	Cost        batch.Cost // zero = batch.H100x8B
	Speed       float64    // of this engine next to others: 0.5 takes twice as long; 0 = 1
	TimeScale   float64    // of the whole simulation: 10 computes ten times as fast; 0 = 1. The cadence of load messages stays as it is
	KVTokens    int64      // KV capacity per rank; 0 = 400,000
	MaxRunning  int        // concurrency cap per rank; 0 = 256
	MaxQueue    int        // requests that may wait per rank, the next gets a 503; 0 = no limit
	ChunkTokens int64      // prompt tokens per step; 0 = 8,192

	MaxTokens      int64 // output of a request that names no length; 0 = 16
	StreamInterval int64 // tokens per streamed event, or of a request in a batch; 0 = 1. Larger saves the processor in big fleets

	Logger *slog.Logger // nil = slog.Default()
	Trace  *Trace       // nil = nobody asks
}

func (c Config) withDefaults() (Config, error) {
	if c.Listen == "" {
		c.Listen = "127.0.0.1:0"
	}
	if c.Ranks == 0 {
		c.Ranks = 1
	}
	if c.Elements == 0 {
		c.Elements = 14
	}
	if c.Model == "" {
		c.Model = "sim-8b"
	}
	if c.Speed == 0 {
		c.Speed = 1
	}
	if c.TimeScale == 0 {
		c.TimeScale = 1
	}
	if c.MaxTokens == 0 {
		c.MaxTokens = 16
	}
	if c.StreamInterval == 0 {
		c.StreamInterval = 1
	}
	if c.Logger == nil {
		c.Logger = slog.Default()
	}
	switch {
	case c.Ranks < 1 || c.Ranks > maxRanks:
		return c, fmt.Errorf("simengine: %d ranks: want 1 to %d", c.Ranks, maxRanks)
	case !usableSpeed(c.Speed):
		return c, fmt.Errorf("simengine: speed %v: want a positive number", c.Speed)
	case !usableSpeed(c.TimeScale):
		return c, fmt.Errorf("simengine: time scale %v: want a positive number", c.TimeScale)
	case c.KVTokens < 0 || c.MaxRunning < 0 || c.MaxQueue < 0 || c.ChunkTokens < 0 || c.MaxTokens < 0 || c.StreamInterval < 0:
		return c, errors.New("simengine: a limit is negative")
	case c.KVPortBase < 0 || c.ReplayPortBase < 0 || c.LoadPortBase < 0:
		return c, errors.New("simengine: a port is negative")
	}
	return c, nil
}

// maxRanks is what a subscriber accepts from an engine by default.
const maxRanks = 1024

func usableSpeed(f float64) bool { return f > 0 && !math.IsInf(f, 0) && !math.IsNaN(f) }

func (c Config) batch() batch.Config {
	return batch.Config{Cost: c.Cost, KVTokens: c.KVTokens, MaxRunning: c.MaxRunning, MaxQueue: c.MaxQueue, ChunkTokens: c.ChunkTokens}
}

// splitListen takes a listen address apart.
func splitListen(addr string) (host string, port int, err error) {
	host, text, err := net.SplitHostPort(addr)
	if err != nil {
		return "", 0, fmt.Errorf("simengine: listen address: %w", err)
	}
	if text == "auto" {
		return host, 0, nil
	}
	port, err = strconv.Atoi(text)
	if err != nil || port < 0 || port > maxPort {
		return "", 0, fmt.Errorf("simengine: listen address %q: want a port from 0 to %d", addr, maxPort)
	}
	return host, port, nil
}
