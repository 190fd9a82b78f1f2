package discovery

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

func TestFileFormats(t *testing.T) {
	for _, c := range []struct {
		name, content string
		want          []Worker
		refused       []string // reasons
		err           string
	}{
		{name: "text", content: "# engines\nhttp://a:1\n\n  http://b:1  # second\r\n#http://c:1\nhttp://d:1", want: urls("http://a:1", "http://b:1", "http://d:1")},
		{name: "text with a byte order mark", content: "\xef\xbb\xbfhttp://a:1\n", want: urls("http://a:1")},
		{name: "only comments", content: "# nobody\n", want: []Worker{}},
		{name: "JSON URLs", content: `["http://a:1", "http://b:1"]`, want: urls("http://a:1", "http://b:1")},
		{name: "JSON objects", content: `[{"id":"a","url":"http://a:1"},{"url":"http://b:1","poll":true},"http://c:1"]`, want: []Worker{{ID: "a", URL: "http://a:1"}, {URL: "http://b:1", Poll: true}, {URL: "http://c:1"}}},
		{name: "JSON empty", content: "[]", want: []Worker{}},

		{name: "one URL of several is bad", content: "http://a:1\nnonsense\n", want: urls("http://a:1", "nonsense")}, // the Fleet refuses it
		{name: "entries that are no workers", content: `["http://a:1", 7, null, {"url":7}, {"url":"http://b:1","pol":true}]`, want: urls("http://a:1"), refused: []string{"a number", "null", "cannot unmarshal number", "unknown field"}},

		{name: "empty", content: "", err: "empty"},
		{name: "blank", content: " \n\n", err: "empty"},
		{name: "JSON broken", content: `["http://a:1",`, err: "not a JSON list"},
		{name: "JSON with something behind", content: `["http://a:1"] x`, err: "not a JSON list"},
		{name: "JSON object", content: `{"url":"http://a:1"}`, err: "want a JSON list"},
		{name: "no usable line", content: "<html>\n<body>", err: "no usable entry among 2"},
		{name: "no usable entry", content: `[1, "x"]`, err: "no usable entry among 2"},
		{name: "binary", content: "\x00\x01\x02", err: "no usable entry"},
	} {
		t.Run(c.name, func(t *testing.T) {
			workers, refused, err := parseFile([]byte(c.content))
			if c.err != "" {
				if err == nil || !strings.Contains(err.Error(), c.err) {
					t.Errorf("error %v, want %q", err, c.err)
				}
				return
			}
			if err != nil || !slices.Equal(workers, c.want) || len(refused) != len(c.refused) {
				t.Fatalf("got %+v, refused %+v, %v", workers, refused, err)
			}
			for i, r := range refused {
				if !strings.Contains(r.Reason, c.refused[i]) {
					t.Errorf("refused %+v, want %q", r, c.refused[i])
				}
			}
		})
	}
}

func TestFileKeepsItsLastGoodSet(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		path := filepath.Join(dir, "engines")
		var log logBuffer
		f := &File{Path: path, Interval: time.Second, Logger: slog.New(slog.NewTextHandler(&log, nil))}
		problem := func(part string) {
			t.Helper()
			if st := f.Status()[0]; !strings.Contains(st.Problem, part) || (part == "") != (st.Problem == "") {
				t.Errorf("problem %q, want %q", st.Problem, part)
			}
		}
		write := func(content string) {
			t.Helper()
			if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
				t.Fatal(err)
			}
			advance(time.Second)
		}

		out := start(t, f)
		out.expect(t)
		problem("no such file") // and keeps trying
		write("not JSON, no URL")
		out.expect(t)
		problem("no usable entry")
		write(`["http://a:1"]`)
		problem("")
		write(`["http://a:1","http://b:1"]`)
		two := [][]string{{"http://a:1"}, {"http://a:1", "http://b:1"}}
		out.expect(t, two...)

		write(`["http://a:1",`)
		problem("not a JSON list")
		write("")
		problem("empty")
		logged := strings.Count(log.String(), "keeping the last good set")
		advance(time.Minute)
		if n := strings.Count(log.String(), "keeping the last good set"); n != logged {
			t.Errorf("a problem that lasts was logged %d times more", n-logged)
		}
		if err := os.Remove(path); err != nil {
			t.Fatal(err)
		}
		advance(time.Minute)
		problem("no such file")
		out.expect(t, two...)
		if st := f.Status()[0]; st.Workers != 2 || !strings.Contains(st.Source, path) {
			t.Errorf("status %+v", st)
		}

		// Back as it was before: nothing new, and nothing wrong.
		write(`["http://a:1","http://b:1"]`)
		problem("")
		out.expect(t, append(two, two[1])...)
		write(`[]`)
		out.expect(t, append(two, two[1], []string{})...)
	})
}

