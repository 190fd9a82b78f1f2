package browsertest

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"

	"github.com/plimsoll-go/plimsoll/load"
	"github.com/plimsoll-go/plimsoll/selector"
)

func TestItShowsTheFleetWorstFirst(t *testing.T) {
	w := newWorld(t, 40, 1)
	w.trouble()
	b := open(t, w.server.URL+"/", desktop)
	b.until(`document.querySelector('#rows tr[data-level]').textContent.includes('stale')`)

	headline := b.text("#headline")
	for _, want := range []string{"4 of 40 workers", "1 stale (10.0.0.15:30000)", "1 never heard (10.0.0.18:30000)", "1 out of rotation (10.0.0.28:30000)", "3 trusted and worth a look"} {
		if !strings.Contains(headline, want) {
			t.Errorf("the headline is %q, and lacks %q", headline, want)
		}
	}
	if got := b.text("#t-trusted"); got != "36 / 40" {
		t.Errorf("trusted are %q", got)
	}
	names := b.names()
	if !strings.HasPrefix(names, "10.0.0.15:30000 10.0.0.18:30000 10.0.0.28:30000 10.0.0.17:30000 ") {
		t.Errorf("the order is %s", names)
	}
	// The next three are those that are worth a look, in the order of their depth.
	look := strings.Join(strings.Fields(names)[4:7], " ")
	for _, want := range []string{"10.0.0.20:30000", "10.0.0.23:30000", "10.0.0.26:30000"} {
		if !strings.Contains(look, want) {
			t.Errorf("worth a look are %s, which lacks %s", look, want)
		}
	}
	if got := eval[string](b, "document.title"); got != "(4) gateway-2 (eu-west)" {
		t.Errorf("the title is %q", got)
	}
	if got := b.text("#rows tr[data-level] .c-age"); !strings.HasSuffix(got, " s") {
		t.Errorf("the age of the stale worker is %q", got)
	}

	b.until(`document.querySelectorAll('#pick .cand').length > 1 && document.querySelector('#pick .won .bar i.c2') && document.querySelector('#picklist li')`)
	b.until(event("10.0.0.15:30000 became untrusted: stale: rank 0"))
	b.until(`document.querySelector('#learned').textContent.includes('mean time to first token')`)

	other := eval[string](b, `performance.getEntriesByType('resource').map(e => e.name).filter(n => !n.startsWith(location.origin)).join(' ')`)
	if other != "" {
		t.Errorf("it has asked for %s", other)
	}
}

// event is that an event is listed, wherever: others may have happened since.
func event(text string) string {
	return fmt.Sprintf(`[...document.querySelectorAll('#events li')].some(e => e.textContent.includes(%q))`, text)
}

func TestItUpdatesByItself(t *testing.T) {
	w := newWorld(t, 3, 2)
	b := open(t, w.server.URL+"/", desktop)
	b.until(`document.querySelector('#headline').textContent === 'All 3 workers are trusted.'`)
	row := func(id string) string {
		return fmt.Sprintf(`[...document.querySelectorAll('#rows tr[data-level]')].find(tr => tr.worker === %q)`, id)
	}
	first := w.engines[0].w.ID()
	const asked = `performance.getEntriesByType('resource').filter(e => !e.name.endsWith('/stream')).length`
	fetched := eval[int](b, asked)

	w.change(func() { w.engines[0].level, w.engines[0].waiting = 400, 0.5 })
	b.until(row(first) + `.querySelector('.c-depth').textContent.match(/^\d\d\d \+ \d\d\d/)`)
	b.until(`document.querySelector('#headline').textContent.includes('(10.0.0.11:30000: deep)') && ` + row(first) + `.dataset.level === 'warn'`)

	w.change(func() { w.engines[0].silent = 1 })
	b.until(row(first) + `.dataset.level === 'bad' && ` + row(first) + `.textContent.includes('stale: rank 1 (')`)
	b.until(row(first) + `.querySelectorAll('.ranks i.old').length === 1 && ` + row(first) + `.querySelector('.c-depth.past')`)
	b.until(event("10.0.0.11:30000 became untrusted: stale: rank 1"))
	b.until(row(first) + `.querySelector('.gap').getAttribute('d').length > 20`)

	w.change(func() { w.engines[0].silent = 0 })
	b.until(event("10.0.0.11:30000 trusted again, was stale for"))

	w.change(func() { w.table.Add("new", ""); w.table.Remove(w.engines[2].w) })
	b.until(row("new") + ` && !` + row(w.engines[2].w.ID()))
	if now := eval[int](b, asked); now != fetched {
		t.Errorf("%d requests were made on top of the stream", now-fetched)
	}
}

