package gateway

import (
	"errors"
	"io"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/plimsoll-go/plimsoll/selector"
)

// following is a gateway that follows a file, in the bubble of a test.
type following struct {
	*Gateway
	t     *testing.T
	path  string
	hup   chan os.Signal
	reads atomic.Int32
}

func (f *following) write(content string) {
	f.t.Helper()
	if err := os.WriteFile(f.path, []byte(content), 0o600); err != nil {
		f.t.Fatal(err)
	}
}

// wait lets time pass, in which the file may be looked at.
func (f *following) wait(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

func (f *following) want(policy, refused string) {
	f.t.Helper()
	_, err := f.reloads.newest()
	if got := f.Policy(); got != policy || (err == nil) != (refused == "") || err != nil && !strings.Contains(err.Error(), refused) {
		f.t.Errorf("the policy is %s, and refused is %v; want %s and %q", got, err, policy, refused)
	}
	if notice := f.notice(); (notice == "") != (err == nil) || !strings.Contains(notice, refused) {
		f.t.Errorf("the page says %q", notice)
	}
}

func follow(t *testing.T, test func(*following)) {
	synctest.Test(t, func(t *testing.T) {
		f := &following{t: t, path: filepath.Join(t.TempDir(), "gateway.json"), hup: make(chan os.Signal)}
		f.write(`{"policy": "random"}`)
		f.Gateway = unwired(t, Config{Policy: "random"})
		defer f.Close()
		go f.Follow(t.Context(), f.path, f.hup, func(content []byte) (Config, error) {
			f.reads.Add(1)
			c := Config{Workers: []string{"http://nobody"}}
			err := c.Read(content)
			return c, err
		})
		f.wait(time.Minute)
		if f.want("random", ""); f.reads.Load() != 1 {
			t.Errorf("a file that nobody changes was read %d times", f.reads.Load())
		}
		test(f)
	})
}

func TestTheFileIsFollowed(t *testing.T) {
	follow(t, func(f *following) {
		f.write(`{"policy": "least_depth", "access_log": true}`)
		f.wait(3 * lookInterval)
		f.want("least_depth", "")
		if !f.config.Load().AccessLog {
			t.Error("only the policy was taken")
		}
		for content, want := range map[string]string{
			`{"policy": `:             "unexpected EOF",
			`{"polices": "random"}`:   `unknown field "polices"`,
			`{"policy": "best"}`:      "unknown policy",
			`{"workers": ["engine"]}`: "not a worker URL",
			`{"listen": ":1", "freshness": "9s", "policy": "random"}`: "a change of listen, freshness takes a restart",
		} {
			f.write(content)
			f.wait(3 * lookInterval)
			f.want("least_depth", want)
		}
		if err := os.Remove(f.path); err != nil {
			t.Fatal(err)
		}
		f.wait(3 * lookInterval)
		f.want("least_depth", "no such file")
		once, _ := f.reloads.newest()
		f.wait(time.Minute)
		if again, _ := f.reloads.newest(); again != once {
			t.Error("that a file is gone is told more than once")
		}
		if err := os.Mkdir(f.path, 0o700); err != nil {
			t.Fatal(err)
		}
		f.wait(3 * lookInterval)
		f.want("least_depth", "no regular file")
		if err := os.Remove(f.path); err != nil {
			t.Fatal(err)
		}
		f.write(strings.Repeat(" ", maxFile+1))
		f.wait(3 * lookInterval)
		f.want("least_depth", "above the bound")
		f.write("")
		f.wait(3 * lookInterval)
		f.want("least_depth", "it is empty")
		f.write("\ufeff" + `{"policy": "random"}`) // with the mark that some editors put there
		f.wait(3 * lookInterval)
		f.want("random", "")
	})
}

// As Kubernetes does with a ConfigMap.
func TestAFileMayBeReplacedByTheTurnOfALink(t *testing.T) {
	follow(t, func(f *following) {
		for _, policy := range []string{"least_depth", "random"} {
			dir := t.TempDir()
			if err := os.WriteFile(filepath.Join(dir, "gateway.json"), []byte(`{"policy": "`+policy+`"}`), 0o600); err != nil {
				t.Fatal(err)
			}
			link := filepath.Join(t.TempDir(), "link")
			if err := os.Symlink(filepath.Join(dir, "gateway.json"), link); err != nil {
				t.Fatal(err)
			}
			if err := os.Rename(link, f.path); err != nil {
				t.Fatal(err)
			}
			f.wait(3 * lookInterval)
			f.want(policy, "")
		}
	})
}

func TestAFileThatIsBeingWrittenIsNotReadYet(t *testing.T) {
	follow(t, func(f *following) {
		content := `{"policy": "least_depth"}`
		for i := range content {
			f.write(content[:i+1])
			f.wait(lookInterval)
		}
		f.wait(3 * lookInterval)
		if f.want("least_depth", ""); f.reads.Load() != 2 {
			t.Errorf("it was read %d times", f.reads.Load()-1)
		}
	})
}

func TestASignalHasTheFileReadAtOnce(t *testing.T) {
	follow(t, func(f *following) {
		f.wait(lookInterval / 2)
		f.write(`{"policy": "least_depth"}`)
		f.hup <- os.Interrupt
		synctest.Wait()
		f.want("least_depth", "")
		f.hup <- os.Interrupt // also where nothing has changed: a file that it names may have
		synctest.Wait()
		if f.reads.Load() != 3 {
			t.Errorf("read %d times", f.reads.Load())
		}
	})
}

func TestWhatHasNotChangedIsLeftAlone(t *testing.T) {
	g := unwired(t, Config{})
	defer g.Close()
	routing, engines := g.routing.Load(), g.engines.now
	c := *g.config.Load()
	c.Tries, c.LogLevel = 7, slog.LevelError
	g.Reload(c, nil)
	if g.routing.Load() != routing || g.engines.now != engines {
		t.Error("the policy begins anew, or the engines are looked for anew")
	}
	c.PolicyConfig = []byte(`{"ranks": true}`)
	g.Reload(c, nil)
	policy := g.policy()
	if policy == routing.policy {
		t.Error("the policy has not changed with its configuration")
	}
	c.PolicyConfig = []byte("{\n\t\"ranks\":true\n}") // another hand has indented it
	c.Signal = selector.Uniform                       // which is asked when no policy knows
	g.Reload(c, nil)
	if g.policy() != policy || g.routing.Load() == routing {
		t.Error("the policy begins anew for what is none of its own")
	}
	if got := g.config.Load(); got.Tries != 7 {
		t.Errorf("the tries are %d", got.Tries)
	}
	g.Reload(Config{}, errors.New("unreadable"))
	if got := g.config.Load(); got.Tries != 7 {
		t.Errorf("after one that is refused, the tries are %d", got.Tries)
	}
}

func TestTheLevelOfTheLogChanges(t *testing.T) {
	var level slog.LevelVar
	g := unwired(t, Config{Level: &level})
	defer g.Close()
	c := *g.config.Load()
	c.Level, c.LogLevel = nil, slog.LevelDebug // as it is read from a file
	g.Reload(c, nil)
	if level.Level() != slog.LevelDebug {
		t.Errorf("the level is %v", level.Level())
	}
}

func TestWhatTakesARestart(t *testing.T) {
	var old Config
	for i, f := range reflect.VisibleFields(reflect.TypeOf(old)) {
		switch tag := f.Tag.Get("change"); {
		case tag != "" && tag != "restart":
			t.Errorf("%s: %q is no tag", f.Name, tag)
		case tag == "":
			continue
		}
		c := old
		change(t, reflect.ValueOf(&c).Elem().Field(i))
		if names := needRestart(old, c); len(names) != 1 || names[0] != f.Tag.Get("json") {
			t.Errorf("after a change of %s: %q", f.Name, names)
		}
	}
}

// change makes a value another one.
func change(t *testing.T, v reflect.Value) {
	switch v.Kind() {
	case reflect.Struct:
		change(t, v.Field(0))
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 1, 1))
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
	case reflect.Int64:
		v.SetInt(1)
	case reflect.Bool:
		v.SetBool(true)
	case reflect.String:
		v.SetString("x")
	default:
		t.Fatalf("what is another %s?", v.Type())
	}
}

