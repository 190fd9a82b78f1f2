package loadprom

import (
	"crypto/sha256"
	"encoding/hex"
	"strings"
	"sync"
	"unicode/utf8"
)

// maxLabel is the longest label value. An id stands in every series of its worker.
const maxLabel = 256

// labelOf makes a label value of a worker's id, or of another name that comes from outside.
// One that is not UTF-8 would fail the whole scrape, for all workers. What had to be changed
// ends in a hash, or two names could become one, which fails it too.
func labelOf(name string) string {
	if len(name) <= maxLabel && utf8.ValidString(name) {
		return name
	}
	sum := sha256.Sum256([]byte(name))
	const mark = 16
	head := strings.ToValidUTF8(name[:min(len(name), maxLabel)], "?")
	for len(head) > maxLabel-mark-1 {
		_, size := utf8.DecodeLastRuneInString(head)
		head = head[:len(head)-size]
	}
	return head + "~" + hex.EncodeToString(sum[:mark/2])
}

// other is the label value of all that a names has no room for.
const other = "other"

// names bounds the values of a label whose values are chosen by code, this module's or the
// host's: a host that counts drops under the text of an error must not make a series for each.
type names struct {
	most int

	mu    sync.Mutex
	taken map[string]bool
}

// label returns the name itself, if it looks like one and is among the first that came.
func (n *names) label(name string) string {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.taken[name] {
		return name
	}
	if len(n.taken) >= n.most || !isName(name) {
		return other
	}
	if n.taken == nil {
		n.taken = make(map[string]bool)
	}
	n.taken[name] = true
	return name
}

func isName(s string) bool {
	return 0 < len(s) && len(s) <= 40 && strings.Trim(s, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-.") == ""
}
