package gateway

import (
	"crypto/rand"
	"net/http"
	"strings"
)

// requestIDHeader names a request to everybody that it passes: the client, the engine, and
// both of their logs and ours.
const requestIDHeader = "X-Request-Id"

// maxRequestID is longer than any id that somebody has made up for the purpose.
const maxRequestID = 128

// requestID returns the client's name for a request, or a new one if that is none. It
// goes into logs and headers of others, who may be less careful with it than we are.
func requestID(h http.Header) string {
	id := h.Get(requestIDHeader)
	if id == "" || len(id) > maxRequestID || strings.ContainsFunc(id, notInID) {
		return rand.Text()
	}
	return id
}

func notInID(r rune) bool {
	switch {
	case r >= 'a' && r <= 'z', r >= 'A' && r <= 'Z', r >= '0' && r <= '9':
		return false
	}
	return !strings.ContainsRune("-_.:/+=@", r)
}
