package archtest

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/plimsoll-go/plimsoll/discovery"
	"github.com/plimsoll-go/plimsoll/load"
	"github.com/plimsoll-go/plimsoll/selector"
)

// Whoever reads a reason in a status or a metric looks for it in the page that says what
// to do about it.
func TestTroubleshootingKnowsEveryReason(t *testing.T) {
	page, err := os.ReadFile(filepath.Join(root, "docs", "troubleshooting.md"))
	if err != nil {
		t.Fatal(err)
	}
	told := make(map[string]bool)
	for _, quoted := range regexp.MustCompile("`[^`\n]+`").FindAllString(string(page), -1) {
		told[strings.Trim(quoted, "`")] = true
	}
	for of, names := range map[string][]string{
		"load.Why":          names[load.Why](t, "trusted"),
		"selector.Reason":   names[selector.Reason](t),
		"selector.Basis":    names[selector.Basis](t),
		"discovery.Outcome": names[discovery.Outcome](t),
		"discovery.Place":   names[discovery.Place](t),
		"a failed poll":     prefixed("poll_", names[discovery.ErrorKind](t)),
		"a dropped message": dropReasons(t),
	} {
		for _, name := range names {
			if !told[name] {
				t.Errorf("docs/troubleshooting.md says nothing of %q, of %s", name, of)
			}
		}
	}
}

// names returns all that the values of a type are called, but for some.
func names[T interface {
	~uint8
	fmt.Stringer
}](t *testing.T, but ...string) (all []string) {
	t.Helper()
	for v := range 255 {
		if name := T(v).String(); !slices.Contains(all, name) && !slices.Contains(but, name) {
			all = append(all, name)
		}
	}
	if len(all) < 3 {
		t.Errorf("only %v", all)
	}
	return all
}

func prefixed(prefix string, names []string) (all []string) {
	for _, name := range names {
		all = append(all, prefix+name)
	}
	return all
}

// dropReasons returns the labels under which messages are dropped, as the code of the
// packages has them: of causes, and of calls with a label of their own.
func dropReasons(t *testing.T) []string {
	t.Helper()
	found := make(map[string]bool)
	for _, folder := range []string{"internal/msgpack", "snapshot", "tokenspeed", "load", "discovery"} {
		err := filepath.WalkDir(filepath.Join(root, folder), func(path string, d fs.DirEntry, err error) error {
			switch {
			case err != nil:
				return err
			case d.IsDir() && path != filepath.Join(root, folder) && exists(filepath.Join(path, "go.mod")):
				return filepath.SkipDir
			case d.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go"):
				return nil
			}
			file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
			if err != nil {
				return err
			}
			ast.Inspect(file, func(n ast.Node) bool {
				for _, e := range labelsIn(n) {
					if text, ok := e.(*ast.BasicLit); ok && text.Kind == token.STRING {
						if label, err := strconv.Unquote(text.Value); err == nil && label != "" && !strings.HasSuffix(label, "_") {
							found[label] = true
						}
					}
				}
				return true
			})
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	for _, known := range []string{"truncated", "not_load", "undialable", "poll_ranks", "duplicate_rank", "gone", "stopped", "other"} {
		if !found[known] {
			t.Errorf("of the reasons of drops, %q is not found any more", known)
		}
	}
	var all []string
	for label := range found {
		all = append(all, label)
	}
	slices.Sort(all)
	return all
}

// labelsIn returns the expressions of a node that may be labels of drops.
func labelsIn(n ast.Node) []ast.Expr {
	switch n := n.(type) {
	case *ast.CallExpr:
		switch nameOf(n.Fun) {
		case "NewCause", "drop", "badNumber":
			return n.Args[:min(len(n.Args), 1)]
		case "Drop":
			return n.Args[1:2]
		}
	case *ast.AssignStmt: // e.reason, e.err = "type", ...
		if len(n.Lhs) == len(n.Rhs) && nameOf(n.Lhs[0]) == "reason" {
			return n.Rhs[:1]
		}
	case *ast.ValueSpec: // const reasonStopped = "stopped"
		if len(n.Names) == 1 && strings.HasPrefix(n.Names[0].Name, "reason") {
			return n.Values
		}
	case *ast.FuncDecl:
		if name := n.Name.Name; name == "Reason" || name == "dropReason" || name == "numberReason" {
			return literalsIn(n.Body)
		}
	}
	return nil
}

// literalsIn returns all strings in the body of a function.
func literalsIn(body ast.Node) (all []ast.Expr) {
	ast.Inspect(body, func(n ast.Node) bool {
		if text, ok := n.(*ast.BasicLit); ok {
			all = append(all, text)
		}
		return true
	})
	return all
}

func nameOf(e ast.Expr) string {
	switch e := e.(type) {
	case *ast.Ident:
		return e.Name
	case *ast.SelectorExpr:
		return e.Sel.Name
	}
	return ""
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

// Links between the pages, and to files of the repository.
func TestLinksInTheDocsLeadSomewhere(t *testing.T) {
	pages, err := filepath.Glob(filepath.Join(root, "docs", "*.md"))
	if err != nil || len(pages) == 0 {
		t.Fatalf("no pages: %v", err)
	}
	pages = append(pages, filepath.Join(root, "examples", "kube", "README.md"), filepath.Join(root, "load", "loadprom", "README.md"))
	link := regexp.MustCompile(`\]\(([^)\s]+)\)`)
	for _, page := range pages {
		text, err := os.ReadFile(page)
		if err != nil {
			t.Error(err)
			continue
		}
		anchors := anchorsOf(string(text))
		for _, m := range link.FindAllStringSubmatch(string(text), -1) {
			target, anchor, _ := strings.Cut(m[1], "#")
			switch {
			case strings.Contains(target, "://"):
			case target == "" && !anchors[anchor]:
				t.Errorf("%s: there is no heading for #%s", page, anchor)
			case target != "" && !exists(filepath.Join(filepath.Dir(page), target)):
				t.Errorf("%s: there is no %s", page, target)
			}
		}
	}
}

// anchorsOf returns what the headings of a page are linked by.
func anchorsOf(page string) map[string]bool {
	anchors := make(map[string]bool)
	for _, m := range regexp.MustCompile(`(?m)^#+ (.+)$`).FindAllStringSubmatch(page, -1) {
		anchor := strings.Map(func(r rune) rune {
			switch {
			case r == ' ':
				return '-'
			case r == '-' || r == '_' || 'a' <= r && r <= 'z' || '0' <= r && r <= '9':
				return r
			}
			return -1
		}, strings.ToLower(m[1]))
		anchors[anchor] = true
	}
	return anchors
}
