package main

import (
	"context"
	"errors"
	"io"
	"testing"
)

func TestFlagsThatMakeNoSense(t *testing.T) {
	t.Setenv(tracesEnv, "")
	for _, args := range [][]string{
		{"cells"},
		{"-set", "none"},
		{"-cells", "gw1", "-engines", "3"},
		{"-cells", "("},
		{"-wire", "pigeon"},
		{"-seeds", "0"},
		{"-requests", "0"},
		{"-engines", "0"},
		{"-load", "0.9,much"},
		{"-load", "0.9,0"},
		{"-ranks", "1,many"},
		{"-unstreamed", "0.5", "-wire", "piggyback"},
	} {
		if _, err := parse(args, io.Discard); err == nil {
			t.Errorf("%q was accepted", args)
		}
	}
	for _, args := range [][]string{
		{"-cells", "nothing"},
		{"-set", "check"}, // its traces are public ones
		{"-trace", "mooncake"},
		{"-trace", "no/such/file.csv"},
		{"-traces", t.TempDir()},
		{"-policies", "lest_request"},
		{"-with", "no/such/file.json"},
		{"-speeds", "1,-1"},
		{"-ranks", "1,-1"},
		{"-unstreamed", "1.5"},
		{"-mute", "99"},
	} {
		args = append([]string{"-requests", "5", "-seeds", "1"}, args...)
		o, err := parse(args, io.Discard)
		if err != nil {
			t.Errorf("%q: %v", args, err)
			continue
		}
		if err := run(t.Context(), o, io.Discard, io.Discard); err == nil {
			t.Errorf("%q ran", args)
		}
	}
}

func TestItEndsWhenItIsTold(t *testing.T) {
	t.Setenv(tracesEnv, "")
	o, err := parse([]string{"-cells", "gw1", "-requests", "5"}, io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := run(ctx, o, io.Discard, io.Discard); !errors.Is(err, context.Canceled) {
		t.Errorf("it ended with %v", err)
	}
}
