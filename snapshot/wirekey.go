package snapshot

import (
	"encoding/binary"

	"github.com/tinylib/msgp/msgp"
)

// maxWireKey is room for the longest key as it stands on the wire, and a whole
// number of machine words.
const maxWireKey = 32

// wireKey is a key as it stands on the wire, cut into machine words: comparing
// it with the one that should come next costs a third of what it takes to read
// the one that did and look it up, and less than comparing strings.
type wireKey struct {
	size       int
	word, mask [maxWireKey / 8]uint64
}

var wireKeys = func() (keys [numFields]wireKey) {
	for f := range keys {
		keys[f] = newWireKey(fieldKeys[f])
	}
	return keys
}()

func newWireKey(key string) wireKey {
	var text, mask [maxWireKey]byte
	k := wireKey{size: copy(text[:], msgp.AppendString(nil, key))}
	for i := range k.size {
		mask[i] = 0xff
	}
	for i := range k.word {
		k.word[i] = binary.LittleEndian.Uint64(text[8*i:])
		k.mask[i] = binary.LittleEndian.Uint64(mask[8*i:])
	}
	return k
}

// equal reports whether b, of maxWireKey bytes, starts with k.
func (k *wireKey) equal(b []byte) bool {
	_ = b[maxWireKey-1]
	return (binary.LittleEndian.Uint64(b)^k.word[0])&k.mask[0]|
		(binary.LittleEndian.Uint64(b[8:])^k.word[1])&k.mask[1]|
		(binary.LittleEndian.Uint64(b[16:])^k.word[2])&k.mask[2]|
		(binary.LittleEndian.Uint64(b[24:])^k.word[3])&k.mask[3] == 0
}