// Configurations change under traffic, and nobody notices.
func TestNoRequestIsLostByAReload(t *testing.T) {
	answer := func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, "answer") }
	first, second := backend(t, answer), backend(t, answer)
	file := filepath.Join(t.TempDir(), "workers")
	if err := os.WriteFile(file, []byte(first+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	past := time.Now().Add(-time.Hour)
	if err := os.Chtimes(file, past, past); err != nil {
		t.Fatal(err)
	}
	c := Config{Workers: []string{first}}
	g := start(t, c)
	kept := g.worker(t, first)

	stop := make(chan struct{})
	var clients sync.WaitGroup
	for range 4 {
		clients.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				res, err := g.tryPost(t.Context(), `{"prompt":"hello"}`)
				if err != nil {
					t.Error(err)
					return
				}
				if body, err := io.ReadAll(res.Body); err != nil || string(body) != "answer" {
					t.Errorf("got %d %q, %v", res.StatusCode, body, err)
				}
				res.Body.Close()
			}
		})
	}
	take := func(c Config, workers ...string) {
		t.Helper()
		g.Reload(c, nil)
		if _, err := g.reloads.newest(); err != nil {
			t.Fatal(err)
		}
		waitFor(t, "the engines", func() bool {
			ids := make([]string, 0, 2)
			for _, w := range g.table.Workers() {
				ids = append(ids, w.ID())
			}
			return sameSet(ids, workers)
		})
	}
	for _, policy := range []string{"round_robin", "least_work"} {
		take(Config{Policy: policy, Workers: []string{first, second}}, first, second)
		take(Config{Policy: policy, WorkersFile: file}, first)
		take(Config{Policy: policy, Workers: []string{second}, WorkersFile: file}, first, second)
		take(Config{Policy: policy, Workers: []string{first}}, first)
	}
	// A list that cannot be had leaves the engines that there are.
	g.Reload(Config{WorkersFile: file + ".missing"}, nil)
	waitFor(t, "the file to be missed", func() bool { return g.fleet.Status().Sources[0].Problem != "" })
	close(stop)
	clients.Wait()
	g.settled(t)
	if w := g.worker(t, first); w != kept {
		t.Error("an engine that was on every list was removed in between")
	}
}

