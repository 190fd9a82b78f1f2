package loadhttp

import (
	"io/fs"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"testing"
)

func TestItIsServedUnderAnyPrefix(t *testing.T) {
	h, _ := newTest(t, Config{})
	mux := http.NewServeMux()
	mux.Handle("/load/", h)
	mux.Handle("/debug/load/", http.StripPrefix("/debug/load", h))
	for _, prefix := range []string{"/load", "/debug/load"} {
		for path, want := range map[string]string{
			"/":            "text/html; charset=utf-8",
			"/page.css":    "text/css; charset=utf-8",
			"/page.js":     "text/javascript; charset=utf-8",
			"/status.json": "application/json",
		} {
			w := get(mux, prefix+path)
			if w.Code != http.StatusOK || w.Header().Get("Content-Type") != want || w.Body.Len() == 0 {
				t.Errorf("%s%s: %d, %s, %d bytes", prefix, path, w.Code, w.Header().Get("Content-Type"), w.Body.Len())
			}
		}
		for _, path := range []string{"/page.html", "/none", "/status", "/page"} {
			if w := get(mux, prefix+path); w.Code != http.StatusNotFound {
				t.Errorf("%s%s: %d, want 404", prefix, path, w.Code)
			}
		}
	}
}

func TestAStrippedPrefixWithoutASlashLeadsToTheFolder(t *testing.T) {
	h, _ := newTest(t, Config{})
	for target, want := range map[string]string{
		"/ops/load":           "load/",
		"/ops/load?x=1":       "load/",
		"//evil.example/load": "load/", // never a host
		"//evil.example":      "evil.example/",
	} {
		r := httptest.NewRequest(http.MethodGet, "/ops/load", nil)
		r.RequestURI, r.URL.Path = target, ""
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		if w.Code != http.StatusMovedPermanently || w.Header().Get("Location") != want {
			t.Errorf("%s: %d to %q, want %q", target, w.Code, w.Header().Get("Location"), want)
		}
	}
}

func TestItIsReadOnly(t *testing.T) {
	h, _ := newTest(t, Config{})
	for _, method := range []string{http.MethodPost, http.MethodPut, http.MethodDelete, http.MethodPatch, http.MethodOptions, "BREW"} {
		for _, path := range []string{"/", "/status.json", "/stream", "/none"} {
			w := httptest.NewRecorder()
			h.ServeHTTP(w, httptest.NewRequest(method, path, nil))
			if w.Code != http.StatusMethodNotAllowed || w.Header().Get("Allow") != "GET, HEAD" {
				t.Errorf("%s %s: %d", method, path, w.Code)
			}
		}
	}
	server := httptest.NewServer(h)
	defer server.Close()
	for _, path := range []string{"/", "/page.css", "/status.json", "/stream"} {
		resp, err := server.Client().Head(server.URL + path)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		if resp.StatusCode != http.StatusOK {
			t.Errorf("HEAD %s: %d", path, resp.StatusCode)
		}
	}
}

func TestEveryAnswerIsHeldToWhatItIsMadeOf(t *testing.T) {
	h, _ := newTest(t, Config{})
	for _, path := range []string{"/", "/page.js", "/status.json", "/none"} {
		header := get(h, path).Header()
		csp := header.Get("Content-Security-Policy")
		for _, want := range []string{"default-src 'none'", "script-src 'self'", "style-src 'self'", "frame-ancestors 'none'", "base-uri 'none'", "form-action 'none'"} {
			if !strings.Contains(csp, want) {
				t.Errorf("%s: the policy lacks %s: %s", path, want, csp)
			}
		}
		if strings.Contains(csp, "unsafe") || strings.Contains(csp, "http") {
			t.Errorf("%s: the policy lets in too much: %s", path, csp)
		}
		if header.Get("X-Content-Type-Options") != "nosniff" || header.Get("Referrer-Policy") != "no-referrer" || header.Get("Access-Control-Allow-Origin") != "" {
			t.Errorf("%s: %v", path, header)
		}
	}
	for path, want := range map[string]string{"/status.json": "no-store", "/": "no-cache", "/page.js": "no-cache"} {
		if got := get(h, path).Header().Get("Cache-Control"); got != want {
			t.Errorf("%s: Cache-Control is %q, want %q", path, got, want)
		}
	}
}

func TestWhatHasNotChangedIsNotSentAgain(t *testing.T) {
	h, _ := newTest(t, Config{})
	for _, path := range []string{"/", "/page.js", "/page.css"} {
		etag := get(h, path).Header().Get("ETag")
		if w := get(h, path, "If-None-Match", etag); etag == "" || w.Code != http.StatusNotModified || w.Body.Len() != 0 {
			t.Errorf("%s with its ETag %s: %d and %d bytes", path, etag, w.Code, w.Body.Len())
		}
	}
}

