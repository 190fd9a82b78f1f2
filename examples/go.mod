module github.com/plimsoll-go/plimsoll/examples

go 1.26.0

replace github.com/plimsoll-go/plimsoll => ../

require (
	github.com/pebbe/zmq4 v1.4.0
	github.com/plimsoll-go/plimsoll v0.0.0-00010101000000-000000000000
	github.com/tinylib/msgp v1.6.5
	go.uber.org/goleak v1.3.0
	gonum.org/v1/gonum v0.17.0
)

require github.com/philhofer/fwd v1.2.0 // indirect
