package gateway

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math"
	"strings"
	"time"

	"github.com/plimsoll-go/plimsoll/discovery"
	"github.com/plimsoll-go/plimsoll/load"
	"github.com/plimsoll-go/plimsoll/selector"
)

// Config configures a gateway. In a file it is a JSON object:
//
//	{
//	  "listen": ":8080",
//	  "admin": "10.0.0.5:9090",
//	  "workers": ["http://10.0.0.1:30000", "http://10.0.0.2:30000"],
//	  "policy": "least_work",
//	  "policy_config": {"ranks": true},
//	  "freshness": "5s",
//	  "api_key": "secret"
//	}
//
// What is missing takes its default. While the gateway runs, everything can change but
// what is marked with change:"restart"; see Follow.
type Config struct {
	Listen string `json:"listen" change:"restart"` // for clients; default 127.0.0.1:8080
	Admin  string `json:"admin" change:"restart"`  // for operators; default 127.0.0.1:9090; off: nobody listens

	// Where the engines are. At least one of the three; their union is taken.
	Workers     []string `json:"workers"`      // URLs
	WorkersFile string   `json:"workers_file"` // see discovery.File; read again when it changes
	DNS         *DNS     `json:"dns"`

	Peers Peers `json:"peers" change:"restart"` // the other replicas of the gateway

	Policy       string          `json:"policy"` // default least_work
	PolicyConfig json.RawMessage `json:"policy_config"`
	Signal       selector.Signal `json:"signal"` // default calibrated; least_work has no use for it

	// ExplainEvery logs how one pick in so many came about, and shows it on the status
	// page. Default 0: none is logged, and one in a thousand is shown.
	ExplainEvery int `json:"explain_every"`
	// ExplainOnRequest answers a request that has the header X-Plimsoll-Explain with
	// headers of that name, which tell how its pick came about. That goes over the
	// whole fleet, and shows it to whoever asks. Default: only what the log gets.
	ExplainOnRequest bool `json:"explain_on_request"`

	LogLevel  slog.Level `json:"log_level"`                   // default info
	LogFormat string     `json:"log_format" change:"restart"` // text or json; default text
	// AccessLog logs a line for every request, and not only for those that something
	// went wrong with.
	AccessLog bool `json:"access_log"`

	// AdminTokenFile holds what an operator has to know who drains engines. Default:
	// AdminToken; where there is neither, nobody may.
	AdminTokenFile string `json:"admin_token_file"`
	AdminToken     string `json:"-"`

	// APIKey is what the engines were started with (SGLang's --api-key). It goes
	// along when the gateway itself asks them something, and with the requests of
	// clients that send no Authorization of their own: whoever reaches the gateway
	// then reaches the engines.
	APIKey string `json:"api_key"`
	// TLS is for engines with an https URL, and Curve for the load sockets of all.
	TLS   TLS    `json:"tls" change:"restart"`
	Curve *Curve `json:"curve" change:"restart"`

	Freshness    Duration `json:"freshness" change:"restart"`     // how long a report is trusted; default 5s
	Poll         bool     `json:"poll" change:"restart"`          // poll /v1/loads of engines without load sockets
	PollInterval Duration `json:"poll_interval" change:"restart"` // default 1s

	Tries         int      `json:"tries"`          // engines that a request is sent to at most; default 3
	MaxBody       int64    `json:"max_body"`       // bytes of a request; default 16 MiB
	ProbeInterval Duration `json:"probe_interval"` // of /health; default 2s

	// EngineTimeout bounds how long an engine may say nothing, before its answer and
	// within it. It counts as a failure. Queueing and computing a long prompt take
	// minutes, and without streaming the whole answer is silence, so that the
	// default is 10m, after which OpenAI's own clients give up. Negative: no bound.
	EngineTimeout Duration `json:"engine_timeout"`
	// ClientTimeout bounds how long a client takes to send its request, and to take
	// each piece of the answer. Default 1m; negative: no bound.
	ClientTimeout Duration `json:"client_timeout"`

	DrainDelay   Duration `json:"drain_delay"`   // between /readyz turning 503 and closing the door; default 0
	DrainTimeout Duration `json:"drain_timeout"` // for requests in flight at the end; default 30s

	Logger *slog.Logger   `json:"-"` // default: none; see Config.NewLogger
	Level  *slog.LevelVar `json:"-"` // is set to LogLevel when that changes; nil: there is none
}

// NewLogger returns the logger that the configuration asks for.
func (c Config) NewLogger(w io.Writer, level slog.Leveler) *slog.Logger {
	options := &slog.HandlerOptions{Level: level}
	if c.LogFormat == "json" {
		return slog.New(slog.NewJSONHandler(w, options))
	}
	return slog.New(slog.NewTextHandler(w, options))
}

// DNS is a name that stands for the engines, or for the replicas of the gateway.
type DNS struct {
	Name     string   `json:"name"`
	Port     int      `json:"port"`     // unless srv
	SRV      bool     `json:"srv"`      // name is that of SRV records
	Scheme   string   `json:"scheme"`   // default http
	Network  string   `json:"network"`  // ip4 or ip6 where the name has addresses of both; default ip: all
	Interval Duration `json:"interval"` // default 30s
}

// Duration is a time.Duration that is written like 1.5s.
type Duration time.Duration

