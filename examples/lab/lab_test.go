package main

import (
	"bytes"
	"io"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// lab runs the command, and returns what it printed.
func runLab(t *testing.T, args ...string) string {
	t.Helper()
	t.Setenv(tracesEnv, "")
	o, err := parse(args, io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	if err := run(t.Context(), o, &out, io.Discard); err != nil {
		t.Fatal(err)
	}
	return out.String()
}

var closingLine = regexp.MustCompile(`^lab (geomean \w+ \d+\.\d{3}|worst \w+ \d+\.\d{3} \S+)$`)

func TestItEndsWithTwoLinesForEachPolicy(t *testing.T) {
	out := runLab(t, "-engines", "2", "-gateways", "1,2", "-requests", "30", "-seeds", "2", "-policies", "random,least_request")
	lines := strings.Split(strings.TrimSpace(out), "\n")
	lines = lines[len(lines)-8:]
	for i, line := range lines {
		name := []string{"oracle_instant", "oracle_work_left", "random", "least_request"}[i/2]
		if !closingLine.MatchString(line) || !strings.Contains(line, " "+name+" ") {
			t.Errorf("line %d from the end is %q, want one of %s", len(lines)-i, line, name)
		}
	}
}

func TestResultsAreTakenFromAnEarlierRun(t *testing.T) {
	file := filepath.Join(t.TempDir(), "lab.json")
	cell := []string{"-engines", "2", "-gateways", "2", "-requests", "30", "-seeds", "2"}
	runLab(t, append(cell, "-policies", "random,least_request", "-json", file)...)
	first, err := readDocument(file)
	if err != nil {
		t.Fatal(err)
	}
	// A number that no run gives shows that it did not run.
	first.Cells[0].find("random").Seeds[0].TTFT.P99 = 1234
	first.Cells[0].find("least_request").Seeds[0].TTFT.P99 = 1234
	if err := first.write(file); err != nil {
		t.Fatal(err)
	}

	runLab(t, append(cell, "-policies", "least_request", "-with", file, "-json", file)...)
	second, err := readDocument(file)
	if err != nil {
		t.Fatal(err)
	}
	if p := second.Cells[0].find("random").Seeds[0].TTFT.P99; p != 1234 {
		t.Errorf("random was run again: %v", p)
	}
	if p := second.Cells[0].find("least_request").Seeds[0].TTFT.P99; p == 1234 {
		t.Error("least_request was not run again")
	}
}

func TestSomePoliciesAreForSomeCellsOnly(t *testing.T) {
	for _, policy := range []struct{ name, flag string }{{"cache_aware", "-cache"}, {"dp_rank", "-ranks=2"}, {"dp_rank", "-ranks=1,2"}} {
		args := []string{"-engines", "2", "-requests", "20", "-seeds", "1"}
		if out := runLab(t, args...); strings.Contains(out, policy.name) {
			t.Errorf("%s took part without %s", policy.name, policy.flag)
		}
		if out := runLab(t, append(args, policy.flag)...); !strings.Contains(out, "lab geomean "+policy.name+" ") {
			t.Errorf("%s did not take part with %s", policy.name, policy.flag)
		}
	}
}

func TestUnstreamedAnswersMatterToWhoGoesByFirstTokensOnly(t *testing.T) {
	p99 := func(args ...string) map[string]seconds {
		file := filepath.Join(t.TempDir(), "lab.json")
		runLab(t, append(args, "-engines", "4", "-requests", "50", "-seeds", "1", "-policies", "fewest_unstarted,least_request", "-json", file)...)
		d, err := readDocument(file)
		if err != nil {
			t.Fatal(err)
		}
		times := make(map[string]seconds)
		for _, r := range d.Cells[0].Results {
			times[r.Contestant] = r.Seeds[0].TTFT.P99
		}
		return times
	}
	streamed, whole := p99(), p99("-unstreamed", "1")
	for name, before := range streamed {
		if changed := whole[name] != before; changed != (name == "fewest_unstarted") {
			t.Errorf("%s: %v, and %v where no answer is streamed", name, before, whole[name])
		}
	}
}
