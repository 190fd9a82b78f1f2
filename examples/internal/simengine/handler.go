package simengine

import (
	"encoding/json"
	"errors"
	"net/http"
	"strconv"
	"time"

	"github.com/plimsoll-go/plimsoll/examples/internal/simengine/batch"
)

// handler serves everything that the engine answers while it is alive.
func (l *life) handler(faults http.Handler) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("POST /v1/chat/completions", l.completionHandler(chatAPI))
	mux.HandleFunc("POST /v1/completions", l.completionHandler(textAPI))
	mux.HandleFunc("GET /v1/models", l.serveModels)
	mux.HandleFunc("GET /v1/loads", l.serveLoads)
	mux.HandleFunc("GET /server_info", l.serveServerInfo)
	mux.HandleFunc("GET /health", func(http.ResponseWriter, *http.Request) {})
	mux.HandleFunc("GET /health_generate", l.serveHealthGenerate)
	mux.Handle("/sim/", faults)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !l.requests.enter() {
			cut()
		}
		defer l.requests.leave()
		if !l.ice.wait(r.Context()) {
			cut()
		}
		mux.ServeHTTP(w, r)
	})
}

// cut ends the request by closing its connection. A plain return would finish the
// response properly, and the client would take half an answer for a whole one.
func cut() { panic(http.ErrAbortHandler) }

func (l *life) serveModels(w http.ResponseWriter, _ *http.Request) {
	type model struct {
		ID          string `json:"id"`
		Object      string `json:"object"`
		Created     int64  `json:"created"`
		OwnedBy     string `json:"owned_by"`
		Root        string `json:"root"`
		MaxModelLen int64  `json:"max_model_len"`
	}
	writeJSON(w, http.StatusOK, map[string]any{
		"object": "list",
		"data": []model{{
			ID: l.config.Model, Object: "model", Created: l.started.Unix(), OwnedBy: "plimsoll",
			Root: l.config.Model, MaxModelLen: l.ranks[0].core.Config().KVTokens,
		}},
	})
}

// serveHealthGenerate answers when a token has gone all the way through a rank.
func (l *life) serveHealthGenerate(w http.ResponseWriter, r *http.Request) {
	j, err := l.submit(nil, 1, 1)
	if err != nil {
		writeSubmitError(w, err)
		return
	}
	defer j.abort()
	if _, _, err := j.wait(r.Context(), 0); err != nil {
		cut()
	}
}

// apiError is the error object of the OpenAI API.
type apiError struct {
	Message string  `json:"message"`
	Type    string  `json:"type"`
	Param   *string `json:"param"`
	Code    string  `json:"code"`
}

func writeError(w http.ResponseWriter, status int, kind, code, message string) {
	writeJSON(w, status, map[string]apiError{"error": {Message: message, Type: kind, Code: code}})
}

func writeBadRequest(w http.ResponseWriter, err error) {
	writeError(w, http.StatusBadRequest, "invalid_request_error", "invalid_request", err.Error())
}

// writeSubmitError answers a request that no rank took.
func writeSubmitError(w http.ResponseWriter, err error) {
	switch {
	case errors.Is(err, batch.ErrQueueFull):
		writeError(w, http.StatusServiceUnavailable, "service_unavailable_error", "queue_full", err.Error())
	case errors.Is(err, batch.ErrTooLong):
		writeError(w, http.StatusBadRequest, "invalid_request_error", "context_length_exceeded", err.Error())
	case errors.Is(err, errStopped):
		cut()
	default:
		writeError(w, http.StatusInternalServerError, "internal_server_error", "internal_error", err.Error())
	}
}

func writeJSON(w http.ResponseWriter, status int, v any) {
	body, err := json.Marshal(v)
	if err != nil {
		panic(err) // our own types
	}
	w.Header().Set("Content-Type", "application/json")
	// With its length, the answer is whole once it is flushed.
	w.Header().Set("Content-Length", strconv.Itoa(len(body)))
	w.WriteHeader(status)
	_, _ = w.Write(body) // an error here is a client that has left
}

func isoTime(t time.Time) string { return t.UTC().Format("2006-01-02T15:04:05.000000-07:00") }
