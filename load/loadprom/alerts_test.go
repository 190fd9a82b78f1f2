package loadprom

import (
	"errors"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/plimsoll-go/plimsoll/load"
)

// promtool returns the path of Prometheus's own checker.
func promtool(t *testing.T) string {
	t.Helper()
	if path, err := exec.LookPath("promtool"); err == nil {
		return path
	}
	const script = "../../.ci/promtool.sh"
	if _, err := os.Stat(script); err != nil {
		t.Skip("no promtool in PATH, and not in the repository")
	}
	out, err := exec.CommandContext(t.Context(), script).Output()
	if exit, ok := errors.AsType[*exec.ExitError](err); ok && exit.ExitCode() == 2 {
		t.Skipf("%s", exit.Stderr)
	}
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(string(out))
}

func TestPromtoolTakesTheAlerts(t *testing.T) {
	tool := promtool(t)
	for _, args := range [][]string{
		{"check", "rules", "../alerts.yml"},
		{"test", "rules", "alerts_test.yml"},
	} {
		cmd := exec.CommandContext(t.Context(), tool, args...)
		cmd.Dir = "testdata"
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Errorf("promtool %s: %v\n%s", strings.Join(args, " "), err, out)
		}
	}
}

func TestEveryAlertHasATest(t *testing.T) {
	tests := read(t, "testdata/alerts_test.yml")
	alerts := regexp.MustCompile(`(?m)^ +- alert: (\w+)$`).FindAllStringSubmatch(read(t, "alerts.yml"), -1)
	if len(alerts) == 0 {
		t.Fatal("there are no alerts")
	}
	for _, alert := range alerts {
		if !regexp.MustCompile(`alertname: ` + alert[1] + `\n +exp_alerts:`).MatchString(tests) {
			t.Errorf("no test has %s fire", alert[1])
		}
	}
}

func TestAlertsAskForWhatThereIs(t *testing.T) {
	checkQueries(t, read(t, "alerts.yml"))
	checkQueries(t, read(t, "testdata/alerts_test.yml"))
}

func read(t *testing.T, path string) string {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

var (
	metricName = regexp.MustCompile(`plimsoll_\w+`)
	matcher    = regexp.MustCompile(`[{,] *(\w+) *(?:=|!=|=~|!~)\\?"([^"\\]*)`)
	grouping   = regexp.MustCompile(`\b(?:by|without|on|ignoring|group_left|group_right) *\(([^)]*)\)`)
)

// checkQueries looks for metrics, labels and reasons in a text, and at whether there are any
// such.
func checkQueries(t *testing.T, text string) {
	t.Helper()
	metrics := known()
	labels := []string{"job", "instance", "le", "severity"}
	for _, of := range metrics {
		labels = append(labels, of...)
	}
	isLabel := func(name string) {
		t.Helper()
		if !slices.Contains(labels, name) {
			t.Errorf("no metric has a label %q", name)
		}
	}
	found := metricName.FindAllString(text, -1)
	if len(found) == 0 {
		t.Error("no metrics are asked for")
	}
	for _, name := range found {
		for _, histogram := range []string{firstTokenName, pickDurationName} {
			if rest, ok := strings.CutPrefix(name, histogram); ok && slices.Contains([]string{"_bucket", "_sum", "_count"}, rest) {
				name = histogram
			}
		}
		if _, ok := metrics[name]; !ok {
			t.Errorf("there is no metric %s", name)
		}
	}
	for _, m := range matcher.FindAllStringSubmatch(text, -1) {
		isLabel(m[1])
	}
	for _, g := range grouping.FindAllStringSubmatch(text, -1) {
		for name := range strings.SplitSeq(g[1], ",") {
			if name = strings.TrimSpace(name); name != "" {
				isLabel(name)
			}
		}
	}
	for _, m := range regexp.MustCompile(`untrusted\w*\{[^}]*\breason!?=\\?"(\w+)`).FindAllStringSubmatch(text, -1) {
		var why load.Why
		if why.UnmarshalText([]byte(m[1])) != nil || why == load.Trusted {
			t.Errorf("no worker is untrusted for the reason %q", m[1])
		}
	}
}
