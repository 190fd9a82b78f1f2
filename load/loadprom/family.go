package loadprom

import (
	"slices"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"

	"github.com/plimsoll-go/plimsoll/load"
)

// family is one metric with all its series.
type family struct {
	name, help string
	labels     []string
	counter    bool
	desc       *prometheus.Desc
}

func gauge(name, help string, labels ...string) *family   { return newFamily(name, help, false, labels) }
func counter(name, help string, labels ...string) *family { return newFamily(name, help, true, labels) }

func newFamily(name, help string, counter bool, labels []string) *family {
	slices.Sort(labels)
	return &family{name, help, labels, counter, prometheus.NewDesc(name, help, labels, nil)}
}

// sample is a prometheus.Metric for a collector that makes tens of thousands of them for
// each scrape: those of one worker or rank share their labels, which must be in order of
// name, without room behind the last, and are never written to.
type sample struct {
	family *family
	labels []*dto.LabelPair
	value  float64
}

func (s *sample) Desc() *prometheus.Desc { return s.family.desc }

func (s *sample) Write(m *dto.Metric) error {
	m.Label = s.labels
	if s.family.counter {
		m.Counter = &dto.Counter{Value: &s.value}
	} else {
		m.Gauge = &dto.Gauge{Value: &s.value}
	}
	return nil
}

// number is what metrics are made of.
type number interface {
	~int | ~int64 | ~uint64 | ~float64
}

// sink is where one scrape goes.
type sink chan<- prometheus.Metric

func put[N number](to sink, f *family, value N, labels ...*dto.LabelPair) {
	to <- &sample{f, labels, float64(value)}
}

// putMaybe puts nothing where the value is not known: absent is not 0.
func putMaybe[N int | int64 | float64](to sink, f *family, m load.Maybe[N], labels ...*dto.LabelPair) {
	if v, ok := m.Get(); ok {
		put(to, f, v, labels...)
	}
}

func putBool(to sink, f *family, is bool, labels ...*dto.LabelPair) {
	v := 0
	if is {
		v = 1
	}
	put(to, f, v, labels...)
}

func pair(name, value string) *dto.LabelPair { return &dto.LabelPair{Name: &name, Value: &value} }
