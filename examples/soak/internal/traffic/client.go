package traffic

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"

	"github.com/plimsoll-go/plimsoll/examples/internal/simengine"
)

// answer is what a client got.
type answer struct {
	began, ended time.Time
	status       int    // 0: none
	code         string // of an error
	worker       string // that the gateway names
	whole        bool   // all of it, as it should be
	left         bool   // the client did not wait for the end
	err          error
}

var errLeft = errors.New("the client left")

// ask sends a request and takes what there is of an answer.
func ask(ctx context.Context, client *http.Client, url string, r request) (a answer) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	if r.patience.time > 0 {
		timer := time.AfterFunc(r.patience.time, func() { cancel(errLeft) })
		defer timer.Stop()
	}
	a.began = time.Now()
	defer func() { a.ended = time.Now() }()
	a.err = a.take(ctx, client, url, r)
	if a.left = errors.Is(a.err, errLeft) || a.err != nil && context.Cause(ctx) == errLeft; !a.left {
		a.whole = a.err == nil
	}
	return a
}

func (a *answer) take(ctx context.Context, client *http.Client, url string, r request) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, url+r.path(), bytes.NewReader(r.body()))
	if err != nil {
		return err
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("X-Request-Id", r.id)
	res, err := client.Do(req)
	if err != nil {
		return err
	}
	defer res.Body.Close()
	a.status, a.worker = res.StatusCode, res.Header.Get("X-Plimsoll-Worker")
	if res.StatusCode != http.StatusOK {
		return a.refusal(res)
	}
	var text string
	if r.stream {
		text, err = readStream(res.Body, r)
	} else {
		text, err = readWhole(res.Body, r)
	}
	if err != nil {
		return err
	}
	if want := simengine.Text(int64(r.output)); text != want {
		return fmt.Errorf("the answer is %q, want %q", text, want)
	}
	return nil
}

// refusal reads an error of the gateway, or of an engine.
func (a *answer) refusal(res *http.Response) error {
	text, err := io.ReadAll(io.LimitReader(res.Body, 64<<10))
	if err != nil {
		return err
	}
	var e struct {
		Error struct {
			Code string `json:"code"`
		} `json:"error"`
	}
	if json.Unmarshal(text, &e) == nil {
		a.code = e.Error.Code
	}
	return fmt.Errorf("%s: %s", res.Status, bytes.TrimSpace(text))
}

// object is an answer, or an event of one, of either API.
type object struct {
	Choices []struct {
		Text    string `json:"text"`
		Delta   part   `json:"delta"`
		Message part   `json:"message"`
		Finish  string `json:"finish_reason"`
	} `json:"choices"`
}

type part struct {
	Content string `json:"content"`
}

var errUnfinished = errors.New("the answer ends without saying so")

func readWhole(body io.Reader, r request) (string, error) {
	text, err := io.ReadAll(body)
	if err != nil {
		return "", err
	}
	var o object
	if err := json.Unmarshal(text, &o); err != nil {
		return "", err
	}
	if len(o.Choices) != 1 || o.Choices[0].Finish == "" {
		return "", errUnfinished
	}
	return o.Choices[0].Text + o.Choices[0].Message.Content, nil
}

func readStream(body io.Reader, r request) (string, error) {
	var text []byte
	finished, done := false, false
	events := 0
	lines := bufio.NewScanner(body)
	for lines.Scan() {
		data, ok := bytes.CutPrefix(lines.Bytes(), []byte("data: "))
		if !ok {
			continue
		}
		if done {
			return "", errors.New("the answer goes on after its end")
		}
		if done = string(data) == "[DONE]"; done {
			continue
		}
		var o object
		if err := json.Unmarshal(data, &o); err != nil {
			return "", err
		}
		if len(o.Choices) > 0 {
			text = append(text, o.Choices[0].Text+o.Choices[0].Delta.Content...)
			finished = finished || o.Choices[0].Finish != ""
		}
		if events++; events == r.patience.events {
			return "", errLeft
		}
	}
	if err := lines.Err(); err != nil {
		return "", err
	}
	if !finished || !done {
		return "", errUnfinished
	}
	return string(text), nil
}