// The ranks of a group that is driven from here need not report: what is in flight there
// is its depth.
func TestAGroupThatIsOursAloneIsNeverStale(t *testing.T) {
	w := newWorld(t, 3, 1)
	w.change(func() {
		conn, err := load.NewConnector(w.table.Add("group-0", ""), load.ConnectorConfig{Ranks: 2})
		if err != nil {
			t.Fatal(err)
		}
		for i := range 7 {
			r, err := conn.Reserve(fmt.Sprint("request-", i), 100)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { r.Done() })
		}
	})
	b := open(t, w.server.URL+"/#q=group&worker=group-0", desktop)
	b.until(`document.querySelectorAll('#rows tr[data-level=ok] .ranks i').length === 2`)
	b.until(`document.querySelector('#rows .c-depth').textContent >= 7 && document.querySelector('#rows .c-depth').textContent === document.querySelector('#rows .c-flight span').textContent`)
	if n := eval[int](b, `document.querySelectorAll('#rows .old, #rows .past, #rows .hot, #rows .warm').length`); n != 0 {
		t.Errorf("%d things are marked as if they were stale", n)
	}
	b.until(`document.querySelector('#detail').textContent.includes('all its requests are ours')`)
}

func TestItFiltersAndSorts(t *testing.T) {
	w := newWorld(t, 40, 1)
	w.trouble()
	b := open(t, w.server.URL+"/", desktop)
	b.until(`document.querySelector('#rows tr[data-level]').textContent.includes('stale')`)
	count := func(n int) {
		t.Helper()
		b.until(fmt.Sprintf(`document.querySelectorAll('#rows tr[data-level]').length === %d`, n))
	}

	// By text, with the field in focus by a key. The driver would type that key as well.
	eval[any](b, `document.body.dispatchEvent(new KeyboardEvent('keydown', { key: '/', bubbles: true }))`)
	b.do(chromedp.KeyEvent("0.15:"))
	count(1)
	if got := b.names(); got != "10.0.0.15:30000" {
		t.Errorf("found is %s", got)
	}
	b.do(chromedp.KeyEvent(kb.Escape), chromedp.SendKeys("#filter", "STALE 10.0"))
	count(1)
	b.do(chromedp.SendKeys("#filter", " nothing"))
	b.until(`!document.querySelector('#none').hidden`)
	b.click("#none button")
	b.until(`document.querySelectorAll('#rows tr[data-level]').length > 20`)

	b.click(`#chips [data-state="attention"]`) // by state
	count(3)
	if got := eval[string](b, "location.hash"); got != "#state=attention" {
		t.Errorf("the address says %q", got)
	}
	b.do(chromedp.Reload(), chromedp.WaitReady("#rows tr[data-level]"))
	count(3)
	b.click(`#chips [data-state=""]`)

	for _, column := range []string{"c-depth", "c-history", "c-kv", "c-age", "c-flight", "c-share", "c-speed"} {
		b.click("th." + column + " button")
		b.until(fmt.Sprintf(`document.querySelector('th.%s').getAttribute('aria-sort') === 'descending'`, column))
		b.click("th." + column + " button")
		b.until(fmt.Sprintf(`document.querySelector('th.%s').getAttribute('aria-sort') === 'ascending'`, column))
	}
	b.click("th.c-depth button")
	b.until(`document.querySelector('#rows tr[data-level] .c-id b').textContent === '10.0.0.20:30000'`)
	b.click("th.c-speed button") // the slowest first
	b.until(`document.querySelector('#rows tr[data-level] .c-id b').textContent === '10.0.0.26:30000'`)
	b.click("th.c-age button")
	b.until(`document.querySelector('#rows tr[data-level] .c-id b').textContent === '10.0.0.15:30000'`)
	eval[any](b, `{ const s = document.querySelector('#sort'); s.value = 'name'; s.dispatchEvent(new Event('change')); } 0`)
	b.until(`document.querySelector('#rows tr[data-level] .c-id b').textContent === '10.0.0.11:30000'`)
	b.click("th.c-id button")
	b.until(`location.hash === ''`)
}