func (d Duration) String() string { return time.Duration(d).String() }

// MarshalText writes what UnmarshalText reads.
func (d Duration) MarshalText() ([]byte, error) { return []byte(d.String()), nil }

// UnmarshalText reads a duration such as 1.5s. JSON strings and flags come here.
func (d *Duration) UnmarshalText(text []byte) error {
	v, err := time.ParseDuration(string(text))
	if err != nil {
		return fmt.Errorf("%q is not a duration such as 500ms or 5s", text)
	}
	*d = Duration(v)
	return nil
}

// Read reads the content of a configuration file into c. What it does not mention stays as
// it is.
func (c *Config) Read(content []byte) error {
	content = bytes.TrimPrefix(content, []byte("\xef\xbb\xbf")) // some editors begin a file with it
	dec := json.NewDecoder(bytes.NewReader(content))
	dec.DisallowUnknownFields() // a misspelt key must not mean the default
	switch err := dec.Decode(c); {
	case err == io.EOF:
		return errors.New("it is empty")
	case err != nil:
		return err
	}
	if _, err := dec.Token(); err != io.EOF {
		return errors.New("more than one value")
	}
	return nil
}

// WithDefaults returns c with the defaults for what is missing.
func (c Config) WithDefaults() Config {
	orDefault(&c.Listen, "127.0.0.1:8080")
	orDefault(&c.Admin, "127.0.0.1:9090")
	orDefault(&c.Policy, selector.LeastWorkName)
	orDefault(&c.Freshness, Duration(load.DefaultWindow))
	orDefault(&c.PollInterval, Duration(discovery.DefaultPollInterval))
	orDefault(&c.Tries, 3)
	orDefault(&c.MaxBody, 16<<20)
	orDefault(&c.ProbeInterval, Duration(2*time.Second))
	orDefault(&c.EngineTimeout, Duration(10*time.Minute))
	orDefault(&c.ClientTimeout, Duration(time.Minute))
	for _, d := range []*Duration{&c.EngineTimeout, &c.ClientTimeout} {
		if *d < 0 {
			*d = math.MaxInt64
		}
	}
	orDefault(&c.LogFormat, "text")
	orDefault(&c.DrainTimeout, Duration(30*time.Second))
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	return c
}

func orDefault[T comparable](v *T, def T) {
	var zero T
	if *v == zero {
		*v = def
	}
}

// Validate reports everything that is wrong with the configuration at once.
func (c Config) Validate() error {
	c = c.WithDefaults()
	var errs []error
	wrong := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }

	if len(c.Workers) == 0 && c.WorkersFile == "" && c.DNS == nil {
		wrong("no engines: want workers, workers_file or dns")
	}
	for _, w := range c.Workers {
		// The fleet would only refuse it in its status. What an operator has
		// typed can be told to them at once.
		if err := discovery.CheckURL(w); err != nil {
			wrong("workers: %w", err)
		}
	}
	if c.DNS != nil {
		c.DNS.validate("dns", wrong)
	}
	c.Peers.validate(wrong)
	if _, err := selector.NewPolicy(c.Policy, c.PolicyConfig); err != nil {
		wrong("policy: %w", err)
	}
	for _, d := range []struct {
		name  string
		value Duration
	}{
		{"freshness", c.Freshness}, {"poll_interval", c.PollInterval}, {"probe_interval", c.ProbeInterval},
		{"drain_delay", c.DrainDelay}, {"drain_timeout", c.DrainTimeout},
	} {
		if d.value < 0 {
			wrong("%s is %v, and must not be negative", d.name, d.value)
		}
	}
	if f := time.Duration(c.Freshness); f > 0 && f < 100*time.Millisecond {
		// An engine at rest reports once a second.
		wrong("freshness is %v: no engine reports that often", f)
	}
	if strings.ContainsFunc(c.APIKey, func(r rune) bool { return r <= ' ' || r > '~' }) {
		wrong("api_key holds something else than visible ASCII characters") // such as the end of a line; and no request could be sent
	}
	if _, err := c.TLS.load(); err != nil {
		wrong("tls: %w", err)
	}
	if _, err := c.Curve.load(); err != nil {
		wrong("curve: %w", err)
	}
	if c.LogFormat != "text" && c.LogFormat != "json" {
		wrong("log_format is %q, want text or json", c.LogFormat)
	}
	if c.Tries < 0 || c.MaxBody < 0 || c.ExplainEvery < 0 {
		wrong("tries, max_body and explain_every must not be negative")
	}
	return errors.Join(errs...)
}

func (d *DNS) validate(member string, wrong func(format string, args ...any)) {
	if d.Name == "" {
		wrong("%s: name is missing", member)
	}
	if d.Interval < 0 {
		wrong("%s: interval is negative", member)
	}
	if !d.SRV && (d.Port < 1 || d.Port > 65535) {
		wrong("%s: port is %d, want 1 to 65535, or srv", member, d.Port)
	}
	if d.Scheme != "" && d.Scheme != "http" && d.Scheme != "https" {
		wrong("%s: scheme is %q, want http or https", member, d.Scheme)
	}
	if d.Network != "" && d.Network != "ip" && d.Network != "ip4" && d.Network != "ip6" {
		wrong("%s: network is %q, want ip, ip4 or ip6", member, d.Network)
	}
}
