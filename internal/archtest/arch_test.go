package archtest

import (
	"bytes"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

const (
	module = "github.com/plimsoll-go/plimsoll"
	zmq4   = "github.com/pebbe/zmq4"
	root   = "../.."
)

// pkg is what these tests want of `go list -json`.
type pkg struct {
	ImportPath   string
	Standard     bool
	CgoFiles     []string
	Imports      []string
	TestImports  []string
	XTestImports []string
	DepOnly      bool
}

// list runs go list in the root of the module, for the packages that there are
// with or without cgo.
func list(t *testing.T, cgo string, args ...string) []pkg {
	t.Helper()
	cmd := exec.Command("go", append([]string{"list", "-json=ImportPath,Standard,CgoFiles,Imports,TestImports,XTestImports,DepOnly"}, args...)...)
	cmd.Dir = root
	cmd.Env = append(os.Environ(), "CGO_ENABLED="+cgo, "GOWORK=off")
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("go list %v with CGO_ENABLED=%s: %v\n%s", args, cgo, err, &stderr)
	}
	var pkgs []pkg
	for d := json.NewDecoder(bytes.NewReader(out)); d.More(); {
		var p pkg
		if err := d.Decode(&p); err != nil {
			t.Fatal(err)
		}
		pkgs = append(pkgs, p)
	}
	if len(pkgs) == 0 {
		t.Fatalf("go list %v: no packages", args)
	}
	return pkgs
}

// deps returns the packages that a package of this module consists of, itself
// included.
func deps(t *testing.T, cgo, path string) []pkg {
	t.Helper()
	return list(t, cgo, "-deps", module+"/"+path)
}

// rules say, for the packages in a folder and below, which of this module they
// may be made of. A package that is in none of the folders fails the test.
var rules = []struct {
	folder string
	pure   bool // builds without cgo, also where cgo is there
	uses   []string
}{
	{"internal/msgpack", true, nil},
	{"snapshot", true, []string{"internal/msgpack"}},
	{"snapshot/zmqsub", false, []string{"snapshot"}},
	{"snapshot/vllm", true, []string{"internal/msgpack"}},
	{"tokenspeed", true, []string{"internal/msgpack"}},
	{"load", true, []string{"snapshot", "snapshot/vllm", "tokenspeed"}},
	{"load/loadhttp", true, []string{"snapshot", "load", "selector"}}, // it shows how picks came about, and nothing is made of it
	{"selector", true, []string{"snapshot", "load"}},
	{"selector/pickhttp", true, []string{"snapshot", "load", "selector"}},
	{"discovery", true, []string{"snapshot", "load"}},
	{"internal", false, []string{"snapshot", "snapshot/zmqsub", "snapshot/vllm", "tokenspeed", "load", "selector", "discovery"}},
	{"", false, nil}, // the root holds documentation and its examples
}

// ruleOf returns the rule with the longest folder.
func ruleOf(t *testing.T, path string) (i int) {
	t.Helper()
	best := -1
	for i, r := range rules {
		in := path == r.folder || r.folder != "" && strings.HasPrefix(path, r.folder+"/")
		if in && (best < 0 || len(r.folder) > len(rules[best].folder)) {
			best = i
		}
	}
	if best < 0 {
		t.Fatalf("no rule says what %s may import", path)
	}
	return best
}

// local returns the path of a package within this module.
func local(importPath string) (string, bool) {
	if importPath == module {
		return "", true
	}
	return strings.CutPrefix(importPath, module+"/")
}

func TestImportsPointOneWay(t *testing.T) {
	for _, p := range list(t, "1", "-tags=conformance", "./...") {
		path, _ := local(p.ImportPath)
		rule := rules[ruleOf(t, path)]
		for _, imported := range p.Imports {
			target, ours := local(imported)
			if !ours {
				continue
			}
			folder := rules[ruleOf(t, target)].folder
			if folder != rule.folder && !slices.Contains(rule.uses, folder) {
				t.Errorf("%s imports %s, and may import only %v", path, target, rule.uses)
			}
		}
	}
}

func TestAllButTheSubscriberIsPure(t *testing.T) {
	for _, p := range list(t, "1", "./...") {
		path, _ := local(p.ImportPath)
		if !rules[ruleOf(t, path)].pure {
			continue
		}
		t.Run(path, func(t *testing.T) {
			for _, dep := range deps(t, "1", path) {
				if dep.ImportPath == zmq4 {
					t.Errorf("%s is made of %s", path, zmq4)
				}
				if !dep.Standard && (len(dep.CgoFiles) > 0 || slices.Contains(dep.Imports, "C")) {
					t.Errorf("%s is made of %s, which needs cgo", path, dep.ImportPath)
				}
			}
			// The standard library's net has a part in cgo where cgo is on, and
			// discovery cannot do without net.
			for _, dep := range deps(t, "0", path) {
				if dep.ImportPath == "runtime/cgo" || len(dep.CgoFiles) > 0 {
					t.Errorf("%s without cgo is made of %s", path, dep.ImportPath)
				}
			}
		})
	}
}

