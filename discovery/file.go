package discovery

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"strings"
	"syscall"
	"time"
)

const (
	// DefaultFileInterval is how often a File is looked at.
	DefaultFileInterval = 2 * time.Second
	maxFile             = 4 << 20

	// fileSettles is how long a file must not have been written to. Whoever writes
	// it in place does so in pieces, and half a line may be the URL of another
	// service.
	fileSettles = 100 * time.Millisecond
)

// File is a source that reads its workers from a file, and reads it again when
// it changes. The file holds either a JSON list, whose elements are URLs or
// objects of id, url and poll,
//
//	["http://10.0.0.1:30000", {"id": "b", "url": "http://10.0.0.2:30000", "poll": true}]
//
// or plain text, one URL a line, # starting a comment.
//
// An entry that cannot be used is refused by itself. Content that is bad as a
// whole (unreadable, removed, broken JSON, no usable entry in it, empty, above 4 MiB
// or [MaxWorkers] entries) changes nothing: the last good set stays, and the problem
// is logged and in the status.
// An empty file is bad because that is what a file looks like to a reader while
// it is being written; to say that there are no workers, write [] or a comment.
// For the same reason content is not taken in the tenth of a second after a write.
// Writers do best to replace the file by renaming another over it.
//
// The file is looked at by reading it, not by watching it: that also works
// across mounts, symbolic links (a Kubernetes ConfigMap is one) and network file
// systems, and no modification time can hide a change.
type File struct {
	Path     string
	Interval time.Duration // 0 means DefaultFileInterval
	Logger   *slog.Logger  // nil means none

	sourceState
}

// Run implements Source.
func (f *File) Run(ctx context.Context, emit func([]Worker)) error {
	interval := f.Interval
	if interval <= 0 {
		interval = DefaultFileInterval
	}
	var looked fileView
	for {
		pause := interval
		if settled := f.look(&looked, emit); !settled {
			pause = min(pause, fileSettles)
		}
		if !sleep(ctx, pause) {
			return ctx.Err()
		}
	}
}

// Status implements StatusSource.
func (f *File) Status() []SourceStatus { return f.read("file " + f.Path) }

// fileView is the newest content that was judged, good or bad.
type fileView struct {
	judged bool
	sum    [sha256.Size]byte
	fault  string // what is wrong with it; empty if nothing
}

// look reads the file and emits what is new. It reports false if the file is
// being written right now, and there is the end of it to be looked at soon.
func (f *File) look(v *fileView, emit func([]Worker)) (settled bool) {
	content, err := readSettled(f.Path, io.ReadAll)
	switch {
	case errors.Is(err, errUnsettled):
		return false
	case err != nil:
		f.bad(err.Error())
	default:
		f.judge(content, v, emit)
	}
	return true
}

func (f *File) judge(content []byte, v *fileView, emit func([]Worker)) {
	sum := sha256.Sum256(content)
	if v.judged && sum == v.sum {
		if v.fault != "" {
			f.bad(v.fault)
		} else if f.problem("") { // it was gone, and is back as it was
			f.log(slog.LevelInfo, "discovery: file is readable again")
		}
		return
	}
	*v = fileView{judged: true, sum: sum}
	workers, refused, err := parseFile(content)
	if err != nil {
		v.fault = err.Error()
		f.bad(v.fault)
		return
	}
	f.emitted(len(workers), refused)
	for _, r := range refused {
		f.log(slog.LevelError, "discovery: entry refused", "entry", r.Worker, "reason", r.Reason)
	}
	f.log(slog.LevelInfo, "discovery: file read", "workers", len(workers))
	emit(workers)
}

func (f *File) bad(what string) {
	if f.problem(what) {
		f.log(slog.LevelError, "discovery: file is bad, keeping the last good set", "reason", what)
	}
}

func (f *File) log(level slog.Level, msg string, args ...any) {
	if f.Logger != nil {
		f.Logger.Log(context.Background(), level, msg, append([]any{"path", f.Path}, args...)...)
	}
}

var errUnsettled = errors.New("file is being written")

