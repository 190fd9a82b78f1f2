package browsertest

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/chromedp"
)

// patience is how long anything may take on a machine that has better things to do.
const patience = 60 * time.Second

// browser is the one browser of all tests, each of which has a tab of its own. Where
// there is none, missing says why.
var (
	browser context.Context
	missing string
)

func TestMain(m *testing.M) {
	flag.Parse()
	os.Exit(func() int {
		if testing.Short() {
			missing = "a browser takes long to start"
			return m.Run()
		}
		path, err := find()
		if err != nil {
			fmt.Fprintln(os.Stderr, "browsertest:", err)
			return 1
		}
		if path == "" {
			return m.Run()
		}
		options := append(chromedp.DefaultExecAllocatorOptions[:],
			chromedp.ExecPath(path),
			chromedp.WSURLReadTimeout(3*patience), // it is read from the disk, all of it
			chromedp.NoSandbox,                    // which root cannot have, and which the page of a test does not need
			chromedp.Flag("disable-gpu", true),
			chromedp.Flag("disable-quic", true),
			chromedp.Flag("disable-component-update", true),
		)
		allocator, cancel := chromedp.NewExecAllocator(context.Background(), options...)
		defer cancel()
		ctx, cancel := chromedp.NewContext(allocator)
		defer cancel()
		if err := chromedp.Do(ctx); err != nil {
			fmt.Fprintf(os.Stderr, "browsertest: %s does not start: %v\n", path, err)
			return 1
		}
		browser = ctx
		return m.Run()
	}())
}

// find returns the path of a browser. It is empty if there is none to be had.
func find() (string, error) {
	if path := os.Getenv("PLIMSOLL_BROWSER"); path != "" {
		return path, nil
	}
	path, err := exec.Command("../../../.ci/chromium.sh").Output()
	if failed, ok := errors.AsType[*exec.ExitError](err); ok {
		missing = strings.TrimSpace(string(failed.Stderr))
		if failed.ExitCode() == 2 {
			return "", nil
		}
		return "", errors.New(missing)
	}
	return strings.TrimSpace(string(path)), err
}

// tab is a tab of the browser. It is closed with the test, if not before: a browser has
// six connections to a server and no more, and each tab takes one for as long as it can
// be seen, which all tabs of a headless browser can.
type tab struct {
	t     *testing.T
	ctx   context.Context
	close func()
}

// look is how a page is looked at.
type look struct {
	width, height int64
	dark, phone   bool
}

var desktop = look{width: 1440, height: 900}

// open opens a page in a new tab, and fails the test if the page says anything to the
// console: it has nothing to say there, but the browser has, when it stops something.
func open(t *testing.T, url string, l look) *tab {
	t.Helper()
	if browser == nil {
		t.Skip(missing)
	}
	ctx, cancel := chromedp.NewContext(browser)
	messages := chromedp.Console(ctx)
	var listening sync.WaitGroup
	said := make(map[string]bool)
	listening.Go(func() {
		for m, err := range messages {
			if err != nil {
				return // the tab is closed
			}
			if m.Source == "network" && m.Type == chromedp.ConsoleError {
				continue // a server that a test has taken down
			}
			if what := fmt.Sprintf("%s %s (%s:%d)", m.Type, m.Text, m.URL, m.Line+1); !said[what] {
				said[what] = true
				t.Errorf("the console says: %s", what)
			}
		}
	})
	b := &tab{t, ctx, sync.OnceFunc(func() {
		cancel()
		listening.Wait()
	})}
	t.Cleanup(b.close)
	b.look(l)
	b.do(chromedp.Navigate(url), chromedp.WaitReady("#rows tr[data-level]"))
	return b
}

func (b *tab) look(l look) {
	b.t.Helper()
	scheme := "light"
	if l.dark {
		scheme = "dark"
	}
	var options []chromedp.EmulateViewportOption
	if l.phone {
		options = append(options, chromedp.EmulateMobile, chromedp.EmulateTouch, chromedp.EmulateScale(2))
	}
	b.do(chromedp.EmulateViewport(l.width, l.height, options...), chromedp.Func(func(ctx context.Context, t *chromedp.Target) error {
		_, err := cdp.Call(ctx, t, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{
			Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: scheme}},
		})
		return err
	}))
}

func (b *tab) do(steps ...chromedp.Action[chromedp.Void]) {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(b.ctx, patience)
	defer cancel()
	if err := chromedp.Do(ctx, steps...); err != nil {
		b.t.Fatal(err)
	}
}

// eval evaluates an expression in the page.
func eval[T any](b *tab, expression string) T {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(b.ctx, patience)
	defer cancel()
	v, err := chromedp.Run(ctx, chromedp.Evaluate[T](expression))
	if err != nil {
		b.t.Fatalf("%s: %v", expression, err)
	}
	return v
}

// until waits for a condition in the page.
func (b *tab) until(condition string) {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(b.ctx, patience)
	defer cancel()
	_, err := chromedp.Run(ctx, chromedp.Poll[bool]("!!("+condition+")", chromedp.WithPollingInterval(20*time.Millisecond), chromedp.WithPollingTimeout(patience)))
	if err != nil {
		b.t.Fatalf("not even after a long time: %s: %v; the page says\n%s", condition, err, eval[string](b, "document.body.innerText"))
	}
}

// click clicks on the first element that a CSS selector finds, where it is seen: what lies
// above it gets the click, as it would from a person.
func (b *tab) click(selector string) {
	b.t.Helper()
	hit := eval[bool](b, fmt.Sprintf(`(() => {
		const e = document.querySelector(%q);
		e.scrollIntoView({ block: 'nearest', inline: 'nearest' });
		const r = e.getBoundingClientRect();
		const hit = document.elementFromPoint(r.x + r.width / 2, r.y + r.height / 2);
		hit.closest('[tabindex], button')?.focus();
		hit.dispatchEvent(new MouseEvent('click', { bubbles: true, cancelable: true }));
		return e.contains(hit);
	})()`, selector))
	if !hit {
		b.t.Fatalf("something lies above %s", selector)
	}
}

// text is what stands in the first element that a CSS selector finds.
func (b *tab) text(selector string) string {
	b.t.Helper()
	return eval[string](b, fmt.Sprintf("document.querySelector(%q)?.textContent ?? '(nothing)'", selector))
}

func (b *tab) names() string {
	b.t.Helper()
	return eval[string](b, `[...document.querySelectorAll('#rows tr[data-level] .c-id b')].map(e => e.textContent).join(' ')`)
}

// screenshots is where screenshots go; it is made when the first one is taken.
var screenshots = sync.OnceValues(func() (string, error) {
	if dir := os.Getenv("PLIMSOLL_SCREENSHOTS"); dir != "" {
		return dir, os.MkdirAll(dir, 0o755)
	}
	return os.MkdirTemp("", "plimsoll-screenshots-")
})

// screenshot takes a picture of what the tab shows, for a person to look at.
func (b *tab) screenshot(name string) {
	b.t.Helper()
	dir, err := screenshots()
	if err != nil {
		b.t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(b.ctx, patience)
	defer cancel()
	png, err := chromedp.Run(ctx, chromedp.CaptureScreenshot())
	if err != nil {
		b.t.Fatal(err)
	}
	if !strings.HasPrefix(string(png), "\x89PNG") || len(png) < 5000 {
		b.t.Errorf("the screenshot %s is %d bytes of something else", name, len(png))
	}
	path := filepath.Join(dir, name+".png")
	if err := os.WriteFile(path, png, 0o644); err != nil {
		b.t.Fatal(err)
	}
	b.t.Log(path)
}
