package main

import (
	"cmp"
	_ "embed"
	"fmt"
	"html/template"
	"math"
	"os"
	"slices"
)

//go:embed page.html
var pageText string

var pageTemplate = template.Must(template.New("page").Parse(pageText))

// page is what the template shows.
type page struct {
	Seeds      int
	Missing    []string
	Policies   []policy
	Groups     []groupRows
	Measurands []measurand
	Ratios     template.HTML
	Cells      []cellView
}

// The page's names for what has shorter ones in Go.
func (c *cell) About() string    { return c.about() }
func (i interval) Half() float64 { return i.half() }

// policy is a contestant on the page, in the order of the first group's geometric
// means. Its index names its colour and its switch.
type policy struct {
	contestant
	Index int
	Hue   int // among hues; the oracles and candidates have their own
	Round int // times that the hues were used up before
	Shown bool
	Means []closing // of each group; without a name where it was not in all cells
	Lags  []behind
}

// groupRows are the cells of a group as rows of the table of ratios.
type groupRows struct {
	Name string
	Rows []ratioRow
}

type ratioRow struct {
	*cellResult
	ID     string
	Ratios []ratioBox
}

type ratioBox struct {
	Index int
	interval
	Known bool
	Shade int // percent
	Best  bool
}

// cellView is a cell with all that there is to see of it.
type cellView struct {
	*cellResult
	ID     string
	Curves template.HTML
	Rows   []cellRow
	Heats  []heatView
}

// cellRow is a row of a cell's table, ready to print.
type cellRow struct {
	policy
	Numbers []string
}

type heatView struct {
	Index  int
	Name   string
	Image  template.URL
	Height int // pixels
	Span   seconds
}

// Columns returns the heads of a cell's table.
func (cellView) Columns() []string { return cellColumns }

// writeHTML writes the report: one file that needs no other.
func (d *document) writeHTML(file string) (err error) {
	f, err := os.Create(file)
	if err != nil {
		return err
	}
	defer func() { err = cmp.Or(err, f.Close()) }()
	return pageTemplate.Execute(f, newPage(d))
}

func newPage(d *document) *page {
	p := &page{Seeds: d.Seeds, Missing: d.Missing, Policies: policiesOf(d), Measurands: measurands}
	p.Ratios = plotRatios(d, d.groups()[0], p.Policies)
	for _, group := range d.groups() {
		g := groupRows{Name: group}
		for i, c := range d.Cells {
			if c.Group == group {
				g.Rows = append(g.Rows, ratioRow{c, cellID(i), ratioBoxes(c, p.Policies)})
			}
		}
		p.Groups = append(p.Groups, g)
	}
	for i, c := range d.Cells {
		p.Cells = append(p.Cells, newCellView(cellID(i), c, p.Policies))
	}
	return p
}

func cellID(i int) string { return fmt.Sprint("cell", i) }

// The page has so many hues, and shows so many known rules until it is told
// otherwise.
const (
	hues       = 8
	knownShown = 4
)

// policiesOf returns the contestants with the best first.
func policiesOf(d *document) (policies []policy) {
	for _, k := range d.Contestants {
		p := policy{contestant: k}
		for _, group := range d.groups() {
			c, ok := d.closing(group, k.Name)
			if !ok {
				c = closing{}
			}
			p.Means = append(p.Means, c)
		}
		for _, b := range d.Behind {
			if b.Contestant == k.Name {
				p.Lags = append(p.Lags, b)
			}
		}
		policies = append(policies, p)
	}
	slices.SortStableFunc(policies, func(a, b policy) int {
		return cmp.Compare(sortKey(&a), sortKey(&b))
	})
	rules := 0
	for i := range policies {
		p := &policies[i]
		p.Index = i
		if p.Shown = true; p.Kind == known {
			p.Hue, p.Round, p.Shown = rules%hues, rules/hues, rules < knownShown
			rules++
		}
	}
	return policies[:min(len(policies), maxSeries)]
}

// Color is the name of the policy's colour in the style sheet.
func (p *policy) Color() template.CSS {
	switch p.Kind {
	case oracle:
		return "--soft"
	case candidate:
		return "--candidate"
	}
	return template.CSS(fmt.Sprint("--h", p.Hue))
}

func sortKey(p *policy) float64 {
	if p.Means[0].Contestant == "" {
		return math.Inf(1)
	}
	return p.Means[0].Geomean.Mean
}

func ratioBoxes(c *cellResult, policies []policy) (boxes []ratioBox) {
	best := math.Inf(1)
	for _, p := range policies {
		if r := c.find(p.Name); r != nil && p.Kind != oracle {
			best = min(best, r.Ratio.Mean)
		}
	}
	for _, p := range policies {
		b := ratioBox{Index: p.Index}
		if r := c.find(p.Name); r != nil {
			b.interval, b.Known = r.Ratio, true
			b.Shade = shade(r.Ratio.Mean)
			b.Best = r.Ratio.Mean == best && p.Kind != oracle
		}
		boxes = append(boxes, b)
	}
	return boxes
}

// shade is how strong the colour of a ratio is: 0 at 1, and full from worstShade on.
func shade(ratio float64) int {
	const worstShade, full = 10, 75 // text must stay legible
	return int(full * min(max(math.Log(ratio)/math.Log(worstShade), 0), 1))
}

func newCellView(id string, c *cellResult, policies []policy) cellView {
	v := cellView{cellResult: c, ID: id, Curves: plotCurves(c, policies)}
	full := 3 * c.usualLoad()
	for _, p := range policies {
		r := c.find(p.Name)
		if r == nil {
			continue
		}
		v.Rows = append(v.Rows, cellRow{p, r.numbers()})
		if r.Heat != nil {
			v.Heats = append(v.Heats, heatView{p.Index, p.Name, r.Heat.png(full), min(max(3*r.Heat.Engines, 64), 192), r.Heat.Span})
		}
	}
	return v
}

// usualLoad is the mean load of an engine under the first contestant, an oracle.
func (c *cellResult) usualLoad() float64 {
	for _, r := range c.Results {
		if r.Heat != nil {
			return max(r.Heat.mean(), 0.1)
		}
	}
	return 1
}
