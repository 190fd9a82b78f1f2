package gateway

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"reflect"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// lookInterval is how often the configuration file is looked at. It is read, and not
// watched, for the reasons of discovery.File.
const lookInterval = time.Second

// Follow keeps a gateway at what its configuration file says, until ctx ends: it has
// read read it at once, when its content has changed and is the same at two looks (or it
// may be half written), and whenever something comes from again, such as SIGHUP.
func (g *Gateway) Follow(ctx context.Context, path string, again <-chan os.Signal, read func() (Config, error)) {
	tick := time.NewTicker(lookInterval)
	defer tick.Stop()
	var judged, seen string
	for asked := true; ; {
		content := contentOf(path)
		if asked || content != judged && content == seen {
			judged = content
			g.Reload(read())
		}
		seen = content
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

// contentOf returns what is in a file, or why that cannot be told.
func contentOf(path string) string {
	content, err := os.ReadFile(path)
	if err != nil {
		return err.Error()
	}
	return string(content)
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
	if c.Policy != old.Policy || c.Signal != old.Signal || !bytes.Equal(c.PolicyConfig, old.PolicyConfig) {
		if err := g.SetPolicy(c.Policy, c.PolicyConfig); err != nil {
			return err // never: it is valid
		}
	}
	if !reflect.DeepEqual([]any{c.Workers, c.WorkersFile, c.DNS}, []any{old.Workers, old.WorkersFile, old.DNS}) {
		g.engines.replace(source(c.Workers, c.WorkersFile, c.DNS, c.Logger))
	}
	if c.Level != nil {
		c.Level.Set(c.LogLevel)
	}
	return nil
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
