package loadprom

import (
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/plimsoll-go/plimsoll/discovery"
	"github.com/plimsoll-go/plimsoll/selector"
)

// Every field of Learned gets a number of its own, and each of these has to turn up: a
// field that is added to it is not to be forgotten here.
func TestAllThatIsLearnedIsTold(t *testing.T) {
	var l selector.Learned
	want := make(map[float64]string)
	v := reflect.ValueOf(&l).Elem()
	for i := range v.NumField() {
		n := i + 3
		name := v.Type().Field(i).Name
		switch f := v.Field(i).Addr().Interface().(type) {
		case *time.Duration:
			*f = time.Duration(n) * time.Second
		case *float64:
			*f = float64(n)
		case *[]selector.WorkerSpeed:
			continue // TestSpeeds
		default:
			t.Fatalf("Learned.%s is of a type that is new here", name)
		}
		want[float64(n)] = name
	}
	table, _ := newTestTable()
	got := scrape(t, New(table, learned(l))).of("plimsoll_learned_")
	for series, n := range got {
		if name, ok := want[n]; !ok {
			t.Errorf("%s %v is nothing that was learned", series, n)
		} else if inSeconds := v.FieldByName(name).Type() == reflect.TypeFor[time.Duration](); inSeconds != strings.HasSuffix(series, "_seconds") {
			t.Errorf("%s is Learned.%s", series, name)
		}
		delete(want, n)
	}
	if len(want) > 0 {
		t.Errorf("not told: %v", want)
	}
}

func TestSpeeds(t *testing.T) {
	table, _ := newTestTable()
	for _, id := range []string{"a", "b", "c"} {
		table.Add(id, "")
	}
	got := scrape(t, New(table, learned(selector.Learned{Speeds: []selector.WorkerSpeed{
		{Worker: "a", Speed: .5, Requests: 40}, {Worker: "b", Speed: 1}, {Worker: "gone", Speed: 2, Requests: 40},
	}})))
	got.of("speed").check(t, `
		plimsoll_worker_speed_ratio{worker="a"} 0.5
		plimsoll_worker_speed_requests{worker="a"} 40
		plimsoll_worker_speed_requests{worker="b"} 0
	`)
}

func TestAPolicyThatLearnsNothing(t *testing.T) {
	table, _ := newTestTable()
	for _, p := range []selector.Policy{selector.Random(), nil} {
		scrape(t, New(table, Config{Policy: func() selector.Policy { return p }})).of("learned").checkNone(t)
	}
}

func TestTheSubscriber(t *testing.T) {
	table, _ := newTestTable()
	counts := Counts{Messages: 10, Delivered: 5, Superseded: 2, Dropped: map[string]uint64{"truncated": 2, "stopped": 1}, Reconnects: 4}
	c := New(table, Config{Subscriber: func() Counts { return counts }})
	scrape(t, c).of("subscriber").check(t, `
		plimsoll_subscriber_messages_total 10
		plimsoll_subscriber_delivered_messages_total 5
		plimsoll_subscriber_superseded_messages_total 2
		plimsoll_subscriber_dropped_messages_total{reason="truncated"} 2
		plimsoll_subscriber_dropped_messages_total{reason="stopped"} 1
		plimsoll_subscriber_reconnects_total 4
	`)
	scrape(t, New(table, Config{})).of("subscriber").checkNone(t)
}

func TestDiscovery(t *testing.T) {
	table, _ := newTestTable()
	table.Add("a", "")
	c := New(table, Config{Fleet: func() discovery.Status {
		return discovery.Status{
			Sources: []discovery.SourceStatus{
				{Source: "static", Workers: 1}, // two of one name are one series
				{Source: "static", Workers: 2, Problem: "broken"},
				{Source: "file /etc/engines\xff", Workers: 3, Refused: make([]discovery.Refusal, 2)},
			},
			Refused: make([]discovery.Refusal, 1),
			Workers: []discovery.WorkerStatus{{ID: "a", Failures: 7}, {ID: "coming", Failures: 1}},
		}
	}})
	got := scrape(t, c)
	got.of("source", "static").check(t, `
		plimsoll_source_workers{source="static"} 3
		plimsoll_source_problem{source="static"} 1
	`)
	if n := len(got.of("source=")); n != 4 {
		t.Errorf("%d series of sources", n)
	}
	got.of("refused").check(t, `plimsoll_refused_workers 3`)
	got.of("ask_failures").check(t, `plimsoll_worker_ask_failures{worker="a"} 7`)
	scrape(t, New(table, Config{})).of("source").checkNone(t)
}
