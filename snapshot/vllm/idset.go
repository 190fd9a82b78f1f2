package vllm

import (
	"bytes"
	"hash/maphash"
)

// idSet finds out whether an id is among those of a list already, without
// allocating. A step ends a handful of requests, for which looking at each is
// quickest; an engine that ends all of its requests at once needs a table, or a
// message of 16 MiB would take minutes.
type idSet struct {
	slots []uint32 // position in the list plus 1; 0 is free; length a power of 2
	used  bool
}

// fewIDs is up to how many ids are looked at one by one.
const fewIDs = 16

// The seed keeps an engine from choosing ids that all fall on one slot.
var idSeed = maphash.MakeSeed()

// add appends id to list unless it is there, and returns whether it did. The
// list is always the same one until the next reset.
func (s *idSet) add(list [][]byte, id []byte) ([][]byte, bool) {
	if len(list) < fewIDs {
		for _, known := range list {
			if bytes.Equal(known, id) {
				return list, false
			}
		}
		return append(list, id), true
	}
	if !s.used || 2*len(list) >= len(s.slots) {
		s.rebuild(list)
	}
	slot := s.find(list, id)
	if *slot != 0 {
		return list, false
	}
	list = append(list, id)
	*slot = uint32(len(list))
	return list, true
}

// find returns the slot that id has, or would have.
func (s *idSet) find(list [][]byte, id []byte) *uint32 {
	mask := uint64(len(s.slots) - 1)
	for h := maphash.Bytes(idSeed, id) & mask; ; h = (h + 1) & mask {
		slot := &s.slots[h]
		if *slot == 0 || bytes.Equal(list[*slot-1], id) {
			return slot
		}
	}
}

// rebuild makes room for twice as many ids as there are.
func (s *idSet) rebuild(list [][]byte) {
	if 2*len(list) >= len(s.slots) {
		size := max(len(s.slots), 8*fewIDs)
		for size < 4*len(list) {
			size *= 2
		}
		s.slots = make([]uint32, size)
	} else {
		clear(s.slots)
	}
	s.used = true
	for n, id := range list {
		*s.find(list, id) = uint32(n + 1)
	}
}

func (s *idSet) reset() { s.used = false }
