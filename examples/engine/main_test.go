package main

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"net/http"
	"regexp"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"github.com/plimsoll-go/plimsoll/examples/internal/simengine"
	"github.com/plimsoll-go/plimsoll/examples/internal/tswire"
	"github.com/plimsoll-go/plimsoll/tokenspeed"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestEngineSaysWhereItIsAndEndsWithItsContext(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	stdout, w := io.Pipe()
	ended := make(chan error, 1)
	var stderr bytes.Buffer
	go func() {
		err := run(ctx, []string{"-ranks", "2", "-time-scale", "1000"}, w, &stderr)
		w.CloseWithError(io.EOF)
		ended <- err
	}()
	var out strings.Builder
	described := regexp.MustCompile(`^engine  (http://127\.0\.0\.1:\d+)\nadmin   http://127\.0\.0\.1:\d+/sim/ .*\nload 0  tcp://127\.0\.0\.1:\d+\nload 1  tcp://127\.0\.0\.1:\d+\n$`)
	buf := make([]byte, 256)
	for !described.MatchString(out.String()) {
		n, err := stdout.Read(buf)
		if err != nil {
			t.Fatalf("%v after %q; %s", err, out.String(), stderr.String())
		}
		out.Write(buf[:n])
	}
	client := http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	resp, err := client.Get(described.FindStringSubmatch(out.String())[1] + "/health")
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		t.Errorf("status %d", resp.StatusCode)
	}
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
	if !strings.Contains(stderr.String(), "engine ends") {
		t.Errorf("no last word in the log: %q", stderr.String())
	}
}

