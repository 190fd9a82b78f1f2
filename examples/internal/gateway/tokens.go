package gateway

import (
	"encoding/json"

	"github.com/plimsoll-go/plimsoll/load"
)

// charsPerToken is a fair guess for English text. A tokenizer would be exact and
// cost more than it is worth here: a pick wants to tell a long prompt from a
// short one.
const charsPerToken = 4

// look estimates the prompt tokens of a request body: of the messages of a chat, of
// a prompt, or of the input of an embedding. They are unknown for a body that has none
// of them, which is the engine's to complain about. stream is whether the body asks for
// an answer in pieces, and model what it says between the quotes of its model.
//
// Anybody can send a body of any shape, before anything is known of them. So it
// is gone over twice, to check it and to count, and nothing of it is copied.
func look(body []byte) (tokens load.Maybe[int64], stream bool, model []byte) {
	if !json.Valid(body) { // this also bounds how deep it is nested
		return tokens, false, nil
	}
	s := seen{rest: body}
	s.value(atRequest)
	if s.ids > 0 || s.chars > 0 {
		tokens = load.Known(int64(s.ids + (s.chars+charsPerToken-1)/charsPerToken))
	}
	return tokens, s.stream, s.model
}

// place is where in a request a value stands.
type place uint8

const (
	elsewhere place = iota
	atRequest
	atStream
	atModel
	atMessage // or a list of them
	atText    // a string, a part that has one, or a list
	atList    // within such a list, where a number is the id of a token
)

// member is the place of an object's member.
func (p place) member(key []byte) place {
	switch string(key) {
	case "stream":
		if p == atRequest {
			return atStream
		}
	case "model":
		if p == atRequest {
			return atModel
		}
	case "messages":
		if p == atRequest {
			return atMessage
		}
	case "prompt", "input":
		if p == atRequest {
			return atText
		}
	case "content":
		if p == atMessage {
			return atText
		}
	case "text":
		if p == atText || p == atList {
			return atText
		}
	}
	return elsewhere
}

// element is the place of an element of a list.
func (p place) element() place {
	switch p {
	case atMessage:
		return atMessage
	case atText, atList:
		return atList
	}
	return elsewhere
}

// seen is what has been seen of a request: characters of text and ids of its prompt,
// whether it asks for a stream, and of which model. Its methods consume valid JSON.
type seen struct {
	rest       []byte
	chars, ids int
	stream     bool
	model      []byte
}

// value counts the next value, which stands at p.
func (s *seen) value(p place) {
	switch c := s.peek(); {
	case c == '{':
		for s.rest = s.rest[1:]; s.peek() != '}'; s.skip(',') {
			key, _ := s.quoted()
			s.skip(':')
			s.value(p.member(key))
		}
		s.rest = s.rest[1:]
	case c == '[':
		for s.rest = s.rest[1:]; s.peek() != ']'; s.skip(',') {
			s.value(p.element())
		}
		s.rest = s.rest[1:]
	case c == '"':
		switch raw, n := s.quoted(); p {
		case atText, atList:
			s.chars += n
		case atModel:
			s.model = raw
		}
	default:
		switch {
		case p == atList && (c == '-' || c >= '0' && c <= '9'):
			s.ids++
		case p == atStream:
			s.stream = c == 't'
		}
		s.literal()
	}
}

// peek returns the first byte that is no space, 0 at the end.
func (s *seen) peek() byte {
	for i, c := range s.rest {
		if c > ' ' {
			s.rest = s.rest[i:]
			return c
		}
	}
	return 0
}

// skip consumes a separator, if it is there.
func (s *seen) skip(separator byte) {
	if s.peek() == separator {
		s.rest = s.rest[1:]
	}
}

// literal consumes a number, true, false or null.
func (s *seen) literal() {
	for i, c := range s.rest {
		if c <= ' ' || c == ',' || c == ']' || c == '}' {
			s.rest = s.rest[i:]
			return
		}
	}
	s.rest = nil
}

// quoted consumes a string and returns what is between its quotes, and how many
// characters that stands for.
func (s *seen) quoted() (raw []byte, chars int) {
	s.peek()
	s.rest = s.rest[1:]
	for i := 0; ; i++ {
		switch c := s.rest[i]; {
		case c == '"':
			raw, s.rest = s.rest[:i], s.rest[i+1:]
			return raw, chars
		case c == '\\':
			if i++; s.rest[i] == 'u' {
				i += 4
			}
			chars++
		case c&0xC0 != 0x80: // not in the middle of a character
			chars++
		}
	}
}
