package main

import (
	"bytes"
	"fmt"
	"html/template"
	"image/color"
	"math"
	"regexp"
	"strconv"
	"strings"
	"time"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
	"gonum.org/v1/plot/vg/vgsvg"
)

// Colours are settled by the page's style sheet, which knows light from dark. In a
// plot these stand for them until inline replaces them; the red says which.
var (
	ink  = color.RGBA{1, 0, 0, 255}
	grey = color.RGBA{1, 0, 1, 255}
)

// seriesColor stands for the colour of the policy with an index on the page.
func seriesColor(i int) color.Color { return color.RGBA{2, 0, uint8(i), 255} }

const maxSeries = 256

// newPlot returns a plot whose axes have no names. The page says what they are:
// gonum sets the name of a logarithmic axis, and room for it, far to the right.
func newPlot() *plot.Plot {
	p := plot.New()
	p.BackgroundColor = nil
	for _, a := range []*plot.Axis{&p.X, &p.Y} {
		a.LineStyle.Color, a.Tick.LineStyle.Color = grey, grey
		a.Tick.Label.Color = ink
		// A font with the widths of the page's, so that labels keep to their places.
		a.Tick.Label.Font.Variant, a.Tick.Label.Font.Size = "Sans", 11
	}
	return p
}

func newGrid() *plotter.Grid {
	g := plotter.NewGrid()
	g.Vertical.Color, g.Horizontal.Color = grey, grey
	return g
}

// plotWidth is that of a phone's screen, in its own measure; the page lets plots
// grow from there.
const plotWidth vg.Length = 380

// inline draws a plot as an SVG element. What belongs to a policy gets the class
// of that policy, and is said in label to whoever cannot see it.
func inline(p *plot.Plot, height vg.Length, label string) template.HTML {
	c := vgsvg.NewWith(vgsvg.UseWH(plotWidth, height))
	p.Draw(draw.New(c))
	var b bytes.Buffer
	c.WriteTo(&b) // a bytes.Buffer takes everything
	svg := b.String()
	svg = svg[strings.Index(svg, "<svg"):]
	opening := fmt.Sprintf(`<svg viewBox="0 0 %g %g" role="img" aria-label="%s">`,
		plotWidth.Points(), height.Points(), template.HTMLEscapeString(label))
	svg = opening + svg[strings.Index(svg, ">")+1:]
	svg = fontStyle.ReplaceAllString(svg, "")
	svg = seriesPath.ReplaceAllStringFunc(svg, func(path string) string {
		return fmt.Sprintf(`%s class="p%d"`, path, seriesIndex(path))
	})
	svg = seriesStyle.ReplaceAllStringFunc(svg, func(s string) string {
		return fmt.Sprintf("var(--p%d)", seriesIndex(s))
	})
	return template.HTML(neutral.Replace(svg))
}

var (
	neutral     = strings.NewReplacer("#010000", "var(--ink)", "#010001", "var(--line)")
	fontStyle   = regexp.MustCompile(`font-family:[^"]*?font-style:normal;`)
	seriesPath  = regexp.MustCompile(`<path d="[^"]*" style="[^"]*#0200[0-9A-F]{2}[^"]*"`)
	seriesStyle = regexp.MustCompile(`#0200[0-9A-F]{2}`)
)

func seriesIndex(text string) (i int) {
	const before = "#0200"
	_, _ = fmt.Sscanf(text[strings.Index(text, before)+len(before):][:2], "%X", &i)
	return i
}

// tail is the height of a share of requests on the axis of distributions.
func tail(share float64) float64 { return -math.Log10(1 - share) }

var tailTicks = plot.ConstantTicks{
	{Value: tail(0), Label: "0 %"},
	{Value: tail(0.5), Label: "50 %"},
	{Value: tail(0.9), Label: "90 %"},
	{Value: tail(0.99), Label: "99 %"},
	{Value: tail(0.999), Label: "99.9 %"},
}

// leastTime is where the axis of times begins at the earliest.
const leastTime seconds = 0.001

// plotCurves draws the distributions of the time to first token in a cell.
func plotCurves(c *cellResult, policies []policy) template.HTML {
	p := newPlot()
	p.X.Scale, p.X.Tick.Marker = plot.LogScale{}, timeTicks{}
	p.Y.Tick.Marker = tailTicks
	p.Add(newGrid())
	for _, k := range policies {
		r := c.find(k.Name)
		if r == nil || len(r.Curve) == 0 {
			continue
		}
		points := make(plotter.XYs, len(r.Curve))
		for i, t := range r.Curve {
			points[i] = plotter.XY{X: float64(max(t, leastTime)), Y: tail(curveShares[i])}
		}
		line, err := plotter.NewLine(points)
		if err != nil {
			continue // no point, or one that is no number
		}
		line.LineStyle = k.lineStyle()
		p.Add(line)
	}
	p.Y.Min, p.Y.Max = 0, tail(0.999)
	widen(&p.X)
	return inline(p, 270, "distribution of the time to first token in "+c.Name)
}

