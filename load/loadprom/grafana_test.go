package loadprom

import (
	"encoding/json"
	"testing"
)

// panel is what these tests want of a dashboard.
type panel struct {
	ID      int     `json:"id"`
	Type    string  `json:"type"`
	Title   string  `json:"title"`
	Panels  []panel `json:"panels"`
	GridPos struct{ X, Y, W, H int }
	Targets []struct {
		RefID string `json:"refId"`
		Expr  string `json:"expr"`
	} `json:"targets"`
}

func TestTheDashboardAsksForWhatThereIs(t *testing.T) {
	text := read(t, "grafana/plimsoll.json")
	var dashboard struct {
		Panels []panel `json:"panels"`
	}
	if err := json.Unmarshal([]byte(text), &dashboard); err != nil {
		t.Fatal(err)
	}
	checkQueries(t, text)

	var panels []panel
	for _, p := range dashboard.Panels {
		panels = append(panels, p)
		panels = append(panels, p.Panels...)
	}
	ids := make(map[int]bool)
	for i, p := range panels {
		if ids[p.ID] {
			t.Errorf("panel %q has the id of another", p.Title)
		}
		ids[p.ID] = true
		if (len(p.Targets) == 0) != (p.Type == "row") {
			t.Errorf("panel %q, a %s, has %d queries", p.Title, p.Type, len(p.Targets))
		}
		refs := make(map[string]bool)
		for _, query := range p.Targets {
			checkQueries(t, query.Expr)
			if refs[query.RefID] {
				t.Errorf("panel %q has two queries %s", p.Title, query.RefID)
			}
			refs[query.RefID] = true
		}
		for _, other := range panels[:i] {
			a, b := p.GridPos, other.GridPos
			if a.X < b.X+b.W && b.X < a.X+a.W && a.Y < b.Y+b.H && b.Y < a.Y+a.H {
				t.Errorf("panels %q and %q overlap", p.Title, other.Title)
			}
		}
	}
}