func TestFileGoneAndBackIsNotAChange(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		path := filepath.Join(dir, "engines")
		if err := os.WriteFile(path, []byte("http://a:1"), 0o600); err != nil {
			t.Fatal(err)
		}
		f := &File{Path: path, Interval: time.Second}
		out := start(t, f)
		for _, to := range []string{"away", "engines"} {
			from := map[string]string{"away": "engines", "engines": "away"}[to]
			if err := os.Rename(filepath.Join(dir, from), filepath.Join(dir, to)); err != nil {
				t.Fatal(err)
			}
			advance(2 * time.Second)
			if gone := f.Status()[0].Problem != ""; gone != (to == "away") {
				t.Errorf("renamed to %s: problem %q", to, f.Status()[0].Problem)
			}
		}
		out.expect(t, []string{"http://a:1"})
	})
}

func TestFileChangeOfTheSameSizeAndTimeIsSeen(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		path := filepath.Join(dir, "engines")
		when := time.Unix(1700000000, 0)
		write := func(content string) {
			if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
				t.Fatal(err)
			}
			if err := os.Chtimes(path, when, when); err != nil {
				t.Fatal(err)
			}
		}
		write("http://a:1")
		out := start(t, &File{Path: path})
		write("http://b:1")
		advance(DefaultFileInterval)
		out.expect(t, []string{"http://a:1"}, []string{"http://b:1"})
	})
}

func TestFileWrittenToWhileItIsReadIsNotRead(t *testing.T) {
	path := filepath.Join(t.TempDir(), "engines")
	when := time.Unix(1700000000, 0)
	write := func(content string, at time.Time) {
		t.Helper()
		if err := errors.Join(os.WriteFile(path, []byte(content), 0o600), os.Chtimes(path, at, at)); err != nil {
			t.Fatal(err)
		}
	}
	for _, c := range []struct {
		name          string
		during, after string    // content while it is read and then
		at            time.Time // of the newest change
		want          error
	}{
		{"left alone", "http://a:1", "http://a:1", when, nil},
		// A file system's clock is coarse, and a copy keeps the original's time.
		{"the same size at another time", "http://a:1", "http://b:1", when.Add(1), errUnsettled},
		{"written to behind the reader", "http://a:1", "http://a:12", when, errUnsettled},
		{"cut off before it is read", "http://", "http://", when, errUnsettled},
		{"cut off and written again", "http://", "http://b:1", when, errUnsettled},
	} {
		t.Run(c.name, func(t *testing.T) {
			write("http://a:1", when)
			content, err := readSettled(path, func(r io.Reader) ([]byte, error) {
				write(c.during, when)
				content, err := io.ReadAll(r)
				write(c.after, c.at)
				return content, err
			})
			if !errors.Is(err, c.want) || (c.want == nil) != (string(content) == "http://a:1") {
				t.Errorf("read %q, %v", content, err)
			}
		})
	}
}

func TestFileThatIsNoFileOrTooLargeIsBad(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		large := filepath.Join(dir, "large")
		if err := os.WriteFile(large, nil, 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Truncate(large, 1<<40); err != nil {
			t.Fatal(err)
		}
		for path, want := range map[string]string{dir: "not a regular file", large: "above the bound"} {
			f := &File{Path: path}
			start(t, f)
			if st := f.Status()[0]; !strings.Contains(st.Problem, want) {
				t.Errorf("%s: %q, want %q", path, st.Problem, want)
			}
		}
	})
}

// In a file that is written in place, half a line may be the URL of another
// service, and a pause between two pieces looks like the end.
func TestFileThatHasJustBeenWrittenToIsNotReadYet(t *testing.T) {
	path := filepath.Join(t.TempDir(), "workers")
	if err := os.WriteFile(path, []byte("http://10.0.0.1:3"), 0o600); err != nil {
		t.Fatal(err)
	}
	now := time.Now()
	content, err := readSettled(path, io.ReadAll)
	if !errors.Is(err, errUnsettled) && time.Since(now) < fileSettles/2 {
		t.Errorf("read %q (%v) right after it was written", content, err)
	}
	if err := os.Chtimes(path, now, now.Add(-fileSettles)); err != nil {
		t.Fatal(err)
	}
	if _, err := readSettled(path, io.ReadAll); err != nil {
		t.Errorf("it has settled and is not read: %v", err)
	}
}

func TestFileThatIsNewAtTheStartIsReadWithoutWaitingForTheInterval(t *testing.T) {
	path := filepath.Join(t.TempDir(), "workers")
	if err := os.WriteFile(path, []byte("http://10.0.0.1:30000\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	emitted := make(chan []Worker, 1)
	ended := make(chan error, 1)
	go func() {
		f := &File{Path: path, Interval: time.Hour}
		ended <- f.Run(ctx, func(set []Worker) { emitted <- set })
	}()
	if set := <-emitted; len(set) != 1 {
		t.Errorf("emitted %v", set)
	}
	cancel()
	<-ended
}
