package gateway

import (
	"net/http"
	"strings"
	"testing"
)

func TestOnlySaneRequestIDsAreTakenOver(t *testing.T) {
	for id, sane := range map[string]bool{
		"r1": true, "0af76519-16cd-43dd-8448-eb211c80319c": true, "trace:abc/1.2_3+x=@y": true, strings.Repeat("x", maxRequestID): true,
		"": false, strings.Repeat("x", maxRequestID+1): false, "a b": false, `a"b`: false, "a\tb": false, "ä": false, "a,b": false, "<b>": false,
	} {
		h := http.Header{}
		h.Set(requestIDHeader, id)
		got := requestID(h)
		if (got == id) != sane {
			t.Errorf("%q became %q", id, got)
		}
		h.Set(requestIDHeader, got)
		if requestID(h) != got || requestID(http.Header{}) == got {
			t.Errorf("%q is made up, and no id", got)
		}
	}
}