// What every pick and every message goes through has no business with the
// network, the file system or processes.
func TestTheCoreNeedsNoNetwork(t *testing.T) {
	for _, path := range []string{"snapshot", "load", "selector"} {
		for _, dep := range deps(t, "1", path) {
			switch dep.ImportPath {
			case "net", "net/http", "os/exec", "runtime/cgo":
				t.Errorf("%s is made of %s", path, dep.ImportPath)
			}
		}
	}
}

// The conformance run is the front end of engines besides, with sockets of its own.
func TestOnlyTheSubscriberImportsZMQ(t *testing.T) {
	found := false
	for _, p := range list(t, "1", "-tags=conformance", "./...") {
		path, _ := local(p.ImportPath)
		for _, imports := range [][]string{p.Imports, p.TestImports, p.XTestImports} {
			if !slices.Contains(imports, zmq4) {
				continue
			}
			if path != "snapshot/zmqsub" && path != "internal/conformance" {
				t.Errorf("%s imports %s", path, zmq4)
			}
			found = true
		}
	}
	if !found {
		t.Errorf("nothing imports %s", zmq4)
	}
	for _, dep := range deps(t, "0", "snapshot/zmqsub") {
		if dep.ImportPath == zmq4 {
			t.Errorf("snapshot/zmqsub without cgo is still made of %s", zmq4)
		}
	}
}

// Whoever uses the library downloads what the root module requires.
func TestTheRootModuleRequiresLittle(t *testing.T) {
	// Which packages of a requirement's module only tests may import.
	direct := map[string]struct{ tests bool }{
		zmq4:                      {},
		"github.com/tinylib/msgp": {},
		"golang.org/x/sync":       {},
		"go.uber.org/goleak":      {tests: true},
	}
	indirect := map[string]bool{"github.com/philhofer/fwd": true}

	cmd := exec.Command("go", "mod", "edit", "-json")
	cmd.Dir = root
	out, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}
	var mod struct {
		Module  struct{ Path string }
		Require []struct {
			Path     string
			Indirect bool
		}
		Replace []any
	}
	if err := json.Unmarshal(out, &mod); err != nil {
		t.Fatal(err)
	}
	if mod.Module.Path != module {
		t.Fatalf("the module in %s is %s", root, mod.Module.Path)
	}
	if len(mod.Replace) != 0 {
		t.Errorf("go.mod replaces modules, which it does for nobody who requires it: %v", mod.Replace)
	}
	for _, r := range mod.Require {
		_, known := direct[r.Path]
		if r.Indirect {
			known = indirect[r.Path]
		}
		if !known {
			t.Errorf("go.mod requires %s", r.Path)
		}
	}
	for path, d := range direct {
		if !d.tests {
			continue
		}
		for _, p := range list(t, "1", "-deps", "./...") {
			if p.ImportPath == path {
				t.Errorf("%s is imported outside of tests", path)
			}
		}
	}
}

// Heavy dependencies live in modules of their own, which find the root beside
// them.
func TestOtherModulesReplaceTheRoot(t *testing.T) {
	base, err := filepath.Abs(root)
	if err != nil {
		t.Fatal(err)
	}
	err = filepath.WalkDir(base, func(path string, d os.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name := d.Name()
		if d.IsDir() && path != base && (strings.HasPrefix(name, ".") || strings.HasPrefix(name, "_") || name == "testdata") {
			return filepath.SkipDir
		}
		if name != "go.mod" || filepath.Dir(path) == base {
			return nil
		}
		cmd := exec.Command("go", "mod", "edit", "-json")
		cmd.Dir = filepath.Dir(path)
		out, err := cmd.Output()
		if err != nil {
			return err
		}
		var mod struct {
			Replace []struct{ Old, New struct{ Path string } }
		}
		if err := json.Unmarshal(out, &mod); err != nil {
			return err
		}
		for _, r := range mod.Replace {
			if r.Old.Path == module && filepath.Join(filepath.Dir(path), r.New.Path) == base {
				return nil
			}
		}
		t.Errorf("%s does not replace %s", path, module)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}
