package simengine

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"unicode/utf8"
)

// maxBody bounds a request: a prompt of a million tokens as text fits.
const maxBody = 16 << 20

// charsPerToken is how many characters of text count as one token.
const charsPerToken = 4

// completionRequest is what is read of a request to either API.
type completionRequest struct {
	Model               string          `json:"model"`
	Messages            []chatMessage   `json:"messages"`
	Prompt              json.RawMessage `json:"prompt"`
	MaxTokens           *int64          `json:"max_tokens"`
	MaxCompletionTokens *int64          `json:"max_completion_tokens"`
	N                   *int            `json:"n"`
	Stream              bool            `json:"stream"`
	StreamOptions       struct {
		IncludeUsage bool `json:"include_usage"`
	} `json:"stream_options"`
	RoutedDPRank     *int `json:"routed_dp_rank"`
	DataParallelRank *int `json:"data_parallel_rank"` // the older name
}

type chatMessage struct {
	Role    string          `json:"role"`
	Content json.RawMessage `json:"content"`
}

// rankHeader pins a request to a rank, and is stronger than the body.
const rankHeader = "X-Data-Parallel-Rank"

// work is a request as far as the engine is concerned with it.
type work struct {
	model        string
	prompt       int64 // tokens
	output       int64 // tokens
	capped       bool  // output is what the client allowed, not where the model ended
	rank         *int  // nil = the engine chooses
	stream       bool
	includeUsage bool
}

// parseWork reads a request. Its errors are the client's fault.
func (l *life) parseWork(w http.ResponseWriter, r *http.Request, chat bool) (work, error) {
	var req completionRequest
	if err := json.NewDecoder(http.MaxBytesReader(w, r.Body, maxBody)).Decode(&req); err != nil {
		return work{}, fmt.Errorf("the body is not a JSON request: %w", err)
	}
	if req.N != nil && *req.N != 1 {
		return work{}, fmt.Errorf("n is %d: this engine gives one choice", *req.N)
	}
	wk := work{model: req.Model, stream: req.Stream, includeUsage: req.StreamOptions.IncludeUsage}
	if wk.model == "" {
		wk.model = l.config.Model
	}
	var err error
	if chat {
		wk.prompt, err = chatTokens(req.Messages)
	} else {
		wk.prompt, err = promptTokens(req.Prompt)
	}
	if err != nil {
		return work{}, err
	}
	if wk.output, wk.capped, err = req.outputTokens(l.config.MaxTokens); err != nil {
		return work{}, err
	}
	wk.rank, err = req.pinnedRank(r.Header.Get(rankHeader), len(l.ranks))
	return wk, err
}

func (req *completionRequest) outputTokens(absent int64) (n int64, capped bool, err error) {
	limit := req.MaxCompletionTokens
	if limit == nil {
		limit = req.MaxTokens
	}
	if limit == nil {
		return absent, false, nil
	}
	if *limit < 1 {
		return 0, false, fmt.Errorf("max_tokens is %d: want at least 1", *limit)
	}
	return *limit, true, nil
}

func (req *completionRequest) pinnedRank(header string, ranks int) (*int, error) {
	rank := req.RoutedDPRank
	if rank == nil {
		rank = req.DataParallelRank
	}
	if header != "" {
		n, err := strconv.Atoi(header)
		if err != nil {
			return nil, fmt.Errorf("%s is %q: want an integer", rankHeader, header)
		}
		rank = &n
	}
	if rank != nil && (*rank < 0 || *rank >= ranks) {
		return nil, fmt.Errorf("rank %d: this engine has %d", *rank, ranks)
	}
	return rank, nil
}

// chatTokens counts the text of all messages together.
func chatTokens(messages []chatMessage) (int64, error) {
	if len(messages) == 0 {
		return 0, errors.New("messages is empty")
	}
	chars := 0
	for i, m := range messages {
		n, err := contentChars(m.Content)
		if err != nil {
			return 0, fmt.Errorf("messages[%d].content: %w", i, err)
		}
		chars += n
	}
	return tokensOf(chars), nil
}

// contentChars counts a string, or the text parts of an array. No content at all is
// what an assistant's tool call looks like.
func contentChars(raw json.RawMessage) (int, error) {
	if len(raw) == 0 || string(raw) == "null" {
		return 0, nil
	}
	var text string
	if json.Unmarshal(raw, &text) == nil {
		return utf8.RuneCountInString(text), nil
	}
	var parts []struct {
		Text string `json:"text"`
	}
	if json.Unmarshal(raw, &parts) != nil {
		return 0, errors.New("want a string or an array of parts")
	}
	chars := 0
	for _, p := range parts {
		chars += utf8.RuneCountInString(p.Text)
	}
	return chars, nil
}

// promptTokens counts a string, an array of token ids, or an array of one of them.
func promptTokens(raw json.RawMessage) (int64, error) {
	var batch []json.RawMessage
	if json.Unmarshal(raw, &batch) == nil && len(batch) == 1 {
		if n, ok := onePrompt(batch[0]); ok {
			return n, nil
		}
	}
	if n, ok := onePrompt(raw); ok {
		return n, nil
	}
	return 0, errors.New("prompt: want one string or one array of token ids")
}

func onePrompt(raw json.RawMessage) (tokens int64, ok bool) {
	var text *string
	if json.Unmarshal(raw, &text) == nil && text != nil {
		return tokensOf(utf8.RuneCountInString(*text)), true
	}
	var ids []int64
	if json.Unmarshal(raw, &ids) == nil && len(ids) > 0 {
		return int64(len(ids)), true
	}
	return 0, false
}

// tokensOf estimates the tokens of a text, at least one.
func tokensOf(chars int) int64 {
	return max(1, int64(chars+charsPerToken-1)/charsPerToken)
}
