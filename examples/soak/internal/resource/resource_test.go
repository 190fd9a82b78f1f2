package resource

import (
	"os"
	"runtime"
	"testing"
)

func TestDescriptorsAreCountedByWhatTheyAreOf(t *testing.T) {
	before := Descriptors()
	if before == nil {
		if runtime.GOOS == "linux" {
			t.Error("no descriptors on Linux")
		}
		return
	}
	if again := Descriptors(); again.Beyond(before) != "" || before.Beyond(again) != "" {
		t.Errorf("looking makes a difference: %v, then %v", before, again)
	}
	dir := t.TempDir()
	for range 2 {
		f, err := os.Open(dir)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
	}
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	defer w.Close()
	now := Descriptors()
	if got, want := now.Beyond(before), "2 "+dir+", 2 pipe"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
	if got := before.Beyond(now); got != "" {
		t.Errorf("%q, want nothing", got)
	}
	if got := now.Only("pip"); len(got) != 1 || got["pipe"] < 2 {
		t.Errorf("pipes: %v", got)
	}
}

func TestUseIsOfThisProcess(t *testing.T) {
	u := Settled()
	if u.Goroutines < 2 || u.Heap <= 0 {
		t.Errorf("%+v", u)
	}
	if runtime.GOOS == "linux" && (u.Descriptors < 3 || u.Threads < 1 || u.Resident < 1<<20 && !raceDetector) {
		t.Errorf("%+v", u)
	}
	kept := make([]byte, 10<<20)
	if after := Settled(); after.Heap < u.Heap+9<<20 {
		t.Errorf("%+v, and with 10 MiB more %+v", u, after)
	}
	runtime.KeepAlive(kept)
}
