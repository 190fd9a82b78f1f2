package gateway

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"reflect"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// lookInterval is how often the configuration file is looked at. It is read, and not
// watched, for the reasons of discovery.File.
const lookInterval = time.Second

// maxFile is larger than any configuration that somebody has written.
const maxFile = 4 << 20

// Follow keeps a gateway at what its configuration file says, until ctx ends. Its content
// is parsed at once, when it has changed and is the same at two looks (or it may be half
// written), and whenever something comes from again, such as SIGHUP.
func (g *Gateway) Follow(ctx context.Context, path string, again <-chan os.Signal, parse func(content []byte) (Config, error)) {
	tick := time.NewTicker(lookInterval)
	defer tick.Stop()
	var judged, seen glance
	for asked := true; ; {
		now := lookAt(path)
		if asked || now != judged && now == seen {
			judged = now
			g.reloadFrom(now, parse)
		}
		seen = now
		select {
		case <-ctx.Done():
			return
		case <-again:
			asked = true
		case <-tick.C:
			asked = false
		}
	}
}

// glance is what is seen of a file: what is in it, or why that cannot be told.
type glance struct{ content, fault string }

func lookAt(path string) glance {
	content, err := readRegular(path)
	if err != nil {
		return glance{fault: err.Error()}
	}
	return glance{content: string(content)}
}

// readRegular reads a file that somebody may have put something else in the place of.
func readRegular(path string) ([]byte, error) {
	// Without O_NONBLOCK, a named pipe would hold up whoever opens it, for ever.
	file, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	switch info, err := file.Stat(); {
	case err != nil:
		return nil, err
	case !info.Mode().IsRegular():
		return nil, fmt.Errorf("%s is no regular file", path)
	case info.Size() > maxFile:
		return nil, fmt.Errorf("%s: %d bytes are above the bound of %d", path, info.Size(), maxFile)
	}
	return io.ReadAll(io.LimitReader(file, maxFile))
}

// reloadFrom has the content parsed that was looked at: were the file read again, it could
// be another one by then, of which nobody would know that it was judged.
func (g *Gateway) reloadFrom(l glance, parse func(content []byte) (Config, error)) {
	if l.fault != "" {
		g.Reload(Config{}, errors.New(l.fault))
		return
	}
	g.Reload(parse([]byte(l.content)))
}

// Reload takes another configuration, for the requests to come: one that is on its way
// goes on by the one that it came with. An error, of reading it or of what it says, or
// something in it that takes a restart, has the present one stay as a whole; it is logged,
// counted, and told on the status page until there is a better one.
func (g *Gateway) Reload(c Config, err error) {
	r := &g.reloads
	r.mu.Lock()
	defer r.mu.Unlock()
	if err == nil {
		err = g.take(c.WithDefaults())
	}
	r.at = time.Now()
	if r.refused = err; err != nil {
		r.count.WithLabelValues("refused").Inc()
		g.logger.Error("configuration refused, the present one stays", "error", err)
		return
	}
	r.count.WithLabelValues("taken").Inc()
	g.logger.Info("configuration taken")
}

// take makes a configuration the present one. Nobody else does meanwhile.
func (g *Gateway) take(c Config) error {
	old := g.config.Load()
	c.Logger, c.Level = old.Logger, old.Level
	if err := c.Validate(); err != nil {
		return err
	}
	if names := needRestart(*old, c); len(names) > 0 {
		return fmt.Errorf("a change of %s takes a restart", strings.Join(names, ", "))
	}
	g.config.Store(&c)
	// What has not changed is left alone: a policy would have to learn anew.
	switch {
	case c.Policy != old.Policy || !sameJSON(c.PolicyConfig, old.PolicyConfig):
		if err := g.SetPolicy(c.Policy, c.PolicyConfig); err != nil {
			return err // never: it is valid
		}
	case c.Signal != old.Signal:
		g.route(g.policy())
	}
	if !reflect.DeepEqual([]any{c.Workers, c.WorkersFile, c.DNS}, []any{old.Workers, old.WorkersFile, old.DNS}) {
		g.engines.replace(source(c.Workers, c.WorkersFile, c.DNS, c.Logger))
	}
	if c.Level != nil {
		c.Level.Set(c.LogLevel)
	}
	return nil
}

// sameJSON reports whether two values differ by space between tokens at most.
func sameJSON(a, b json.RawMessage) bool {
	var x, y bytes.Buffer
	_, _ = json.Compact(&x, a), json.Compact(&y, b) // nothing, where there is none
	return bytes.Equal(x.Bytes(), y.Bytes())
}

// needRestart names what differs between two configurations and is built in for good.
func needRestart(old, c Config) (names []string) {
	a, b := reflect.ValueOf(old), reflect.ValueOf(c)
	for i := range a.NumField() {
		f := a.Type().Field(i)
		if f.Tag.Get("change") == "restart" && !reflect.DeepEqual(a.Field(i).Interface(), b.Field(i).Interface()) {
			names = append(names, f.Tag.Get("json"))
		}
	}
	return names
}

// reloads is what came of the configurations so far.
type reloads struct {
	count *prometheus.CounterVec

	mu      sync.Mutex // held while one is taken
	at      time.Time  // of the newest; zero: there is no file
	refused error      // why the newest was; nil: it was not
}

func newReloads() (count *prometheus.CounterVec) {
	count = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "plimsoll_gateway_config_reads_total", Help: "Configurations that were read, the first one too, and whether they were taken.",
	}, []string{"result"})
	for _, result := range []string{"taken", "refused"} {
		count.WithLabelValues(result)
	}
	return count
}

// newest returns when a configuration was last read, and why it was refused if it was.
func (r *reloads) newest() (at time.Time, refused error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.at, r.refused
}
