package main

import (
	"cmp"
	_ "embed"
	"fmt"
	"html/template"
	"math"
	"os"
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

// About is what the page says of a cell.
func (c *cell) About() string { return c.about() }

// PlusMinus is what the page says after the mean.
func (i interval) PlusMinus() string {
	if i.half() == 0 {
		return "" // one seed, or an oracle that is always the better one
	}
	return fmt.Sprintf("± %.3f", i.half())
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