func sameSet(a, b []string) bool {
	set := func(list []string) map[string]bool {
		m := make(map[string]bool)
		for _, s := range list {
			m[s] = true
		}
		return m
	}
	return reflect.DeepEqual(set(a), set(b))
}

// The engines get the key of the present configuration, and an engine that is drained
// stays so.
func TestWhatOthersAreToldFollowsTheConfiguration(t *testing.T) {
	keys := make(chan string, 1000)
	s := backend(t, nil)
	g := start(t, Config{Workers: []string{s}, AdminToken: "secret"})
	g.transport.RegisterProtocol("engine", roundTripper(func(r *http.Request) (*http.Response, error) {
		keys <- r.Header.Get("Authorization")
		return &http.Response{StatusCode: 200, Body: http.NoBody}, nil
	}))
	w := g.table.Add("engine", "engine://engine")
	g.order(t, "drain", "secret", s)
	g.Reload(Config{Workers: []string{s}, APIKey: "key", AdminToken: "other"}, nil)
	if err := g.health.probe(t.Context(), w); err != nil {
		t.Fatal(err)
	}
	text(t, g.post(t, `{}`))
	for range 2 {
		if key := <-keys; key != "Bearer key" {
			t.Errorf("the engine got %q", key)
		}
	}
	if status, _ := g.order(t, "undrain", "secret", s); status != http.StatusUnauthorized {
		t.Errorf("with the token of before: %d", status)
	}
	if healthy := g.worker(t, s).Status().Healthy; healthy {
		t.Error("a drained engine is back")
	}
}