func TestAPickCanBeLookedAt(t *testing.T) {
	w := newWorld(t, 20, 1)
	b := open(t, w.server.URL+"/", desktop)
	b.until(`document.querySelectorAll('#picklist li').length > 5`)
	w.stop() // or the pick that is looked at would be pushed out of the list
	eval[any](b, `window.third = document.querySelectorAll('#picklist button')[2], third.click()`)
	b.until(`third.getAttribute('aria-pressed') === 'true' && document.querySelector('#pick .follow') && document.querySelector('#pick b').textContent === third.children[1].textContent`)
	w.stepUntilTold()
	b.until(`document.querySelectorAll('#picklist button')[2] !== third && third.getAttribute('aria-pressed') === 'true'`) // there are newer ones
	b.click("#pick .follow")
	b.until(`!document.querySelector('#pick .follow') && document.querySelector('#picklist button').getAttribute('aria-pressed') === 'true'`)

	// Where nothing can be picked it says so.
	w.change(func() {
		for _, e := range w.engines {
			e.w.SetHealthy(false)
		}
	})
	w.stepUntilTold()
	b.until(`document.querySelector('#pick .why').textContent.startsWith('nothing picked: ') && document.querySelector('#headline').textContent.startsWith('20 of 20 workers: 20 out of rotation')`)
}

func TestOneWorkerCanBeLookedAt(t *testing.T) {
	w := newWorld(t, 20, 8)
	w.trouble()
	b := open(t, w.server.URL+"/", desktop)
	b.until(`document.querySelector('#rows tr[data-level]').textContent.includes('stale')`)
	b.click("#rows tr[data-level]")
	b.until(`!document.querySelector('#detail').hidden && document.querySelectorAll('#detail tbody tr').length === 8`)
	for _, want := range []string{"http://10.0.0.15:30000", "stale: rank 7 (", "Is the process alive", "Ranks (8 advertised)"} {
		if got := b.text("#detail"); !strings.Contains(got, want) {
			t.Errorf("it says %q, and lacks %q", got, want)
		}
	}
	b.do(chromedp.KeyEvent(kb.Escape))
	b.until(`document.querySelector('#detail').hidden && document.activeElement.worker === 'http://10.0.0.15:30000'`)

	// An event leads to its worker, and what is said of eight ranks is said once.
	b.until(`[...document.querySelectorAll('#events button')].some(e => e.textContent === '10.0.0.18:30000')`)
	eval[any](b, `[...document.querySelectorAll('#events button')].find(e => e.textContent === '10.0.0.18:30000').click()`)
	b.until(`document.querySelector('#d-id')?.textContent === 'http://10.0.0.18:30000'`)
	for _, want := range []string{"snapshot: <b>running</b> is -3", "rank 7: 1 messages dropped, decode"} {
		b.until(fmt.Sprintf(`document.querySelector('#detail').textContent.includes(%q)`, want))
	}
	b.until(`document.querySelector('#detail').textContent.match(/rank (\d, )+\d: always 0 or unknown: .*max_running/)`)
	b.click("#detail .close")
	b.until(`document.querySelector('#detail').hidden`)

	w.change(func() { w.table.Remove(w.engines[1].w) })
	b.do(chromedp.Navigate(w.server.URL + "/#worker=" + w.engines[1].w.ID()))
	b.until(`document.querySelector('#detail').textContent.includes('not in the table any more')`)
}