// The policy would stop it, and the page would be broken; better to know now.
func TestThePageNeedsNothingInlineAndNothingFromElsewhere(t *testing.T) {
	err := fs.WalkDir(page, "page", func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		b, err := fs.ReadFile(page, path)
		if err != nil {
			return err
		}
		text := strings.ReplaceAll(string(b), "http://www.w3.org/2000/svg", "") // a name, not an address
		for what, pattern := range map[string]string{
			"an address":            `(?i)(src|href|url|import|from|fetch)\W{0,3}(https?:)?//\w`,
			"an inline script":      `(?i)<script(?:\s+[^>]*)?>[^<]|\son\w+="`,
			"an inline style":       `(?i)<style|\sstyle="|setAttribute\('style'`,
			"text taken for markup": `innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\(|new Function|srcdoc|DOMParser`,
			"something kept":        `localStorage|sessionStorage|document\.cookie|indexedDB`,
		} {
			if m := regexp.MustCompile(pattern).FindString(text); m != "" {
				t.Errorf("%s has %s: %q", path, what, m)
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	html, _ := fs.ReadFile(page, "page/page.html")
	for _, m := range regexp.MustCompile(`(?:src|href)="([^"]+)"`).FindAllSubmatch(html, -1) {
		target := string(m[1])
		if target == "data:," || target == "status.json" {
			continue
		}
		if _, ok := assets[target]; !ok {
			t.Errorf("the page refers to %s, which is not there", target)
		}
	}
	for name, a := range assets {
		for _, m := range regexp.MustCompile(`from '\./([^']+)'`).FindAllSubmatch(a.body, -1) {
			if _, ok := assets[string(m[1])]; !ok {
				t.Errorf("%s imports %s, which is not there", name, m[1])
			}
		}
	}
}

func TestOneWorkerCanBeAskedFor(t *testing.T) {
	h, table := newTest(t, Config{})
	const odd = "http://[fe80::1%25eth0]:1/?a=b&c=d#e"
	worker(t, table, "a", 1, 2)
	worker(t, table, odd, 3, 4)
	h.sample()
	s := status(t, h, "?history=1&worker=http%3A%2F%2F%5Bfe80%3A%3A1%2525eth0%5D%3A1%2F%3Fa%3Db%26c%3Dd%23e")
	if len(s.Workers) != 1 || s.Workers[0].ID != odd || len(s.Workers[0].History) == 0 || s.Fleet.Workers != 2 {
		t.Errorf("answers %+v", s)
	}
	if s = status(t, h, ""); len(s.Workers) != 2 || s.Workers[0].History != nil {
		t.Errorf("all are %+v, want two without a history", s.Workers)
	}
	w := get(h, "/status.json?worker=b")
	if w.Code != http.StatusNotFound || !strings.Contains(w.Body.String(), `"workers":[]`) {
		t.Errorf("for a worker that is not there: %d %s", w.Code, w.Body)
	}
}

func TestNamesAreOnlyEverData(t *testing.T) {
	h, table := newTest(t, Config{Title: "</title><script>alert(0)</script>"})
	names := []string{
		"</script><script>alert(1)</script>", "<img src=x onerror=alert(2)>", "a\n\ndata: {}\n\n", "\r\nevent: x\r\n", "\u2028\u2029",
		`"; alert(3); "`, "\x00\x7f", "bad \xff utf8", strings.Repeat("x", 10000), "",
	}
	for _, name := range names {
		w, _ := worker(t, table, name, 1, 0)
		w.SetNotPublishing("because of " + name)
	}
	h.sample()
	for _, path := range []string{"/status.json", "/stream"} {
		var body string
		if path == "/stream" {
			p, _, _ := h.next(0)
			body = string(p.plain)
		} else {
			body = get(h, path).Body.String()
		}
		if strings.ContainsAny(body, "<>\u2028\u2029\x00") {
			t.Errorf("%s has something that is not escaped", path)
		}
		if n := strings.Count(strings.TrimRight(body, "\n"), "\n") + strings.Count(body, "\r"); n != 0 {
			t.Errorf("%s has %d line breaks", path, n)
		}
	}
	if s := status(t, h, ""); len(s.Workers) != len(names) {
		t.Errorf("of %d workers %d are shown", len(names), len(s.Workers))
	}
	if strings.Contains(get(h, "/").Body.String(), "alert(") {
		t.Error("the page has a name in it")
	}
}

func TestATableWithoutWorkers(t *testing.T) {
	h, _ := newTest(t, Config{})
	s := status(t, h, "?history=1")
	if s.Workers == nil || s.Picks == nil || s.Events == nil || s.Fleet.States == nil || s.Level != Bad || s.Headline != "There are no workers: nothing can be picked." {
		t.Errorf("it is %+v", s)
	}
}
