//go:build conformance

package conformance

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"
)

// The golden files are what the engines' encoders write today.
func TestGoldenFilesAreWhatTheEnginesWrite(t *testing.T) {
	t.Run("SGLang", func(t *testing.T) {
		testGolden(t, "../../snapshot/testdata", [][]string{{"--sglang", setting(t, "PLIMSOLL_SGLANG")}})
	})
	t.Run("TokenSpeed", func(t *testing.T) {
		testGolden(t, "../../tokenspeed/testdata", [][]string{{"--tokenspeed", setting(t, "PLIMSOLL_TOKENSPEED")}})
	})
	t.Run("vLLM", func(t *testing.T) {
		var runs [][]string
		for i, folder := range vllmVersions(t) {
			runs = append(runs, []string{"--vllm", folder})
			if i == 0 {
				runs[i] = append(runs[i], "--broken")
			}
		}
		testGolden(t, "../../snapshot/vllm/testdata", runs)
	})
}

// testGolden runs a folder's generator, once with each of the arguments, and
// compares what it writes with what is there.
func testGolden(t *testing.T, committed string, runs [][]string) {
	out := t.TempDir()
	for _, args := range runs {
		args = append([]string{filepath.Join(committed, "generate.py"), "--out", out}, args...)
		if msg, err := exec.Command(setting(t, "PLIMSOLL_PYTHON"), args...).CombinedOutput(); err != nil {
			t.Fatalf("%v\n%s", err, msg)
		}
	}
	names := func(folder string) (names []string) {
		files, err := filepath.Glob(filepath.Join(folder, "*.json"))
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range files {
			names = append(names, filepath.Base(f))
		}
		return names
	}
	if got, want := names(out), names(committed); len(got) == 0 || !slices.Equal(got, want) {
		t.Errorf("generated %q, committed are %q", got, want)
	}
	for _, name := range names(out) {
		got, err := os.ReadFile(filepath.Join(out, name))
		if err != nil {
			t.Fatal(err)
		}
		want, err := os.ReadFile(filepath.Join(committed, name))
		if err != nil {
			t.Error(err)
			continue
		}
		if bytes.Equal(got, want) {
			t.Logf("%s: %d bytes, the same", name, len(got))
			continue
		}
		g, w := bytes.Split(got, []byte("\n")), bytes.Split(want, []byte("\n"))
		for i := range min(len(g), len(w)) {
			if !bytes.Equal(g[i], w[i]) {
				t.Errorf("%s:%d\n got %.300s\nwant %.300s", name, i+1, g[i], w[i])
				break
			}
		}
		t.Errorf("%s: generated %d lines, committed are %d", name, len(g), len(w))
	}
}
