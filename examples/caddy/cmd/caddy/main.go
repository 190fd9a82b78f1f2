// Command caddy is Caddy with the modules of this folder.
package main

import (
	caddycmd "github.com/caddyserver/caddy/v2/cmd"

	_ "github.com/caddyserver/caddy/v2/modules/standard"
	_ "github.com/plimsoll-go/plimsoll/examples/caddy"
)

func main() {
	caddycmd.Main()
}
