package gateway

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestTheTableOfContentsIsComplete(t *testing.T) {
	doc, err := os.ReadFile("doc.go")
	if err != nil {
		t.Fatal(err)
	}
	files, err := filepath.Glob("*.go")
	if err != nil {
		t.Fatal(err)
	}
	listed := 0
	for _, f := range files {
		if f == "doc.go" || strings.HasSuffix(f, "_test.go") {
			continue
		}
		listed++
		if !strings.Contains(string(doc), "\n//\t"+f+" ") {
			t.Errorf("%s is not in it", f)
		}
	}
	if n := strings.Count(string(doc), ".go "); n != listed {
		t.Errorf("it lists %d files, and there are %d", n, listed)
	}
}