// widen keeps an axis with a logarithmic scale from having no length.
func widen(a *plot.Axis) {
	if !(a.Min > 0 && a.Max < math.Inf(1)) {
		a.Min, a.Max = 1, 10
	}
	if a.Max < a.Min*1.5 {
		a.Min, a.Max = a.Min/1.25, a.Max*1.25
	}
}

func (p *policy) lineStyle() draw.LineStyle {
	s := draw.LineStyle{Color: seriesColor(p.Index), Width: vg.Length(p.Width())}
	for field := range strings.FieldsSeq(string(p.Dashes())) {
		if n, err := strconv.ParseFloat(field, 64); err == nil {
			s.Dashes = append(s.Dashes, vg.Length(n))
		}
	}
	return s
}

// plotRatios draws a row for each policy: a dot for each cell of a group, and the
// geometric mean with its interval.
func plotRatios(d *document, group string, policies []policy) template.HTML {
	p := newPlot()
	p.X.Scale, p.X.Tick.Marker = plot.LogScale{}, ratioTicks{}
	p.Add(newGrid())
	var names []plot.Tick
	worst := 1.0
	for i, k := range policies {
		row := float64(len(policies) - 1 - i)
		names = append(names, plot.Tick{Value: row, Label: k.Name})
		var cells plotter.XYs
		for _, c := range d.Cells {
			if r := c.find(k.Name); c.Group == group && r != nil {
				cells = append(cells, plotter.XY{X: r.Ratio.Mean, Y: row})
				worst = max(worst, r.Ratio.Mean)
			}
		}
		dots, err := plotter.NewScatter(cells)
		if err != nil {
			continue
		}
		dots.GlyphStyle = draw.GlyphStyle{Color: seriesColor(k.Index), Radius: 2, Shape: draw.RingGlyph{}}
		p.Add(dots)
		if m, ok := d.closing(group, k.Name); ok {
			mean, err := plotter.NewScatter(plotter.XYs{{X: m.Geomean.Mean, Y: row}})
			if err != nil {
				continue
			}
			mean.GlyphStyle = draw.GlyphStyle{Color: ink, Radius: 3.5, Shape: draw.CircleGlyph{}}
			bar, err := plotter.NewLine(plotter.XYs{{X: m.Geomean.Low, Y: row}, {X: m.Geomean.High, Y: row}})
			if err != nil {
				continue
			}
			bar.LineStyle = draw.LineStyle{Color: ink, Width: 1.5}
			p.Add(bar, mean)
		}
	}
	p.Y.Tick.Marker = plot.ConstantTicks(names)
	p.Y.Min, p.Y.Max = -0.7, float64(len(policies))-0.3
	p.X.Min, p.X.Max = 0.95, worst*1.05 // an interval may be wider
	widen(&p.X)
	return inline(p, 40+vg.Length(17*len(policies)), "ratios to the better oracle, by policy")
}

// ratioTicks and timeTicks put labels at 1, 2 and 5 times the powers of ten, or
// where that would be too many at the powers of ten alone.
type (
	ratioTicks struct{}
	timeTicks  struct{}
)

func (ratioTicks) Ticks(low, high float64) []plot.Tick {
	return logTicks(low, high, func(v float64) string { return fmt.Sprintf("%g", v) })
}

func (timeTicks) Ticks(low, high float64) []plot.Tick {
	return logTicks(low, high, func(v float64) string {
		d := time.Duration(math.Round(v*1e6)) * time.Microsecond
		switch {
		case d < time.Millisecond:
			return fmt.Sprintf("%g µs", float64(d)/1e3)
		case d < time.Second:
			return fmt.Sprintf("%g ms", float64(d)/1e6)
		}
		return fmt.Sprintf("%g s", d.Seconds())
	})
}

func logTicks(low, high float64, label func(float64) string) (ticks []plot.Tick) {
	if !(low > 0 && high < math.Inf(1)) {
		return nil
	}
	const fewDecades = 2.2
	all := math.Log10(high/low) < fewDecades
	for e := math.Floor(math.Log10(low)); e <= math.Ceil(math.Log10(high)); e++ {
		for _, m := range []float64{1, 2, 5} {
			t := plot.Tick{Value: m * math.Pow(10, e)}
			if t.Value < low*(1-1e-9) || t.Value > high*(1+1e-9) {
				continue
			}
			if all || m == 1 {
				t.Label = label(t.Value)
			}
			ticks = append(ticks, t)
		}
	}
	return ticks
}
