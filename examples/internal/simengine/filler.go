package simengine

import "strings"

// words are what the model has to say, one a token, over and over.
var words = strings.Fields(`a ship is loaded until the water meets the line painted
on her side and not a crate more for the line knows nothing of the cargo and
everything of the sea so the harbour master reads it from the quay writes down the
number and sends the next cart to the vessel that still rides high`)

// Text is the whole answer of so many tokens, whatever the question.
func Text(tokens int64) string { return filler(0, tokens) }

// filler returns the text of the tokens from..to of an answer.
func filler(from, to int64) string {
	var b strings.Builder
	for i := from; i < to; i++ {
		if i > 0 {
			b.WriteByte(' ')
		}
		b.WriteString(words[i%int64(len(words))])
	}
	return b.String()
}
