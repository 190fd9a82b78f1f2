package trace

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"
)

// Bounds of what is read.
const (
	MaxRequests = 1 << 22
	MaxTokens   = 1 << 24 // of one prompt or output
	maxLine     = 1 << 20 // bytes
)

// The causes of a ParseError, besides those of reading, encoding/json, strconv
// and time.
var (
	// ErrHeader: the first line does not name the columns.
	ErrHeader = errors.New("not the header of this format")
	// ErrColumns: a line with fewer columns than the header.
	ErrColumns = errors.New("too few columns")
	// ErrTokens: a token count below 0 or above MaxTokens.
	ErrTokens = errors.New("impossible token count")
	// ErrTime: a time of arrival before the epoch of the trace, or beyond all bounds.
	ErrTime = errors.New("impossible time")
	// ErrBlocks: more blocks than the prompt has.
	ErrBlocks = errors.New("more blocks than the prompt has")
	// ErrTooMany: more than MaxRequests.
	ErrTooMany = errors.New("too many requests")
)

// ParseError says where a trace could not be read, and why.
type ParseError struct {
	Line  int // from 1
	Field string
	Err   error
}

func (e *ParseError) Error() string {
	if e.Field == "" {
		return fmt.Sprintf("trace: line %d: %v", e.Line, e.Err)
	}
	return fmt.Sprintf("trace: line %d: %s: %v", e.Line, e.Field, e.Err)
}

func (e *ParseError) Unwrap() error { return e.Err }

const azureHeader = "TIMESTAMP,ContextTokens,GeneratedTokens"

// Azure reads a trace of Azure's LLM inference dataset of 2023: CSV with the
// columns TIMESTAMP, ContextTokens and GeneratedTokens.
func Azure(name string, r io.Reader) (*Trace, error) {
	var epoch time.Time
	requests, err := lines(r, func(line int, text []byte) (Request, bool, error) {
		if line == 1 {
			if string(text) != azureHeader {
				return Request{}, false, &ParseError{line, "", ErrHeader}
			}
			return Request{}, false, nil
		}
		columns := strings.Split(string(text), ",")
		if len(columns) < 3 {
			return Request{}, false, &ParseError{line, "", ErrColumns}
		}
		at, err := time.Parse("2006-01-02 15:04:05", columns[0])
		if err != nil {
			return Request{}, false, &ParseError{line, "TIMESTAMP", err}
		}
		if epoch.IsZero() {
			epoch = at
		}
		since := at.Sub(epoch)
		if since.Abs() > maxSpan {
			return Request{}, false, &ParseError{line, "TIMESTAMP", ErrTime}
		}
		prompt, err := count(columns[1])
		if err != nil {
			return Request{}, false, &ParseError{line, "ContextTokens", err}
		}
		output, err := count(columns[2])
		if err != nil {
			return Request{}, false, &ParseError{line, "GeneratedTokens", err}
		}
		return Request{At: since, Prompt: max(prompt, 1), Output: max(output, 1)}, true, nil
	})
	if err != nil {
		return nil, err
	}
	return newTrace(name, requests), nil
}

func count(s string) (int, error) {
	n, err := strconv.Atoi(s)
	if err != nil {
		return 0, err
	}
	return n, countOK(n)
}

func countOK(n int) error {
	if n < 0 || n > MaxTokens {
		return ErrTokens
	}
	return nil
}

// maxSpan keeps sums of times from overflowing, also of repeated traces.
const maxSpan = 10 * 365 * 24 * time.Hour

// Mooncake reads a trace of the Mooncake project: a JSON object a line, with
// timestamp in milliseconds, input_length, output_length and hash_ids, which
// name the blocks of the prompt.
func Mooncake(name string, r io.Reader) (*Trace, error) {
	requests, err := lines(r, func(line int, text []byte) (Request, bool, error) {
		var v struct {
			Timestamp    *float64 `json:"timestamp"`
			InputLength  *int     `json:"input_length"`
			OutputLength *int     `json:"output_length"`
			HashIDs      []uint32 `json:"hash_ids"`
		}
		if err := json.Unmarshal(text, &v); err != nil {
			return Request{}, false, &ParseError{line, "", err}
		}
		switch {
		case v.Timestamp == nil || *v.Timestamp < 0 || *v.Timestamp > float64(maxSpan/time.Millisecond):
			return Request{}, false, &ParseError{line, "timestamp", ErrTime}
		case v.InputLength == nil || countOK(*v.InputLength) != nil:
			return Request{}, false, &ParseError{line, "input_length", ErrTokens}
		case v.OutputLength == nil || countOK(*v.OutputLength) != nil:
			return Request{}, false, &ParseError{line, "output_length", ErrTokens}
		case len(v.HashIDs) > (*v.InputLength+BlockTokens-1)/BlockTokens:
			return Request{}, false, &ParseError{line, "hash_ids", ErrBlocks}
		}
		req := Request{
			At:     time.Duration(*v.Timestamp * float64(time.Millisecond)),
			Prompt: max(*v.InputLength, 1),
			Output: max(*v.OutputLength, 1),
			Blocks: make([]uint64, len(v.HashIDs)),
		}
		for i, id := range v.HashIDs {
			req.Blocks[i] = uint64(id)
		}
		return req, true, nil
	})
	if err != nil {
		return nil, err
	}
	return newTrace(name, requests), nil
}

// lines reads the requests that the lines of r hold. Empty lines hold none.
func lines(r io.Reader, parse func(line int, text []byte) (Request, bool, error)) ([]Request, error) {
	var requests []Request
	s := bufio.NewScanner(r)
	s.Buffer(nil, maxLine)
	line := 0
	for s.Scan() {
		line++
		text := bytes.TrimSpace(s.Bytes())
		if len(text) == 0 {
			continue
		}
		req, ok, err := parse(line, text)
		if err != nil {
			return nil, err
		}
		if !ok {
			continue
		}
		if len(requests) == MaxRequests {
			return nil, &ParseError{line, "", ErrTooMany}
		}
		requests = append(requests, req)
	}
	if err := s.Err(); err != nil {
		return nil, &ParseError{line + 1, "", err}
	}
	return requests, nil
}
