package archtest

import (
	"bytes"
	"errors"
	"flag"
	"go/ast"
	"go/build"
	"go/format"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

var record = flag.Bool("record", false, "write the exported API to the files in api/ instead of comparing")

// TestExportedAPIIsTheRecordedOne keeps the exported API of all modules from changing
// unnoticed: a change shows as one of the files in api/, next to the code. After one
// that is meant, run
//
//	make api
func TestExportedAPIIsTheRecordedOne(t *testing.T) {
	folder := filepath.Join(root, "api")
	stale, err := filepath.Glob(filepath.Join(folder, "*.txt"))
	if err != nil {
		t.Fatal(err)
	}
	for path, files := range importable(t) {
		api := exported(t, path, files)
		if len(api) == 0 { // documentation
			continue
		}
		file := filepath.Join(folder, strings.ReplaceAll(path, "/", "_")+".txt")
		stale = slices.DeleteFunc(stale, func(have string) bool { return have == file })
		if *record {
			if err := os.MkdirAll(folder, 0o755); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(file, api, 0o644); err != nil {
				t.Fatal(err)
			}
			continue
		}
		have, err := os.ReadFile(file)
		if err != nil {
			t.Errorf("the API of %s is not recorded (make api): %v", path, err)
			continue
		}
		if !bytes.Equal(have, api) {
			t.Errorf("the API of %s has changed. If that is meant: make api, and a line in CHANGELOG.md\n%s", path, difference(have, api))
		}
	}
	for _, file := range stale {
		if !*record {
			t.Errorf("%s is of no package (make api)", file)
		} else if err := os.Remove(file); err != nil {
			t.Error(err)
		}
	}
}

// importable returns the folders of the packages that others can import, in this
// module and the ones below, and the files they are made of. These are those of
// one platform, wherever the test runs.
func importable(t *testing.T) map[string][]string {
	platform := build.Default
	platform.GOOS, platform.GOARCH, platform.CgoEnabled, platform.BuildTags = "linux", "amd64", true, nil
	packages := make(map[string][]string)
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil || !d.IsDir() {
			return err
		}
		name := d.Name()
		if path != root && (strings.HasPrefix(name, ".") || strings.HasPrefix(name, "_") || name == "testdata" || name == "internal") {
			return filepath.SkipDir
		}
		p, err := platform.ImportDir(path, 0)
		if none := (*build.NoGoError)(nil); errors.As(err, &none) {
			return nil
		} else if err != nil {
			return err
		}
		if p.IsCommand() {
			return nil
		}
		folder, err := filepath.Rel(root, path)
		packages[filepath.ToSlash(folder)] = append(p.GoFiles, p.CgoFiles...)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return packages
}

// exported returns the exported declarations of a package, without comments and
// bodies, each on lines of its own and in order.
func exported(t *testing.T, path string, files []string) []byte {
	var decls []string
	for _, name := range files {
		fset := token.NewFileSet()
		f, err := parser.ParseFile(fset, filepath.Join(root, path, name), nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		ast.FileExports(f)
		for _, d := range f.Decls {
			switch d := d.(type) {
			case *ast.FuncDecl:
				if d.Recv != nil && !ast.IsExported(receiver(d)) {
					continue
				}
				d.Body = nil
			case *ast.GenDecl:
				if d.Tok == token.IMPORT {
					continue
				}
			}
			var b bytes.Buffer
			if err := format.Node(&b, fset, d); err != nil {
				t.Fatal(err)
			}
			lines := slices.Collect(strings.Lines(b.String()))
			lines = slices.DeleteFunc(lines, func(line string) bool { return line == "\n" }) // where a comment was
			decls = append(decls, strings.Join(lines, ""))
		}
	}
	if len(decls) == 0 {
		return nil
	}
	slices.Sort(decls)
	return []byte(strings.Join(decls, "\n\n") + "\n")
}

// receiver returns the name of the type that a method is of.
func receiver(d *ast.FuncDecl) string {
	at := d.Recv.List[0].Type
	for {
		switch t := at.(type) {
		case *ast.StarExpr:
			at = t.X
		case *ast.IndexExpr: // of a generic type
			at = t.X
		case *ast.Ident:
			return t.Name
		default:
			return ""
		}
	}
}

// difference returns the lines that only one of two texts has.
func difference(before, after []byte) string {
	var lines []string
	count := make(map[string]int)
	for line := range strings.Lines(string(after)) {
		count[strings.TrimSuffix(line, "\n")]++
	}
	for line := range strings.Lines(string(before)) {
		line = strings.TrimSuffix(line, "\n")
		if count[line]--; count[line] < 0 {
			lines = append(lines, "- "+line)
		}
	}
	for line := range strings.Lines(string(after)) {
		line = strings.TrimSuffix(line, "\n")
		if count[line] > 0 {
			lines = append(lines, "+ "+line)
			count[line] = 0
		}
	}
	return strings.Join(lines, "\n")
}
