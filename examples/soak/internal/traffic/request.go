package traffic

import (
	"encoding/json"
	"math/rand/v2"
	"strings"
	"time"
)

// request is what one client is going to do.
type request struct {
	id       string
	chat     bool
	stream   bool
	prompt   int // tokens
	output   int // tokens
	patience patience
}

// patience is when a client leaves. Most stay.
type patience struct {
	time   time.Duration // 0: stays
	events int           // leaves after so many events of a stream; 0: stays
}

func (p patience) stays() bool { return p == patience{} }

// draw returns what the next client does.
func draw(rng *rand.Rand, id string) request {
	between := func(least, most int) int { return least + rng.IntN(most-least+1) }
	r := request{id: id, chat: rng.IntN(2) == 0, stream: rng.IntN(3) > 0, prompt: between(5, 300), output: between(4, 64)}
	if rng.IntN(10) == 0 {
		r.prompt, r.output = between(1000, 4000), between(100, 400)
	}
	switch rng.IntN(10) {
	case 0:
		r.patience.time = time.Duration(1+rng.IntN(60)) * time.Millisecond
	case 1:
		if r.stream {
			r.patience.events = between(1, 4)
		}
	}
	return r
}

func (r request) path() string {
	if r.chat {
		return "/v1/chat/completions"
	}
	return "/v1/completions"
}

func (r request) body() []byte {
	m := map[string]any{"max_tokens": r.output, "stream": r.stream}
	text := strings.Repeat("sea ", r.prompt)
	if r.chat {
		m["messages"] = []map[string]string{{"role": "user", "content": text}}
	} else {
		m["prompt"] = text
	}
	body, err := json.Marshal(m)
	if err != nil {
		panic(err) // our own types
	}
	return body
}
