package gateway

import (
	"net/http"
	"testing"
)

const (
	testTrace  = "0af7651916cd43dd8448eb211c80319c"
	testParent = "00-" + testTrace + "-b7ad6b7169203331-01"
)

func TestTraces(t *testing.T) {
	for name, test := range map[string]struct {
		parents []string
		kept    bool
	}{
		"as it should be":            {[]string{testParent}, true},
		"unknown flags":              {[]string{"00-" + testTrace + "-b7ad6b7169203331-ff"}, true},
		"a later version":            {[]string{"cc-" + testTrace + "-b7ad6b7169203331-01"}, true},
		"a later version, with more": {[]string{"cc-" + testTrace + "-b7ad6b7169203331-01-what"}, true},
		"a later version, run on":    {[]string{"cc-" + testTrace + "-b7ad6b7169203331-01what"}, false},
		"more than version 00 has":   {[]string{testParent + "-what"}, false},
		"version ff":                 {[]string{"ff-" + testTrace + "-b7ad6b7169203331-01"}, false},
		"trace id of zeros":          {[]string{"00-00000000000000000000000000000000-b7ad6b7169203331-01"}, false},
		"parent id of zeros":         {[]string{"00-" + testTrace + "-0000000000000000-01"}, false},
		"upper case":                 {[]string{"00-0AF7651916CD43DD8448EB211C80319C-b7ad6b7169203331-01"}, false},
		"too short":                  {[]string{testParent[:54]}, false},
		"not hex":                    {[]string{"00-" + testTrace + "-b7ad6b7169203331-0x"}, false},
		"other separators":           {[]string{"00_" + testTrace + "_b7ad6b7169203331_01"}, false},
		"empty":                      {[]string{""}, false},
		"twice":                      {[]string{testParent, testParent}, false},
	} {
		t.Run(name, func(t *testing.T) {
			h := http.Header{traceParentHeader: test.parents, traceStateHeader: {"a=1", "b=2"}}
			trace := traceOf(h)
			trace.set(h)
			parents := h[traceParentHeader]
			if len(parents) != 1 || !validParent(parents[0]) || parents[0][3:35] != trace.id {
				t.Fatalf("trace %s is passed on as %q", trace.id, parents)
			}
			if kept := parents[0] == test.parents[0]; kept != test.kept || kept != (len(h[traceStateHeader]) == 2) {
				t.Errorf("%q is passed on as %q, with %q", test.parents, parents, h[traceStateHeader])
			}
			if !test.kept && parents[0][53:] != "00" {
				t.Errorf("%s is sampled", parents[0])
			}
		})
	}
}

func TestNoTraceIsBegunHere(t *testing.T) {
	h := http.Header{traceStateHeader: {"a=1"}}
	trace := traceOf(h)
	if trace.set(h); trace.id != "" || len(h) != 0 {
		t.Errorf("trace %q, and %v is passed on", trace.id, h)
	}
}
