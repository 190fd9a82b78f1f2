package zmqsub

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
)

// The pair of the ZeroMQ manual.
const (
	manualPublic = "Yne@$w-vo<fVvi]a<NY6T1ed:M$fCG*[IaLV{hID"
	manualSecret = "D:)Q[IlAW!ahhC2ac:9*A}h:p?([4%wOTJ%JR%cs"
)

func TestKeysThatCannotBeMeantAreRefusedInWords(t *testing.T) {
	for _, test := range []struct{ key, problem string }{
		{"", "missing"},
		{manualPublic[:39], "39 characters"},
		{manualPublic + "0", "41 characters"},
		{strings.Repeat("ab", 32), "64 characters"}, // hexadecimal
		{"\x00" + manualPublic[1:], "character 1 is not"},
		{manualPublic[:39] + ",", "character 40 is not"},
		{manualPublic[:10] + "é" + manualPublic[12:], "character 11 is not"},
		{strings.Repeat("#", 40), "characters 1 to 5 are above 32 bits"},
		{manualPublic[:20] + "%nSc1" + manualPublic[25:], "characters 21 to 25 are above"},
	} {
		err := checkKey("ServerKey", rank0, test.key)
		var ke *KeyError
		if !errors.As(err, &ke) || !errors.Is(err, ErrKey) || !strings.Contains(ke.Problem, test.problem) {
			t.Errorf("%q: %v, want %q", test.key, err, test.problem)
			continue
		}
		if test.key != "" && strings.Contains(err.Error(), test.key) || !strings.Contains(err.Error(), rank0) {
			t.Errorf("%q: %v", test.key, err)
		}
	}
	for _, key := range []string{manualPublic, manualSecret, strings.Repeat("0", 40), strings.Repeat("%nSc0", 8)} {
		if err := checkKey("ServerKey", "", key); err != nil {
			t.Errorf("%q: %v", key, err)
		}
	}
}

func TestKeysOfTheConfigAreCheckedAtTheStart(t *testing.T) {
	of := func(string) string { return "" }
	for _, test := range []struct {
		curve Curve
		keys  []string // that are wrong
	}{
		{Curve{ServerKey: manualPublic}, nil},
		{Curve{ServerKeyOf: of}, nil},
		{Curve{ServerKey: manualPublic, ServerKeyOf: of, PublicKey: manualPublic, SecretKey: manualSecret}, nil},
		{Curve{}, []string{"ServerKey"}},
		{Curve{ServerKey: "x", ServerKeyOf: of}, []string{"ServerKey"}},
		{Curve{ServerKey: manualPublic, PublicKey: manualPublic}, []string{"SecretKey"}},
		{Curve{ServerKey: manualPublic, SecretKey: manualSecret}, []string{"PublicKey"}},
		{Curve{ServerKey: "x", PublicKey: "y", SecretKey: "z"}, []string{"ServerKey", "PublicKey", "SecretKey"}},
	} {
		_, err := Config{Curve: &test.curve}.withDefaults()
		if (err != nil) != (test.keys != nil) || err != nil && !errors.Is(err, ErrKey) {
			t.Errorf("%v: %v", test.keys, err)
		}
		for _, key := range test.keys {
			if !strings.Contains(fmt.Sprint(err), "Curve."+key) {
				t.Errorf("%v: %v", test.keys, err)
			}
		}
	}
}

func TestKeysAreNotShown(t *testing.T) {
	keys := Curve{ServerKey: manualPublic, PublicKey: manualPublic, SecretKey: manualSecret, ServerKeyOf: func(string) string { return "" }}
	c := Config{Curve: &keys}
	var out bytes.Buffer
	for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%q", "%x", "%d"} {
		fmt.Fprintf(&out, verb+verb+verb+verb, c, &c, keys, &keys)
	}
	for _, h := range []slog.Handler{slog.NewTextHandler(&out, nil), slog.NewJSONHandler(&out, nil)} {
		slog.New(h).Info("starting", "config", c, "curve", keys, "pointer", &keys)
	}
	for _, v := range []any{c, keys, &keys} {
		b, err := json.Marshal(v)
		if err != nil {
			t.Error(err)
		}
		out.Write(b)
	}
	for _, key := range []string{manualPublic, manualSecret, fmt.Sprintf("%x", manualSecret)} {
		if strings.Contains(out.String(), key) {
			t.Errorf("a key is shown in %s", out.String())
		}
	}
}

func TestReconnectsGetFurtherApartWhenTheyAreFruitless(t *testing.T) {
	c, err := Config{}.withDefaults()
	if err != nil {
		t.Fatal(err)
	}
	last := reconnectFirst / 2
	for attempt := range 100 {
		d := c.reconnectAfter(attempt)
		if d != min(2*last, c.ReconnectMax) {
			t.Errorf("attempt %d: %v after %v", attempt, d, last)
		}
		last = d
	}
	if c.ReconnectMax = reconnectFirst / 10; c.reconnectAfter(0) != c.ReconnectMax {
		t.Errorf("%v is above the bound", c.reconnectAfter(0))
	}
}
