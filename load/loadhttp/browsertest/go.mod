module github.com/plimsoll-go/plimsoll/load/loadhttp/browsertest

go 1.26.0

replace github.com/plimsoll-go/plimsoll => ../../../

require (
	github.com/chromedp/cdproto v0.160.2
	github.com/chromedp/chromedp v0.23.1
	github.com/plimsoll-go/plimsoll v0.0.0-00010101000000-000000000000
)

require (
	github.com/go-json-experiment/json v0.0.0-20260213210345-44df1a37e875 // indirect
	github.com/philhofer/fwd v1.2.0 // indirect
	github.com/tinylib/msgp v1.6.5 // indirect
)
