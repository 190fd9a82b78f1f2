package zmqsub

import (
	"strings"
	"testing"
	"time"

	"github.com/plimsoll-go/plimsoll/snapshot"
)

func TestZeroConfigHasDefaults(t *testing.T) {
	c, err := Config{}.withDefaults()
	if err != nil {
		t.Fatal(err)
	}
	if c.Owners < 1 || c.Owners > 4 || c.Silence != 5*time.Second || c.MaxPayload != snapshot.MaxPayload || c.Logger == nil {
		t.Errorf("defaults: %+v", c)
	}
}

func TestConfigThatCannotBeMeantIsRefused(t *testing.T) {
	for _, test := range []struct {
		field  string
		config Config
	}{
		{"Owners", Config{Owners: -1}},
		{"Silence", Config{Silence: -time.Second}},
		{"Silence", Config{Silence: 5}}, // nanoseconds, where seconds were meant
		{"MaxPayload", Config{MaxPayload: snapshot.MaxPayload + 1}},
		{"HeartbeatInterval", Config{HeartbeatInterval: time.Microsecond}},
		{"HeartbeatTimeout", Config{HeartbeatTimeout: -1}},
		{"ConnectTimeout", Config{ConnectTimeout: -1}},
		{"ReconnectMax", Config{ReconnectMax: -1}},
		{"MaxSockets", Config{MaxSockets: 1 << 20}},
	} {
		if _, err := test.config.withDefaults(); err == nil || !strings.Contains(err.Error(), "Config."+test.field) {
			t.Errorf("%s: error %v", test.field, err)
		}
	}
}
