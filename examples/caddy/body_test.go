package plimsoll

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"

	"github.com/plimsoll-go/plimsoll/examples/internal/simengine"
)

// Bodies above max_body pass unread, so that it is the engine's connection that breaks.
func TestRequestThatCannotBeReadIsNotTheEnginesFault(t *testing.T) {
	_, urls, ids := engines(t, 1)
	p := start(t, strings.Replace(site(urls, "least_work", ""), "plimsoll\n", "plimsoll {\n max_body 1KB\n}\n", 1))
	known(t, ids)
	client, err := net.Dial("tcp", p.addr)
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	// net/http tells by the context of the request that a client has left, and not this.
	_, err = fmt.Fprintf(client, "POST /v1/completions HTTP/1.1\r\nHost: %s\r\nTransfer-Encoding: chunked\r\n\r\n2000\r\n%s\r\nno number\r\n",
		p.addr, strings.Repeat(" ", 0x2000))
	if err != nil {
		t.Fatal(err)
	}
	eventually(t, "a pick", func() bool { return status(t, ids[0]).Picked == 1 })
	idle(t, ids)
	if status(t, ids[0]).Aside {
		t.Error("the engine is set aside")
	}
}

func TestRequestThatCannotBeSentTwiceIsNot(t *testing.T) {
	for name, handler := range map[string]string{"above max_body": "plimsoll {\n max_body 1KB\n}\n", "without the handler": ""} {
		t.Run(name, func(t *testing.T) {
			list, urls, ids := engines(t, 2)
			p := start(t, strings.Replace(site(urls, "round_robin", "lb_retries 1\nlb_retry_match {\n expression `{rp.status_code} == 500`\n}"), "plimsoll\n", handler, 1))
			known(t, ids)
			for _, e := range list {
				if err := e.FailNext(1, simengine.FailError); err != nil {
					t.Fatal(err)
				}
			}
			res, err := p.post(t.Context(), `{"prompt": "`+strings.Repeat("word ", 1000)+`"}`)
			if err != nil {
				t.Fatal(err)
			}
			_, _ = io.Copy(io.Discard, res.Body)
			res.Body.Close()
			idle(t, ids)
			first, second := status(t, ids[0]), status(t, ids[1])
			if res.StatusCode != http.StatusInternalServerError || first.Picked+second.Picked != 1 {
				t.Errorf("%s after %d picks, want what the one engine said", res.Status, first.Picked+second.Picked)
			}
		})
	}
}

// With request_buffers it is Caddy that keeps the body.
func TestRequestThatCaddyHasBufferedIsSentAgain(t *testing.T) {
	list, urls, ids := engines(t, 2)
	p := start(t, strings.TrimPrefix(site(urls, "round_robin", "request_buffers 1MB\nlb_retries 1\nlb_retry_match {\n expression `{rp.status_code} == 500`\n}"), "plimsoll\n"))
	known(t, ids)
	if err := list[0].FailNext(1, simengine.FailError); err != nil {
		t.Fatal(err)
	}
	picks := func() uint64 { return status(t, ids[0]).Picked + status(t, ids[1]).Picked }
	for requests := uint64(0); picks() == requests && !t.Failed(); requests++ { // until one was tried twice
		if _, err := p.complete(`{"prompt": "` + strings.Repeat("word ", 1000) + `"}`); err != nil {
			t.Error(err)
		}
	}
	idle(t, ids)
}
