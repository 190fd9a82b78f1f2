package main

import (
	"math"

	"gonum.org/v1/gonum/stat"
	"gonum.org/v1/gonum/stat/distuv"
)

// interval is a mean over seeds, and where it lies with 95 % confidence if seeds
// are normally distributed. One seed has no interval: both ends are the mean.
type interval struct {
	Mean float64 `json:"mean"`
	Low  float64 `json:"low"`
	High float64 `json:"high"`
}

func newInterval(values []float64) interval {
	mean, dev := stat.MeanStdDev(values, nil)
	n := float64(len(values))
	if n < 2 {
		return interval{mean, mean, mean}
	}
	half := distuv.StudentsT{Sigma: 1, Nu: n - 1}.Quantile(0.975) * stat.StdErr(dev, n)
	return interval{mean, mean - half, mean + half}
}

// half is what is written after ±.
func (i interval) half() float64 { return (i.High - i.Low) / 2 }

// score fills in the ratios of a cell to the better oracle: of each seed to the
// oracle of that seed, since they had the same arrivals.
func (c *cellResult) score(contestants []contestant) {
	for _, r := range c.Results {
		ratios := make([]float64, len(r.Seeds))
		for i := range r.Seeds {
			m := &r.Seeds[i]
			best := math.Inf(1)
			for _, o := range contestants {
				if o.Kind == oracle {
					best = min(best, float64(c.find(o.Name).Seeds[i].TTFT.P99))
				}
			}
			m.Ratio = float64(m.TTFT.P99) / best
			ratios[i] = m.Ratio
		}
		r.Ratio = newInterval(ratios)
	}
}

// closing is what the lab comes down to: a policy's ratios to the better oracle
// over all cells of a group.
type closing struct {
	Group      string   `json:"group"`
	Contestant string   `json:"contestant"`
	Geomean    interval `json:"geomean"` // the interval is that of the seeds' geometric means
	Worst      float64  `json:"worst"`
	WorstCell  string   `json:"worst_cell"`
}

// conclude fills in what follows from the cells.
func (d *document) conclude() {
	d.Closing, d.Behind = nil, nil
	for _, group := range d.groups() {
		for _, k := range d.Contestants {
			if c, ok := d.closing(group, k.Name); ok {
				d.Closing = append(d.Closing, c)
			}
		}
	}
	for _, k := range d.Contestants {
		if k.Kind != oracle {
			d.Behind = append(d.Behind, d.behind(k.Name)...)
		}
	}
}

// groups returns the groups that have cells, in their order.
func (d *document) groups() (groups []string) {
	for _, c := range d.Cells {
		if len(groups) == 0 || groups[len(groups)-1] != c.Group {
			groups = append(groups, c.Group)
		}
	}
	return groups
}

// closing is not ok if the contestant has not been in all cells of the group.
func (d *document) closing(group, contestant string) (c closing, ok bool) {
	c = closing{Group: group, Contestant: contestant}
	var cells []float64
	seeds := make([][]float64, d.Seeds)
	for _, cell := range d.Cells {
		if cell.Group != group {
			continue
		}
		r := cell.find(contestant)
		if r == nil {
			return c, false
		}
		cells = append(cells, r.Ratio.Mean)
		for i, m := range r.Seeds {
			seeds[i] = append(seeds[i], m.Ratio)
		}
		if r.Ratio.Mean > c.Worst {
			c.Worst, c.WorstCell = r.Ratio.Mean, cell.Name
		}
	}
	logs := make([]float64, len(seeds))
	for i, ratios := range seeds {
		logs[i] = math.Log(stat.GeometricMean(ratios, nil))
	}
	i := newInterval(logs)
	c.Geomean = interval{stat.GeometricMean(cells, nil), math.Exp(i.Low), math.Exp(i.High)}
	return c, true
}

// A measurand is something that a policy must not be far behind with.
type measurand struct {
	Name  string
	Limit float64 // by what factor a candidate may be behind the best known rule
	of    func(*measure) seconds
}

var measurands = []measurand{
	{"p99 ttft", 1.05, func(m *measure) seconds { return m.TTFT.P99 }},
	{"p99 response", 1.15, func(m *measure) seconds { return m.Response.P99 }},
	{"p99 tpot", 1.15, func(m *measure) seconds { return m.TPOT.P99 }},
}

// behind says in which cell a policy compares worst with the best of the other
// known rules.
type behind struct {
	Contestant string   `json:"contestant"`
	Measurand  string   `json:"measurand"`
	Factor     interval `json:"factor"` // to the best known rule of the cell, mean over seeds
	Cell       string   `json:"cell"`
	Best       string   `json:"best"`
	Limit      float64  `json:"limit"`
	Over       int      `json:"over"` // cells in which it is further behind than the limit
}

// behind compares a contestant in all cells that it was in.
func (d *document) behind(contestant string) (list []behind) {
	for _, what := range measurands {
		worst := behind{Contestant: contestant, Measurand: what.Name, Limit: what.Limit}
		for _, c := range d.Cells {
			r, best := c.find(contestant), d.best(c, what, contestant)
			if r == nil || best == nil {
				continue
			}
			factors := make([]float64, len(r.Seeds))
			for i := range factors {
				factors[i] = float64(what.of(&r.Seeds[i])) / float64(what.of(&best.Seeds[i]))
			}
			f := newInterval(factors)
			if f.Mean > what.Limit {
				worst.Over++
			}
			if f.Mean > worst.Factor.Mean {
				worst.Factor, worst.Cell, worst.Best = f, c.Name, best.Contestant
			}
		}
		if worst.Cell != "" {
			list = append(list, worst)
		}
	}
	return list
}

// best returns the known rule with the least mean over the seeds. The best of each
// seed would not be a rule, but luck.
func (d *document) best(c *cellResult, what measurand, except string) (best *result) {
	var least seconds
	for _, k := range d.Contestants {
		r := c.find(k.Name)
		if k.Kind != known || k.Name == except || r == nil {
			continue
		}
		var sum seconds
		for i := range r.Seeds {
			sum += what.of(&r.Seeds[i])
		}
		if best == nil || sum < least {
			best, least = r, sum
		}
	}
	return best
}