func TestAThousandWorkersStayUsable(t *testing.T) {
	w := newWorld(t, 1000, 1)
	w.trouble()
	b := open(t, w.server.URL+"/", desktop)
	b.until(`document.querySelector('#shown').textContent === '1,000 workers' && document.querySelector('#rows tr[data-level]').textContent.includes('stale')`)
	if n := eval[int](b, "document.querySelectorAll('#rows tr').length"); n > 50 {
		t.Errorf("of 1,000 workers there are %d rows", n)
	}

	if height := eval[float64](b, "document.querySelector('#rows tr[data-level]').getBoundingClientRect().height"); height != 38 {
		t.Errorf("a row is %v pixels high; those that are not there count as 38", height)
	}

	// With each update texts and sizes change, and no element comes or goes in the table.
	eval[any](b, `{
		window.moved = 0;
		window.from = document.querySelector('#link').textContent;
		new MutationObserver(list => {
			for (const m of list) for (const n of [...m.addedNodes, ...m.removedNodes]) if (n.nodeType === 1) moved++;
		}).observe(document.querySelector('#rows'), { childList: true, subtree: true });
	} 0`)
	b.until(`document.querySelector('#link').textContent !== from && document.querySelector('#link').dataset.link === 'live'`)
	if n := eval[int](b, "moved"); n > 10 {
		t.Errorf("a second or so of updates has moved %d elements", n)
	}

	// The last of them is there when it is scrolled to, and nothing else is.
	b.click("th.c-id button") // the worst last
	eval[any](b, `scrollTo(0, document.body.scrollHeight)`)
	b.until(`[...document.querySelectorAll('#rows tr[data-level]')].at(-1).worker === 'http://10.0.0.15:30000'`)
	if n := eval[int](b, "document.querySelectorAll('#rows tr').length"); n > 50 {
		t.Errorf("at the end there are %d rows", n)
	}
	bottom := eval[float64](b, `[...document.querySelectorAll('#rows tr[data-level]')].at(-1).getBoundingClientRect().bottom`)
	if bottom > 900 {
		t.Errorf("the last row ends %v pixels down a window of 900", bottom)
	}
	b.do(chromedp.SendKeys("#filter", "10.0.4.17"))
	b.until(`document.querySelector('#shown').textContent.startsWith('11 of 1,000 workers')`)
}

func TestRowsDoNotRunAwayFromWhoPointsAtThem(t *testing.T) {
	w := newWorld(t, 40, 1)
	b := open(t, w.server.URL+"/#sort=depth", desktop)
	b.until(`document.querySelector('#rows tr[data-level] .c-id b').textContent === '10.0.0.20:30000'`)
	point := `document.querySelector('#rows').dispatchEvent(new PointerEvent('pointermove', { bubbles: true }))`
	// Before anything is drawn, and so however long the page has been kept waiting.
	eval[any](b, `(function again() { `+point+`; window.pointing = requestAnimationFrame(again); })()`)
	w.change(func() { w.engines[9].level, w.engines[0].level = 5, 90 })
	// Its depth falls below that of others, and it stays where it is.
	b.until(`document.querySelector('#shown').textContent.endsWith('order held') && parseInt(document.querySelector('#rows tr[data-level] .c-depth').textContent) < 5`)
	if got := b.text("#rows tr[data-level] .c-id b"); got != "10.0.0.20:30000" {
		t.Errorf("first is %s", got)
	}
	eval[any](b, `cancelAnimationFrame(pointing)`)
	b.until(`document.querySelector('#rows tr[data-level] .c-id b').textContent === '10.0.0.11:30000'`)
}

func TestItSaysWhenItIsDisconnectedAndComesBack(t *testing.T) {
	w := newWorld(t, 3, 1)
	b := open(t, w.server.URL+"/", desktop)
	b.until(`document.querySelector('#link').dataset.link === 'live' && document.querySelector('#lost').hidden`)
	// The button is tried while nothing else connects.
	eval[any](b, `window.later = setTimeout; window.setTimeout = (f, ...rest) => f.name === 'connect' ? 0 : later(f, ...rest); 0`)
	w.down.Store(true)
	w.server.CloseClientConnections()
	b.until(`document.querySelector('#link').dataset.link === 'lost' && document.querySelector('#lost').textContent.match(/Disconnected. What you see is of .* ago. Next try in \d/)`)
	b.screenshot("disconnected")
	w.down.Store(false)
	b.click("#lost button")
	b.until(`document.querySelector('#link').dataset.link === 'live' && document.querySelector('#lost').hidden && !document.body.classList.contains('lost')`)

	// By itself too, and then it is lost for a moment only.
	eval[any](b, `{
		window.setTimeout = later;
		window.states = [];
		const link = document.querySelector('#link');
		new MutationObserver(() => states.push(link.dataset.link)).observe(link, { attributeFilter: ['data-link'] });
	} 0`)
	w.server.CloseClientConnections()
	b.until(`states.includes('lost') && states.at(-1) === 'live'`)
}

