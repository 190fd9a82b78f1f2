package tokenspeed

import "github.com/plimsoll-go/plimsoll/internal/msgpack"

// Decode reads one batch out of payload into b, which is reset first. Numbers may
// change between integer and float on the wire as long as the value is the same.
//
// Every error is a *DecodeError. After one b is empty, but for what
// Summary.Decode leaves of a ragged batch.
//
// Decode does not allocate, except for the slices of b growing and for LoadErr.
func (b *Batch) Decode(payload []byte) error {
	b.resetColumns()
	var start offsets
	c, i, err := b.Summary.decode(payload, &start)
	if err == nil {
		c, i, err = b.decodeColumns(payload, &start)
	}
	if err != nil {
		b.resetColumns()
	}
	return b.Summary.done(payload, c, i, err)
}

// decodeColumns reads the columns, which are known to be whole and of equal
// length. Not before that is it worth while to store anything.
func (b *Batch) decodeColumns(p []byte, start *offsets) (c column, i int, err error) {
	for c = colRIDs; int(c) < minElements; c++ {
		n, i, err := msgpack.ReadArrayHeader(p, start[c])
		if err != nil {
			return c, i, err
		}
		switch c {
		case colRIDs:
			b.rids, i, err = msgpack.AppendStrings(b.rids, p, i, n)
		case colOutputIDs:
			i, err = readRows(&b.outputIDs, msgpack.AppendCounts, p, i, n)
		case colFinishedReasons:
			b.finishes, i, err = msgpack.AppendStrings(b.finishes, p, i, n)
		case colPromptTokens:
			b.prompt, i, err = msgpack.AppendCounts(b.prompt, p, i, n)
		case colCompletionTokens:
			b.completion, i, err = msgpack.AppendCounts(b.completion, p, i, n)
		case colCachedTokens:
			b.cached, i, err = msgpack.AppendCounts(b.cached, p, i, n)
		case colLogprobs:
			i, err = readRows(&b.logprobs, msgpack.AppendFloats, p, i, n)
		case colLogprobIDs:
			i, err = readRows(&b.logprobIDs, msgpack.AppendCounts, p, i, n)
		}
		if err != nil {
			return c, i, err
		}
	}
	return colTag, len(p), nil
}

// readRows reads n rows, each an array of what read reads.
func readRows[T any](r *rows[T], read func([]T, []byte, int, int) ([]T, int, error), p []byte, i, n int) (int, error) {
	for range n {
		length, next, err := msgpack.ReadArrayHeader(p, i)
		if err != nil {
			return i, err
		}
		if r.values, i, err = read(r.values, p, next, length); err != nil {
			return i, err
		}
		r.ends = append(r.ends, len(r.values))
	}
	return i, nil
}
