package check

import (
	"strings"
	"testing"
	"time"
)

func TestCheckThatIsNotLookedAtOftenEnoughIsNotPassed(t *testing.T) {
	l := NewList(time.Now())
	c := l.Add("the sea is wet", 3)
	c.Held(2)
	if l.Results()[0].Passed() {
		t.Error("passed with 2 looks of 3")
	}
	c.That(true, "dry")
	if r := l.Results()[0]; !r.Passed() || r.Looked != 3 {
		t.Errorf("not passed: %+v", r)
	}
	c.That(false, "dry at %s", "ebb")
	r := l.Results()[0]
	if r.Passed() || r.Looked != 4 || r.Broken != 1 || len(r.First) != 1 || !strings.HasSuffix(r.First[0], "s  dry at ebb") {
		t.Errorf("%+v", r)
	}
	for range 2 * kept {
		c.Broken("again")
	}
	if r := l.Results()[0]; r.Broken != 1+2*kept || len(r.First) != kept {
		t.Errorf("%+v", r)
	}
}