func TestHostileNamesStayText(t *testing.T) {
	w := newWorld(t, 3, 1)
	w.change(func() {
		for _, name := range []string{
			`<img src=x onerror="pwned=1">`, `</td></tr></table><script>pwned=1</script>`, `"><svg/onload=pwned=1>`, "javascript:pwned=1", "__proto__", "constructor",
		} {
			bad := w.table.Add(name, "")
			bad.SetNotPublishing(name)
			_, _ = w.picker.Pick(selector.Request{Worker: bad})
		}
	})
	b := open(t, w.server.URL+"/", desktop)
	b.until(`document.querySelectorAll('#rows tr[data-level]').length === 9`)
	b.until(event(`<img src=x onerror="pwned=1">`)) // of its own, or among the first of those that were added together
	eval[any](b, `[...document.querySelectorAll('#rows tr[data-level]')].find(tr => tr.worker.startsWith('<img')).click()`)
	b.until(`document.querySelector('#d-id')?.textContent === '<img src=x onerror="pwned=1">' && document.querySelector('#detail').textContent.includes('Not publishing')`)
	if got := eval[int](b, `document.querySelectorAll('img, table script, #detail script, #rows svg svg').length`); got != 0 {
		t.Errorf("%d elements were made of names", got)
	}
	if eval[bool](b, `typeof pwned !== 'undefined'`) {
		t.Error("a name was run")
	}
	if _, ok := w.table.Worker("__proto__"); !ok || !strings.Contains(b.names(), "__proto__") {
		t.Error("a name that means something to a browser is not shown")
	}
}

func TestNamesOfWorkersFitAScreen(t *testing.T) {
	w := newWorld(t, 40, 2)
	for _, width := range []int64{1200, 1280, 1440, 1920} {
		b := open(t, w.server.URL+"/", look{width, 800, false, false})
		b.until(`document.querySelectorAll('#rows tr[data-level]').length > 10`)
		if cut := eval[string](b, `[...document.querySelectorAll('#rows .c-id b, #head .c-id')].filter(e => e.scrollWidth > e.clientWidth).map(e => e.textContent).join(' ')`); cut != "" {
			t.Errorf("%d wide: cut are %s", width, cut)
		}
		b.screenshot(fmt.Sprintf("%d-wide", width))
		b.close()
	}
}

func TestItFitsAPhoneAndTheDark(t *testing.T) {
	w := newWorld(t, 40, 1)
	w.trouble()
	for _, l := range []look{{390, 844, true, true}, {360, 640, false, true}, {820, 1180, true, true}} {
		b := open(t, w.server.URL+"/", l)
		b.until(`document.querySelector('#rows tr[data-level]').textContent.includes('stale')`)
		for _, part := range []string{"workers", "picks", "events", "learned"} {
			b.click(`#tabs [data-tab="` + part + `"]`)
			b.until(fmt.Sprintf(`getComputedStyle(document.querySelector('[data-part=%s]')).display !== 'none'`, part))
			if n := eval[int](b, `[...document.querySelectorAll('[data-part]')].filter(e => getComputedStyle(e).display !== 'none').length`); n != 1 {
				t.Errorf("%d wide: in the tab %s there are %d parts", l.width, part, n)
			}
			if wide := eval[int64](b, "document.documentElement.scrollWidth"); wide > l.width {
				t.Errorf("%d wide: the tab %s is %d wide", l.width, part, wide)
			}
		}
		b.click(`#tabs [data-tab="workers"]`)
		b.until(`document.querySelector('#rows tr[data-level]').checkVisibility()`)
		b.click("#rows tr[data-level]")
		b.until(`document.querySelector('#detail tbody tr')`)
		if left := eval[float64](b, "document.querySelector('#detail').getBoundingClientRect().left"); left < 0 || l.width < 500 && left > 0 {
			t.Errorf("%d wide: the worker begins at %v", l.width, left)
		}
		if dark := eval[bool](b, `getComputedStyle(document.body).backgroundColor.match(/\d+/g).every(c => c < 40)`); dark != l.dark {
			t.Errorf("dark is %v, wanted %v", dark, l.dark)
		}
		b.close()
	}
}

