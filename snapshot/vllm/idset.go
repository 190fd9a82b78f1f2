package vllm

import (
	"bytes"
	"hash/maphash"
)

// idSet finds out whether an id is in a list already, without allocating. A step
// ends a handful of requests, for which looking at each is quickest; without a
// table for more, a message of MaxRequests ids would take minutes.
type idSet struct {
	table []uint32 // positions in the list, plus 1 since 0 is free; the length is a power of 2
	used  bool     // whether the table holds the list
}

// fewIDs is up to how many ids are looked at one by one.
const fewIDs = 16

// The seed keeps an engine from choosing ids that all want the same place.
var idSeed = maphash.MakeSeed()

// add appends id to list and reports true, unless it is there. The list has to be
// what the calls since the last reset made of an empty one.
func (s *idSet) add(list [][]byte, id []byte) ([][]byte, bool) {
	if len(list) < fewIDs {
		for _, known := range list {
			if bytes.Equal(known, id) {
				return list, false
			}
		}
		return append(list, id), true
	}
	if !s.used || len(list) >= len(s.table)/2 {
		s.rebuild(list)
	}
	place := s.place(list, id)
	if *place != 0 {
		return list, false
	}
	list = append(list, id)
	*place = uint32(len(list))
	return list, true
}

// place returns where id is in the table, or would be.
func (s *idSet) place(list [][]byte, id []byte) *uint32 {
	mask := uint64(len(s.table) - 1)
	for h := maphash.Bytes(idSeed, id) & mask; ; h = (h + 1) & mask {
		place := &s.table[h]
		if *place == 0 || bytes.Equal(list[*place-1], id) {
			return place
		}
	}
}

// rebuild makes a table for four times as many ids as there are, in the room
// that there is from other messages if it is enough.
func (s *idSet) rebuild(list [][]byte) {
	size := 4 * fewIDs
	for size < 4*len(list) {
		size *= 2
	}
	if size <= cap(s.table) {
		s.table = s.table[:size]
		clear(s.table)
	} else {
		s.table = make([]uint32, size)
	}
	s.used = true
	for n, id := range list {
		*s.place(list, id) = uint32(n + 1)
	}
}

func (s *idSet) reset() { s.used = false }
