package discovery

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
)

// An answer is looked through where it lies. To have encoding/json take it apart
// would cost a hostile megabyte of small values a hundred times its size.

var (
	// errShape: a body that is complete and is not what was asked for.
	errShape = errors.New("unexpected shape")
	// errCutOff: a body that ends in the middle.
	errCutOff = errors.New("body cut off")
)

// objectIn returns the JSON object that a whole body should be.
func objectIn(body []byte) (json.RawMessage, error) {
	if !json.Valid(body) {
		return nil, faultOf(body)
	}
	if object := bytes.TrimSpace(body); object[0] == '{' {
		return object, nil
	}
	return nil, fmt.Errorf("%w: %s, not an object", errShape, kindOf(body))
}

// faultOf says what is wrong with a body that is not JSON. The decoder, unlike
// Valid and Unmarshal, tells JSON that ends in the middle from what is none, which
// is what a reply of no declared length looks like when its connection is cut.
func faultOf(body []byte) error {
	var value json.RawMessage
	err := json.NewDecoder(bytes.NewReader(body)).Decode(&value)
	switch {
	case err == nil:
		return fmt.Errorf("%w: more than one JSON value", errShape)
	case errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF):
		return errCutOff
	}
	return fmt.Errorf("%w: not JSON: %v", errShape, err)
}

// members returns the keys and values of an object, which must be valid JSON, and
// nothing of any other value. Keys come as they are written: nobody escapes the
// letters that those we look for consist of. One may come more than once; the last
// is what other readers of JSON take. Values come without space around them.
func members(object json.RawMessage) iter.Seq2[[]byte, json.RawMessage] {
	return func(yield func([]byte, json.RawMessage) bool) {
		for i := enter(object, '{'); i < len(object) && object[i] != '}'; {
			end := valueEnd(object, i)
			key := object[i+1 : end-1]
			i = space(object, space(object, end)+len(":"))
			end = valueEnd(object, i)
			if !yield(key, object[i:end:end]) {
				return
			}
			i = next(object, end)
		}
	}
}

// elements returns the elements of an array in the same way.
func elements(array json.RawMessage) iter.Seq[json.RawMessage] {
	return func(yield func(json.RawMessage) bool) {
		for i := enter(array, '['); i < len(array) && array[i] != ']'; {
			end := valueEnd(array, i)
			if !yield(array[i:end:end]) {
				return
			}
			i = next(array, end)
		}
	}
}

// enter returns where the first element of a container begins, or its end is.
func enter(b []byte, open byte) int {
	i := space(b, 0)
	if i == len(b) || b[i] != open {
		return len(b)
	}
	return space(b, i+1)
}

// next returns where the element after one that ends at i begins, or the end of
// their container is.
func next(b []byte, i int) int {
	i = space(b, i)
	if i < len(b) && b[i] == ',' {
		i = space(b, i+1)
	}
	return i
}

func space(b []byte, i int) int {
	for i < len(b) && (b[i] == ' ' || b[i] == '\t' || b[i] == '\n' || b[i] == '\r') {
		i++
	}
	return i
}

// valueEnd returns where the value that begins at i ends.
func valueEnd(b []byte, i int) int {
	depth := 0
	for i < len(b) {
		switch b[i] {
		case '"':
			i = stringEnd(b, i)
		case '{', '[':
			depth++
			i++
		case '}', ']':
			depth--
			i++
		case ',', ':', ' ', '\t', '\n', '\r':
			i++
			continue
		default: // of a number or a word
			for i < len(b) && !delimits(b[i]) {
				i++
			}
		}
		if depth == 0 {
			break
		}
	}
	return i
}

func delimits(c byte) bool {
	switch c {
	case ',', ':', '}', ']', ' ', '\t', '\n', '\r':
		return true
	}
	return false
}

// stringEnd returns where the string that begins at i ends.
func stringEnd(b []byte, i int) int {
	for i++; i < len(b); i++ {
		switch b[i] {
		case '\\':
			i++
		case '"':
			return i + 1
		}
	}
	return len(b)
}
