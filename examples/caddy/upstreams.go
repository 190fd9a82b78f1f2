package plimsoll

import (
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"strconv"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp/reverseproxy"

	"github.com/plimsoll-go/plimsoll/discovery"
)

func init() { caddy.RegisterModule(new(Upstreams)) }

// Engines says where the engines of a fleet are: the union of what is given.
type Engines struct {
	// Workers are URLs of engines: scheme, host and port.
	Workers []string `json:"workers,omitempty"`
	// File lists more of them, and is read again when it changes. See discovery.File.
	File string `json:"file,omitempty"`
	// DNS is a name with a port, such as engines.default.svc.cluster.local:30000, each
	// address of which is an engine.
	DNS string `json:"dns,omitempty"`

	// Token is what the engines were started with as their API key. It goes along when
	// they are asked for their load, and not with requests of clients.
	Token string `json:"token,omitempty"`
	// Poll asks engines without load sockets for their load once a second.
	Poll bool `json:"poll,omitempty"`
}

// Upstreams are the engines of a fleet that are healthy, as the upstreams of a reverse
// proxy:
//
//	dynamic plimsoll [<fleet>] {
//		workers <url...>
//		file    <path>
//		dns     <name:port>
//		token   <token>
//		poll
//	}
type Upstreams struct {
	// Fleet is the name under which policies and status pages find it. Default: default.
	Fleet string `json:"fleet,omitempty"`
	Engines

	lease
	claim *claim
}

// CaddyModule implements caddy.Module.
func (*Upstreams) CaddyModule() caddy.ModuleInfo {
	return caddy.ModuleInfo{
		ID:  "http.reverse_proxy.upstreams.plimsoll",
		New: func() caddy.Module { return new(Upstreams) },
	}
}

// UnmarshalCaddyfile implements caddyfile.Unmarshaler.
func (u *Upstreams) UnmarshalCaddyfile(d *caddyfile.Dispenser) error {
	d.Next() // plimsoll
	if err := fleetArg(d, &u.Fleet); err != nil {
		return err
	}
	for nesting := d.Nesting(); d.NextBlock(nesting); {
		var err error
		switch option := d.Val(); option {
		case "workers":
			urls := d.RemainingArgs()
			if len(urls) == 0 {
				return d.ArgErr()
			}
			u.Workers = append(u.Workers, urls...)
		case "file":
			err = oneArg(d, &u.File)
		case "dns":
			err = oneArg(d, &u.DNS)
		case "token":
			err = oneArg(d, &u.Token)
		case "poll":
			if d.NextArg() {
				return d.ArgErr()
			}
			u.Poll = true
		default:
			return d.Errf("%q is no option of dynamic plimsoll: want workers, file, dns, token or poll", option)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// oneArg reads what an option is set to, which is set once.
func oneArg(d *caddyfile.Dispenser, to *string) error {
	option := d.Val()
	if *to != "" {
		return d.Errf("%s is given twice", option)
	}
	if !d.AllArgs(to) {
		return d.ArgErr()
	}
	return nil
}

// fleetArg reads the name of a fleet that may follow.
func fleetArg(d *caddyfile.Dispenser, name *string) error {
	if d.NextArg() {
		*name = d.Val()
	}
	if d.NextArg() {
		return d.ArgErr()
	}
	return nil
}

// Provision implements caddy.Provisioner.
func (u *Upstreams) Provision(ctx caddy.Context) (err error) {
	if u.Fleet == "" {
		u.Fleet = defaultFleet
	}
	u.replace(caddy.NewReplacer())
	if err := u.check(); err != nil {
		return fmt.Errorf("fleet %q: %w", u.Fleet, err)
	}
	if err := u.acquire(u.Fleet); err != nil {
		return err
	}
	if u.claim, err = u.fleet.claim(ctx, u.Engines); err != nil {
		return err
	}
	u.fleet.await()
	return nil
}

// Cleanup implements caddy.CleanerUpper.
func (u *Upstreams) Cleanup() error {
	return u.release(func() {
		if u.claim != nil {
			u.fleet.withdraw(u.claim)
		}
	})
}

// GetUpstreams implements reverseproxy.UpstreamSource.
func (u *Upstreams) GetUpstreams(*http.Request) ([]*reverseproxy.Upstream, error) {
	view := u.fleet.table.View()
	upstreams := make([]*reverseproxy.Upstream, view.Healthy())
	for i := range upstreams {
		upstreams[i] = &reverseproxy.Upstream{Dial: view.At(i).Worker().ID()}
	}
	return upstreams, nil
}

// replace fills in placeholders such as {env.ENGINES_TOKEN}.
func (e *Engines) replace(r *caddy.Replacer) {
	for i := range e.Workers {
		e.Workers[i] = r.ReplaceAll(e.Workers[i], "")
	}
	for _, s := range []*string{&e.File, &e.DNS, &e.Token} {
		*s = r.ReplaceAll(*s, "")
	}
}

// check says what is wrong, to whoever has written it.
func (e *Engines) check() error {
	if len(e.Workers) == 0 && e.File == "" && e.DNS == "" {
		return errors.New("no engines: want workers, file or dns")
	}
	for _, worker := range e.Workers {
		if _, err := dialAddress(worker); err != nil {
			return err
		}
	}
	if e.DNS != "" {
		if _, _, err := splitDNS(e.DNS); err != nil {
			return err
		}
	}
	return nil
}

func (e *Engines) source(logger *slog.Logger) discovery.Source {
	var sources []discovery.Source
	if len(e.Workers) > 0 {
		sources = append(sources, discovery.Static(e.Workers...))
	}
	if e.File != "" {
		sources = append(sources, &discovery.File{Path: e.File, Logger: logger})
	}
	if e.DNS != "" {
		name, port, _ := splitDNS(e.DNS) // checked
		sources = append(sources, &discovery.DNS{Name: name, Port: port, Logger: logger})
	}
	if len(sources) == 1 {
		return sources[0]
	}
	return discovery.Merge(sources...)
}

func splitDNS(s string) (name string, port int, err error) {
	name, digits, err := net.SplitHostPort(s)
	if err == nil {
		port, err = strconv.Atoi(digits)
	}
	if err != nil || name == "" || port < 1 || port > 65535 {
		return "", 0, fmt.Errorf("dns: %q is no name with a port, such as engines.svc:30000", s)
	}
	return name, port, nil
}

// dialAddress is what Caddy dials for a worker's URL.
func dialAddress(worker string) (string, error) {
	if err := discovery.CheckURL(worker); err != nil {
		return "", err
	}
	u, err := url.Parse(worker)
	if err != nil {
		return "", err
	}
	if u.User != nil || u.Path != "" && u.Path != "/" {
		return "", fmt.Errorf("worker %s: only a host and a port can be dialled, no path and no user", u.Redacted())
	}
	port := u.Port()
	switch {
	case port != "":
	case u.Scheme == "https":
		port = "443"
	default:
		port = "80"
	}
	return net.JoinHostPort(u.Hostname(), port), nil
}

var (
	_ caddy.Provisioner           = (*Upstreams)(nil)
	_ caddy.CleanerUpper          = (*Upstreams)(nil)
	_ caddyfile.Unmarshaler       = (*Upstreams)(nil)
	_ reverseproxy.UpstreamSource = (*Upstreams)(nil)
)
