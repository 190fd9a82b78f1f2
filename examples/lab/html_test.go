package main

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// report returns the page about a few small runs.
func report(t *testing.T) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "lab.html")
	runLab(t, "-engines", "3", "-gateways", "1,2", "-requests", "30", "-seeds", "2", "-policies", "random,least_request", "-html", file)
	b, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

func TestTheReportNeedsNothingElse(t *testing.T) {
	page := report(t)
	for _, pattern := range []string{`https?:`, `\b(src|href)="(//|[^#d"])`, `url\(`, `@import`, `<link`, `<iframe`, `\bfetch\(`} {
		if at := regexp.MustCompile(pattern).FindStringIndex(page); at != nil {
			t.Errorf("%s matches %q", pattern, page[at[0]:min(at[1]+60, len(page))])
		}
	}
}

func TestTheReportShowsEveryPolicyInEveryCell(t *testing.T) {
	page := report(t)
	for what, want := range map[string]int{
		`<details class="cell"`:        2,
		`src="data:image/png;base64,`:  2 * 4, // heat maps
		`<td class="ratio`:             2 * 4,
		`aria-label="distribution of `: 2,
		`id="show`:                     4,
	} {
		if have := strings.Count(page, what); have != want {
			t.Errorf("%d of %s, want %d", have, what, want)
		}
	}
	for i := range 4 {
		curves := regexp.MustCompile(`<path d="[^"]*" style="[^"]*var\(--p` + string(rune('0'+i)) + `\)[^"]*" class="p` + string(rune('0'+i)) + `"`)
		if !curves.MatchString(page) {
			t.Errorf("no curve of policy %d that can be switched off", i)
		}
	}
	if strings.Contains(page, "#0200") || strings.Contains(page, "#0100") || strings.Contains(page, "ZgotmplZ") {
		t.Error("a stand-in for a colour is left, or something that the template would not print")
	}
}
