package main

import (
	"encoding/json"
	"io"
	"reflect"
	"slices"
	"strings"
	"testing"
)

func TestRanksAndSpeedsAreDealtToTheEnginesInTurn(t *testing.T) {
	for _, c := range []struct {
		ranks []int
		want  []int // 0 is fleetsim's default, 1
		total int
		words string
	}{
		{nil, []int{0, 0, 0, 0, 0}, 5, ""},
		{[]int{1}, []int{1, 1, 1, 1, 1}, 5, ""},
		{[]int{4}, []int{4, 4, 4, 4, 4}, 20, "; 4 ranks each"},
		{[]int{1, 4}, []int{1, 4, 1, 4, 1}, 11, "; 1 and 4 ranks in turn"},
	} {
		at := base(longTail)
		at.Engines, at.Requests, at.Ranks, at.Speeds = 5, 10, c.ranks, []float64{1, 0.5, 2}
		var ranks []int
		var speeds []float64
		for _, e := range at.fleet() {
			ranks, speeds = append(ranks, e.Ranks), append(speeds, e.Speed)
		}
		if !slices.Equal(ranks, c.want) || !slices.Equal(speeds, []float64{1, 0.5, 2, 1, 0.5}) {
			t.Errorf("%v: ranks are %v, and speeds %v", c.ranks, ranks, speeds)
		}
		if at.ranks() != c.total {
			t.Errorf("%v: %d ranks in all, want %d", c.ranks, at.ranks(), c.total)
		}
		if words := at.about(); strings.Contains(words, "rank") != (c.words != "") || !strings.Contains(words, c.words) {
			t.Errorf("%v: %q, want %q in it", c.ranks, words, c.words)
		}
		traces, err := readTraces("")
		if err != nil {
			t.Fatal(err)
		}
		tr, err := traces.of(&at, 1)
		if err != nil {
			t.Fatal(err)
		}
		if len(tr.Requests) != 10*c.total {
			t.Errorf("%v: %d requests, want 10 per rank", c.ranks, len(tr.Requests))
		}
	}
}

func TestACellFromFlagsIsTheSameInJSON(t *testing.T) {
	t.Setenv(tracesEnv, "")
	o, err := parse([]string{"-engines", "2", "-unstreamed", "0.25", "-ranks", "1,2"}, io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	traces, err := readTraces("")
	if err != nil {
		t.Fatal(err)
	}
	cells, _, err := o.cells(traces)
	if err != nil || len(cells) != 1 {
		t.Fatalf("%d cells, %v", len(cells), err)
	}
	c := cells[0]
	if c.Unstreamed != 0.25 || !slices.Equal(c.Ranks, []int{1, 2}) {
		t.Errorf("%+v", c)
	}
	if words := c.about(); !strings.HasSuffix(words, "; 1 and 2 ranks in turn; 25 % of the answers not streamed") {
		t.Errorf("%q", words)
	}
	b, err := json.Marshal(c)
	if err != nil {
		t.Fatal(err)
	}
	for _, field := range []string{`"unstreamed_answers":0.25`, `"ranks":[1,2]`} {
		if !strings.Contains(string(b), field) {
			t.Errorf("no %s in %s", field, b)
		}
	}
	var again cell
	if err := json.Unmarshal(b, &again); err != nil || !reflect.DeepEqual(again, c) {
		t.Errorf("%v, %+v, want %+v", err, again, c)
	}
	if b, _ := json.Marshal(base(longTail)); strings.Contains(string(b), "unstreamed") || strings.Contains(string(b), "ranks") {
		t.Errorf("what is as usual is in %s", b)
	}
}
