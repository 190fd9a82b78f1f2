package plimsoll

import (
	"net/http"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"
	"github.com/caddyserver/caddy/v2/caddyconfig/httpcaddyfile"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"
)

func init() {
	caddy.RegisterModule(new(StatusPage))
	httpcaddyfile.RegisterHandlerDirective("plimsoll_status", func(h httpcaddyfile.Helper) (caddyhttp.MiddlewareHandler, error) {
		m := new(StatusPage)
		return m, m.UnmarshalCaddyfile(h.Dispenser)
	})
	httpcaddyfile.RegisterDirectiveOrder("plimsoll_status", httpcaddyfile.Before, "metrics")
}

// StatusPage shows what is known of a fleet, as a page and as JSON; see package loadhttp.
// It is for an address that only operators reach.
//
//	plimsoll_status [<matcher>] [<fleet>]
type StatusPage struct {
	// Fleet is the name of the fleet. Default: default.
	Fleet string `json:"fleet,omitempty"`

	lease
}

// CaddyModule implements caddy.Module.
func (*StatusPage) CaddyModule() caddy.ModuleInfo {
	return caddy.ModuleInfo{
		ID:  "http.handlers.plimsoll_status",
		New: func() caddy.Module { return new(StatusPage) },
	}
}

// UnmarshalCaddyfile implements caddyfile.Unmarshaler.
func (s *StatusPage) UnmarshalCaddyfile(d *caddyfile.Dispenser) error {
	d.Next() // plimsoll_status
	return fleetArg(d, &s.Fleet)
}

// Provision implements caddy.Provisioner.
func (s *StatusPage) Provision(caddy.Context) error {
	if s.Fleet == "" {
		s.Fleet = defaultFleet
	}
	return s.acquire(s.Fleet)
}

// Cleanup implements caddy.CleanerUpper.
func (s *StatusPage) Cleanup() error { return s.release(nil) }

// ServeHTTP implements caddyhttp.MiddlewareHandler.
func (s *StatusPage) ServeHTTP(w http.ResponseWriter, r *http.Request, _ caddyhttp.Handler) error {
	s.fleet.page.ServeHTTP(w, r)
	return nil
}

var (
	_ caddy.Provisioner           = (*StatusPage)(nil)
	_ caddy.CleanerUpper          = (*StatusPage)(nil)
	_ caddyfile.Unmarshaler       = (*StatusPage)(nil)
	_ caddyhttp.MiddlewareHandler = (*StatusPage)(nil)
)
