//go:build chaos && linux

package chaos

import (
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

func TestEveryLessonOfTheListHasItsTests(t *testing.T) {
	doc, err := os.ReadFile("doc.go")
	if err != nil {
		t.Fatal(err)
	}
	entry := regexp.MustCompile(`^//\t *(\d+)  \S`)
	test := regexp.MustCompile(`^//\t {6}([a-z/]+)\.(Test\w+)$`)
	last, tests := 0, 0
	for _, line := range strings.Split(string(doc), "\n") {
		if m := entry.FindStringSubmatch(line); m != nil {
			if n, _ := strconv.Atoi(m[1]); n != last+1 || last > 0 && tests == 0 {
				t.Errorf("lesson %s comes after lesson %d, which has %d tests", m[1], last, tests)
			}
			last, tests = last+1, 0
		}
		if m := test.FindStringSubmatch(line); m != nil {
			tests++
			if !declared(t, filepath.Join("..", m[1]), m[2]) {
				t.Errorf("lesson %d: there is no %s in %s", last, m[2], m[1])
			}
		}
	}
	if last != 34 || tests == 0 {
		t.Errorf("the list has %d lessons, the last one with %d tests", last, tests)
	}
}

// declared reports whether a folder has a test.
func declared(t *testing.T, folder, name string) bool {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(folder, "*_test.go"))
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		source, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		if strings.Contains(string(source), "\nfunc "+name+"(t *testing.T) {") {
			return true
		}
	}
	return false
}