// Text has to be read at night, on a bad screen: WCAG asks for 4.5 to 1.
func TestTextStandsOutFromItsGround(t *testing.T) {
	w := newWorld(t, 40, 1)
	w.trouble()
	for _, dark := range []bool{false, true} {
		l := desktop
		l.dark = dark
		b := open(t, w.server.URL+"/", l)
		b.until(`document.querySelector('#rows tr[data-level]').textContent.includes('stale') && document.querySelector('#events li') && document.querySelector('#pick .cand')`)
		pale := eval[[]string](b, `(() => {
			const rgb = s => s.match(/[\d.]+/g).map(Number);
			const light = c => c.slice(0, 3).map(v => v / 255).map(v => v <= .03928 ? v / 12.92 : ((v + .055) / 1.055) ** 2.4).reduce((a, v, i) => a + v * [.2126, .7152, .0722][i], 0);
			const ground = e => { for (; e; e = e.parentElement) { const c = rgb(getComputedStyle(e).backgroundColor); if (c.length < 4 || c[3] > 0) return c; } return [255, 255, 255]; };
			const pale = [];
			for (const e of document.querySelectorAll('body *')) {
				if (![...e.childNodes].some(n => n.nodeType === 3 && n.data.trim()) || !e.checkVisibility() || e.closest('noscript')) continue;
				const [a, b] = [light(rgb(getComputedStyle(e).color)), light(ground(e))].sort((x, y) => y - x);
				const ratio = (a + .05) / (b + .05);
				if (ratio < 4.5) pale.push(e.tagName + '.' + e.className + ' "' + e.textContent.slice(0, 30) + '" ' + ratio.toFixed(2));
			}
			return pale;
		})()`)
		if len(pale) > 0 {
			t.Errorf("dark %v: too pale are\n  %s", dark, strings.Join(pale, "\n  "))
		}
		b.close()
	}
}

// It takes all of them only where somebody wants to look.
func TestScreenshots(t *testing.T) {
	all := os.Getenv("PLIMSOLL_SCREENSHOTS") != ""
	for _, fleet := range []struct{ workers, ranks int }{{3, 1}, {40, 1}, {24, 8}, {1000, 1}} {
		if !all && fleet.workers != 40 {
			continue
		}
		w := newWorld(t, fleet.workers, fleet.ranks)
		if fleet.workers >= 20 {
			w.trouble()
		}
		for _, view := range []struct {
			name, address string
			look
		}{
			{"light", "", desktop},
			{"dark-worker", "#worker=http://10.0.0.15:30000", look{1440, 900, true, false}},
			{"narrow", "", look{1024, 768, false, false}},
			{"phone-dark", "", look{390, 844, true, true}},
			{"phone-picks", "#tab=picks", look{390, 844, false, true}},
			{"phone-worker", "#worker=http://10.0.0.15:30000", look{390, 844, false, true}},
		} {
			if fleet.workers == 3 {
				view.address = strings.Replace(view.address, "0.15", "0.12", 1)
			}
			b := open(t, w.server.URL+"/"+view.address, view.look)
			if fleet.workers >= 20 {
				b.until(`document.querySelector('#headline').textContent.includes('stale') && document.querySelector('#pick .cand')`)
			}
			b.until(`[...document.querySelectorAll('#rows .line')].some(e => e.children[1].getAttribute('d').length > 250)`) // half of a history
			if strings.Contains(view.address, "worker") {
				b.until(`!document.querySelector('#detail').hidden`)
			}
			b.screenshot(fmt.Sprintf("%d-%s", fleet.workers, view.name))
			b.close()
		}
		w.stop()
		w.page.Close()
	}
}