func TestFlags(t *testing.T) {
	c, err := parseFlags(strings.Fields("-listen 0.0.0.0:30000 -ranks 4 -wire load_snapshot -speed 0.5 -time-scale 2 -kv-base-port 5557 "+
		"-replay-base-port 5558 -kv-tokens 1000 -max-running 8 -max-queue 9 -model m -no-load-socket -admin= -max-tokens 7 -stream-interval 3"), io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	want := simengine.Config{
		Listen: "0.0.0.0:30000", Ranks: 4, Wire: simengine.WireLoadSnapshot, Speed: 0.5, TimeScale: 2, KVPortBase: 5557,
		ReplayPortBase: 5558, KVTokens: 1000, MaxRunning: 8, MaxQueue: 9, Model: "m", NoLoadSocket: true, MaxTokens: 7, StreamInterval: 3,
	}
	if c != want {
		t.Errorf("flags give\n%+v, want\n%+v", c, want)
	}
	if c, err = parseFlags([]string{"-kv-base-port", "auto"}, io.Discard); err != nil || c.KVPortBase != 0 {
		t.Errorf("automatic ports: %d, %v", c.KVPortBase, err)
	}
}

func TestBadFlags(t *testing.T) {
	for _, args := range []string{
		"-wire load", "-kv-base-port 65536", "-kv-base-port -1", "-ranks many", "extra",
		"-wire tokenspeed", "-wire tokenspeed -handshake tcp://h:1 -admin=", "-wire tokenspeed -handshake tcp://h:1 -load=perhaps",
		"-handshake tcp://h:1", "-load=false", "-elements 9", "-ranks 0", "-speed 0", "-max-tokens 0",
	} {
		if _, err := parseFlags(strings.Fields(args), io.Discard); err == nil {
			t.Errorf("%s was accepted", args)
		}
	}
	if err := run(t.Context(), []string{"-ranks", "-3"}, io.Discard, io.Discard); err == nil {
		t.Error("an engine of -3 ranks started")
	}
	for _, args := range []string{"-elements 11", "-engine-index -1"} {
		var log strings.Builder
		if err := run(t.Context(), strings.Fields("-wire tokenspeed -handshake tcp://h:1 "+args), io.Discard, &log); err == nil || log.Len() > 0 {
			t.Errorf("%s: %v, after %q", args, err, &log)
		}
	}
}

func TestFlagsOfTheOtherKind(t *testing.T) {
	c, err := parseFlags(strings.Fields("-wire tokenspeed -handshake tcp://h:1 -engine-index 2 -load=false -elements 10 -ranks 2"), io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	if c.Wire != simengine.WireTokenSpeed || c.Handshake != "tcp://h:1" || c.EngineIndex != 2 || !c.NoLoad || c.Elements != 10 || c.Ranks != 2 {
		t.Errorf("%+v", c)
	}
}

func TestTokenSpeedEngineDialsServesAndSaysThatItIsDead(t *testing.T) {
	frontend, err := tswire.Listen(tswire.FrontendConfig{Ranks: 2, FirstIndex: 3})
	if err != nil {
		t.Fatal(err)
	}
	defer frontend.Close()
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	var stdout, stderr bytes.Buffer
	go func() {
		args := "-wire tokenspeed -ranks 2 -engine-index 3 -time-scale 1000 -handshake " + frontend.Endpoint()
		ended <- run(ctx, strings.Fields(args), &stdout, &stderr)
	}()
	if _, err := frontend.Accept(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := frontend.Add(1, tswire.Request{ID: "a", Prompt: []int64{1}, MaxNewTokens: 1}); err != nil {
		t.Fatal(err)
	}
	var words []string
	err = frontend.Serve(func(frames [][]byte) {
		var b tokenspeed.Summary
		payload, err := tokenspeed.Split(frames)
		switch {
		case errors.Is(err, tokenspeed.ErrEngineDead):
			words = append(words, "dead")
			if len(words) == 3 {
				go frontend.Close()
			}
		case err != nil || b.Decode(payload) != nil:
			t.Errorf("%q", frames)
		default:
			words = append(words, fmt.Sprintf("%s by %d", b.Finished, b.EngineIndex))
			cancel()
		}
	})
	if err != nil {
		t.Error(err)
	}
	if got := strings.Join(words, ", "); got != "[a] by 4, dead, dead" {
		t.Errorf("the frontend heard %s", got)
	}
	if err := <-ended; err != nil {
		t.Error(err)
	}
	if got := stdout.String(); !strings.Contains(got, "rank 1  engine index 4 of the frontend at tcp://") {
		t.Errorf("%q", got)
	}
	if !strings.Contains(stderr.String(), "engine ends") {
		t.Errorf("no last word in the log: %q", stderr.String())
	}
}

func TestTokenSpeedEngineServesOneFrontendAfterAnother(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	ended := make(chan error, 1)
	var stderr bytes.Buffer
	endpoint := "tcp://127.0.0.1:*"
	for i := range 3 {
		frontend, err := tswire.Listen(tswire.FrontendConfig{Endpoint: endpoint, Ranks: 2})
		if err != nil {
			t.Fatal(err)
		}
		if i == 0 {
			endpoint = frontend.Endpoint()
			go func() {
				ended <- run(ctx, strings.Fields("-wire tokenspeed -ranks 2 -handshake "+endpoint), io.Discard, &stderr)
			}()
		}
		if _, err := frontend.Accept(t.Context()); err != nil {
			t.Fatal(err)
		}
		if err := frontend.Close(); err != nil {
			t.Fatal(err)
		}
	}
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
	if n := strings.Count(stderr.String(), "frontend is gone"); n < 2 {
		t.Errorf("%d frontends were missed: %s", n, &stderr)
	}
}

func TestTokenSpeedEngineThatNobodyWaitsForCanBeInterrupted(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := run(ctx, strings.Fields("-wire tokenspeed -handshake tcp://127.0.0.1:9"), io.Discard, io.Discard); err != nil {
		t.Error(err)
	}
}

func TestHelpNamesEveryFaultAndMarksFlagsOfOneKind(t *testing.T) {
	var help bytes.Buffer
	if _, err := parseFlags([]string{"-help"}, &help); !errors.Is(err, flag.ErrHelp) {
		t.Errorf("-help: %v", err)
	}
	for otherKind, names := range kindFlags {
		kind := map[bool]string{true: "sglang", false: "tokenspeed"}[otherKind]
		for _, name := range names {
			if !regexp.MustCompile(`(?m)^  -` + name + `( .*)?\n\s+` + kind + `: `).MatchString(help.String()) {
				t.Errorf("-help does not say that -%s is of %s alone", name, kind)
			}
		}
	}
	for _, name := range []string{"mute", "unmute", "die", "restart", "garbage", "slow", "fail"} {
		if !strings.Contains(help.String(), "POST /sim/"+name) {
			t.Errorf("-help is silent about %s", name)
		}
	}
}