// readSettled reads a file, with read, that nobody writes to meanwhile, nor has
// just written to.
func readSettled(path string, read func(io.Reader) ([]byte, error)) ([]byte, error) {
	// A named pipe would hold an ordinary open up until somebody writes to it.
	file, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	before, err := file.Stat()
	if err != nil {
		return nil, err
	}
	if !before.Mode().IsRegular() {
		return nil, fmt.Errorf("%s is not a regular file", path)
	}
	if before.Size() > maxFile {
		return nil, fmt.Errorf("%s: %d bytes are above the bound of %d", path, before.Size(), maxFile)
	}
	content, err := read(io.LimitReader(file, maxFile+1))
	if err != nil {
		return nil, err
	}
	after, err := file.Stat()
	if err != nil {
		return nil, err
	}
	if after.Size() != int64(len(content)) || after.Size() != before.Size() || !after.ModTime().Equal(before.ModTime()) {
		return nil, errUnsettled
	}
	if age := time.Since(after.ModTime()); age >= 0 && age < fileSettles {
		return nil, errUnsettled
	}
	return content, nil
}

// parseFile reads the content of a workers file. refused are the entries that
// are not workers; an error means that the content is bad as a whole.
func parseFile(content []byte) (workers []Worker, refused []Refusal, err error) {
	content = bytes.TrimSpace(bytes.TrimPrefix(content, []byte("\xef\xbb\xbf")))
	switch {
	case len(content) == 0:
		return nil, nil, errors.New("file is empty")
	case content[0] == '{':
		return nil, nil, errors.New("want a JSON list, found an object")
	case content[0] == '[':
		workers, refused, err = parseJSONWorkers(content)
	default:
		workers, err = parseTextWorkers(string(content))
	}
	if err != nil {
		return nil, nil, err
	}
	targets, unusable := admit(workers)
	if len(targets) == 0 && len(refused)+len(unusable) > 0 {
		first := append(refused, unusable...)[0]
		return nil, nil, fmt.Errorf("no usable entry among %d; the first: %s: %s", len(refused)+len(unusable), clip(first.Worker), first.Reason)
	}
	return workers, refused, nil
}

func parseJSONWorkers(content []byte) (workers []Worker, refused []Refusal, err error) {
	var list json.RawMessage
	if err := json.Unmarshal(content, &list); err != nil {
		return nil, nil, fmt.Errorf("not a JSON list: %w", err)
	}
	for raw := range elements(list) {
		n := len(workers) + len(refused)
		if n == MaxWorkers {
			return nil, nil, tooMany("entries")
		}
		w, err := parseJSONWorker(raw)
		if err != nil {
			refused = append(refused, Refusal{Worker: fmt.Sprintf("entry %d", n), Reason: clipTo(err.Error(), maxName)})
			continue
		}
		workers = append(workers, w)
	}
	return workers, refused, nil
}

func parseJSONWorker(raw json.RawMessage) (Worker, error) {
	var w Worker
	if len(raw) > 4*maxName {
		return w, fmt.Errorf("%d bytes, of which no entry has that many", len(raw))
	}
	if raw[0] == '"' {
		return w, json.Unmarshal(raw, &w.URL)
	}
	if raw[0] != '{' {
		return w, fmt.Errorf("%s, want a URL or an object", kindOf(raw))
	}
	// A key that is misspelt is refused rather than ignored: a worker that is
	// silently not polled is harder to find than a line in the log.
	dec := json.NewDecoder(bytes.NewReader(raw))
	dec.DisallowUnknownFields()
	var fields struct {
		ID   string `json:"id"`
		URL  string `json:"url"`
		Poll bool   `json:"poll"`
	}
	if err := dec.Decode(&fields); err != nil {
		return w, errors.New(strings.TrimPrefix(err.Error(), "json: "))
	}
	return Worker(fields), nil
}

func parseTextWorkers(content string) ([]Worker, error) {
	var workers []Worker
	for line := range strings.Lines(content) {
		// A # inside a word is no comment but a fragment, which is refused with
		// words of its own.
		if i := strings.IndexByte(line, '#'); i == 0 || (i > 0 && strings.ContainsRune(" \t", rune(line[i-1]))) {
			line = line[:i]
		}
		if line = strings.TrimSpace(line); line == "" {
			continue
		}
		if len(workers) == MaxWorkers {
			return nil, tooMany("lines")
		}
		workers = append(workers, Worker{URL: line})
	}
	return workers, nil
}
