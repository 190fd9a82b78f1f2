package plimsoll

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp/reverseproxy"
	"go.uber.org/zap"

	"github.com/plimsoll-go/plimsoll/load"
	"github.com/plimsoll-go/plimsoll/selector"
)

func init() { caddy.RegisterModule(new(Policy)) }

// Policy selects the upstream of a reverse proxy by what the engines of a fleet publish:
//
//	lb_policy plimsoll [<fleet>] {
//		policy <name> [<json>]
//	}
type Policy struct {
	// Fleet is the name of the fleet that the upstreams are of. Default: default.
	Fleet string `json:"fleet,omitempty"`
	// Name is a policy of package selector. Default: least_work.
	Name string `json:"name,omitempty"`
	// Config is that policy's own configuration.
	Config json.RawMessage `json:"config,omitempty"`

	lease
	use      *use
	selector *selector.Selector // of use
	logger   *zap.Logger
}

// CaddyModule implements caddy.Module.
func (*Policy) CaddyModule() caddy.ModuleInfo {
	return caddy.ModuleInfo{
		ID:  "http.reverse_proxy.selection_policies.plimsoll",
		New: func() caddy.Module { return new(Policy) },
	}
}

// UnmarshalCaddyfile implements caddyfile.Unmarshaler.
func (p *Policy) UnmarshalCaddyfile(d *caddyfile.Dispenser) error {
	d.Next() // plimsoll
	if err := fleetArg(d, &p.Fleet); err != nil {
		return err
	}
	for nesting := d.Nesting(); d.NextBlock(nesting); {
		if d.Val() != "policy" {
			return d.Errf("%q is no option of lb_policy plimsoll: want policy", d.Val())
		}
		if p.Name != "" {
			return d.Err("policy is given twice")
		}
		args := d.RemainingArgs()
		if len(args) < 1 || len(args) > 2 {
			return d.ArgErr()
		}
		if p.Name = args[0]; len(args) > 1 {
			p.Config = json.RawMessage(args[1])
		}
		// Here, so that the error names the line.
		if _, err := selector.NewPolicy(p.Name, p.Config); err != nil {
			return d.WrapErr(err)
		}
	}
	return nil
}

// Provision implements caddy.Provisioner.
func (p *Policy) Provision(ctx caddy.Context) (err error) {
	if p.Fleet == "" {
		p.Fleet = defaultFleet
	}
	if p.Name == "" {
		p.Name = selector.LeastWorkName
	}
	p.logger = ctx.Logger()
	if err := p.acquire(p.Fleet); err != nil {
		return err
	}
	if p.use, err = p.fleet.use(p.Name, p.Config); err != nil {
		return fmt.Errorf("policy: %w", err)
	}
	p.selector = p.use.selector
	return nil
}

// Cleanup implements caddy.CleanerUpper.
func (p *Policy) Cleanup() error {
	return p.release(func() {
		if p.use != nil {
			p.fleet.drop(p.use)
		}
	})
}

// Select implements reverseproxy.Selector. It is called once for each attempt, with the
// request that is about to be sent.
func (p *Policy) Select(pool reverseproxy.UpstreamPool, r *http.Request, _ http.ResponseWriter) *reverseproxy.Upstream {
	c := callOf(r)
	if !c.begin(p, r) {
		p.logger.Debug("no retry of a request whose body is not kept")
		return nil
	}

	available := make(map[string]*reverseproxy.Upstream, len(pool))
	for _, u := range pool {
		if u.Available() {
			available[u.Dial] = u
		}
	}
	view := p.fleet.table.View()
	c.request.Candidates = make([]*load.Worker, 0, len(available)) // not nil, which means all
	for i := range view.Healthy() {
		if w := view.At(i).Worker(); available[w.ID()] != nil {
			c.request.Candidates = append(c.request.Candidates, w)
		}
	}
	if len(available) > 0 && len(c.request.Candidates) == 0 {
		p.logger.Error("no upstream is an engine of the fleet: is there a dynamic plimsoll for it?", zap.String("fleet", p.Fleet))
		return nil
	}

	pick, err := p.selector.Pick(c.request)
	if errors.Is(err, selector.ErrNoCandidates) && len(c.request.Exclude) > 0 {
		c.request.Exclude = nil // all have failed; whoever goes on trying begins a new round
		pick, err = p.selector.Pick(c.request)
	}
	if err != nil {
		p.logger.Debug("no pick", zap.Error(err))
		return nil
	}
	c.attempt(r, pick)
	return available[pick.Worker.ID()]
}

var (
	_ caddy.Provisioner     = (*Policy)(nil)
	_ caddy.CleanerUpper    = (*Policy)(nil)
	_ caddyfile.Unmarshaler = (*Policy)(nil)
	_ reverseproxy.Selector = (*Policy)(nil)
)
