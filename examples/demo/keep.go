package main

import (
	"context"
	"fmt"
	"io"
	"time"

	"github.com/plimsoll-go/plimsoll/examples/internal/gateway"
)

// lightTraffic leaves the engines three quarters of their time to themselves, and gives
// each of them some requests a second: enough to see where they go.
var lightTraffic = traffic{seed: 2, rate: 15, length: time.Minute}

// stayUp leaves the fleet to be looked at and broken, under light traffic, until ctx
// ends. The policy is the default, whichever was measured last.
func (s *setup) stayUp(ctx context.Context, w io.Writer) error {
	if err := s.gateway.SetPolicy(gateway.Config{}.WithDefaults().Policy, nil); err != nil {
		return err
	}
	s.guide(w)
	s.trickle(ctx)
	return nil
}

// trickle sends the same minute of light traffic again and again. What becomes of the
// requests is for the page to show: some are on an engine when it is killed.
func (s *setup) trickle(ctx context.Context) {
	plan := lightTraffic.plan()
	for ctx.Err() == nil {
		_, _, _ = send(ctx, s.urlOf, plan, func(time.Duration, int, int) {})
	}
}

// guide says what there is to look at, and to break.
func (s *setup) guide(w io.Writer) {
	fmt.Fprintf(w, `
Still up, until Ctrl-C, under light traffic. The policy is %s, the default. Look at the

  status page       %s

and then, in another terminal, kill an engine:

  curl -X POST '%[3]s/sim/die'

The first request that cannot reach it has it set aside, and traffic has moved away: within a second or so. After three
failures in a row, of requests or of the probes every two seconds, it is out of rotation, with the reason. And within the
freshness window, which is five seconds, its last report is stale: it is not trusted. Call it back:

  curl -X POST '%[3]s/sim/restart'

Or let it fall silent, while it goes on answering. Within the freshness window it is stale; then it gets some requests
still, by an estimate of what is there. Have it speak again:

  curl -X POST '%[3]s/sim/mute'
  curl -X POST '%[3]s/sim/unmute'

Or have it come back with four ranks instead of two:

  curl -X POST '%[3]s/sim/restart?ranks=4'

These were all for engine-0. The others hear the same at their own addresses:

`, s.gateway.Policy(), s.statusPage(), s.engines[0].AdminURL())
	for i, e := range s.engines {
		fmt.Fprintf(w, "  %-16s  %s is broken at %s\n", nameOf(i), e.URL(), e.AdminURL())
	}
	fmt.Fprintf(w, `
What else there is: metrics; the gateway itself, whose headers X-Plimsoll-... of an answer tell the pick, and what it was
compared with.

  curl -s %s/metrics
  curl -si -H 'X-Plimsoll-Explain: 1' %s/v1/completions -d '{"prompt": "hello", "max_tokens": 5}'
`, s.admin, s.url)
}
