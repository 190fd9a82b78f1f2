package gateway

import (
	"encoding/json"
	"unicode/utf8"

	"github.com/plimsoll-go/plimsoll/load"
)

// charsPerToken is a fair guess for English text. A tokenizer would be exact and
// cost more than it is worth here: a pick wants to tell a long prompt from a
// short one.
const charsPerToken = 4

// promptTokens estimates the prompt tokens of a request body: of the messages of
// a chat, of a prompt, or of the input of an embedding. It is unknown for a body
// that has none of them, which is the engine's to complain about.
func promptTokens(body []byte) load.Maybe[int64] {
	var request struct {
		Messages []struct {
			Content json.RawMessage `json:"content"`
		} `json:"messages"`
		Prompt json.RawMessage `json:"prompt"`
		Input  json.RawMessage `json:"input"`
	}
	if json.Unmarshal(body, &request) != nil {
		return load.Maybe[int64]{}
	}
	var s promptSize
	for _, m := range request.Messages {
		s.add(m.Content)
	}
	s.add(request.Prompt)
	s.add(request.Input)
	if s == (promptSize{}) {
		return load.Maybe[int64]{}
	}
	return load.Known(int64(s.ids + (s.chars+charsPerToken-1)/charsPerToken))
}

// promptSize is what there is to a prompt: characters of text, and ids where the
// client has tokenized it.
type promptSize struct{ chars, ids int }

// add counts text, a part of a message that holds text, token ids, or a list of
// any of them.
func (s *promptSize) add(raw json.RawMessage) {
	if len(raw) == 0 {
		return
	}
	switch raw[0] {
	case '"':
		var text string
		if json.Unmarshal(raw, &text) == nil {
			s.chars += utf8.RuneCountInString(text)
		}
	case '{':
		var part struct {
			Text string `json:"text"`
		}
		if json.Unmarshal(raw, &part) == nil {
			s.chars += utf8.RuneCountInString(part.Text)
		}
	case '[':
		var ids []int64
		if json.Unmarshal(raw, &ids) == nil {
			s.ids += len(ids)
			return
		}
		var list []json.RawMessage
		if json.Unmarshal(raw, &list) == nil {
			for _, e := range list {
				s.add(e)
			}
		}
	}
}
