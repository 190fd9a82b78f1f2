// Package loadhttp shows what a table and a picker know, to a person who has to
// see within seconds which worker is slow, which report is stale, and why the
// picker does what it does.
//
//	page := loadhttp.New(table, loadhttp.Config{})
//	defer page.Close()
//	picker := selector.New(table, selector.Config{Explain: page.Explain})
//	admin.Handle("/load/", page)
//
// # What it serves
//
// [Handler] looks at the last element of the path alone, so it can be mounted under
// any prefix, stripped or not:
//
//	/             the page
//	status.json   a Status; ?worker=ID has one worker only, ?history=1 the history too
//	stream        server-sent events, for the page; their form may change with it
//	*.css, *.js   what the page is made of
//
// The page needs nothing from elsewhere, and a Content-Security-Policy holds it to
// that. It is read-only: only GET and HEAD are answered.
//
// # Keep it inside
//
// It shows the names of workers, errors of engines and how much traffic there is, to
// anybody who can reach it. Mount it on an address that only operators reach, or
// behind the host's own authentication; not next to what clients call.
//
// # What it costs
//
// A Handler has one goroutine, until Close. Once an interval it takes a sample of
// the current view, for the history and the events: the minutes before somebody
// looked are what he came for. That is four bytes per worker and sample. All else
// is done only while somebody looks, and once an interval however many do: viewers
// share the bytes, compressed too. A viewer who cannot keep up misses intervals.
//
// # Concurrency
//
// Everything is safe for concurrent use. [Handler.Explain] is called within a pick
// and waits for nothing but a mutex that is held for the copy of a pointer.
//
// # What it does not do
//
// It changes nothing, keeps nothing over a restart, and raises no alarm: what has to
// be known tomorrow, or wake somebody, belongs in a monitoring system. See package
// loadprom.
package loadhttp
