package archtest

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// TestTheTableOfBoundsNamesTestsThatThereAre keeps DESIGN.md from claiming that a
// bound is measured by a test that has gone or is called something else.
func TestTheTableOfBoundsNamesTestsThatThereAre(t *testing.T) {
	design, err := os.ReadFile(filepath.Join(root, "DESIGN.md"))
	if err != nil {
		t.Fatal(err)
	}
	_, table, _ := strings.Cut(string(design), "\n## Bounds\n")
	table, _, _ = strings.Cut(table, "\n## ")
	named := regexp.MustCompile("`((?:Test|Fuzz)\\w+)`").FindAllStringSubmatch(table, -1)
	if len(named) == 0 {
		t.Fatal("the table of bounds names no test")
	}

	there := make(map[string]bool)
	declared := regexp.MustCompile(`(?m)^func ((?:Test|Fuzz)\w+)\(`)
	err = filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || !strings.HasSuffix(path, "_test.go") {
			return err
		}
		text, err := os.ReadFile(path)
		for _, m := range declared.FindAllStringSubmatch(string(text), -1) {
			there[m[1]] = true
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range named {
		if !there[m[1]] {
			t.Errorf("there is no %s", m[1])
		}
	}
}
