module github.com/plimsoll-go/plimsoll/bench

go 1.26.0

replace github.com/plimsoll-go/plimsoll => ../

require (
	github.com/go-zeromq/zmq4 v0.17.0
	github.com/pebbe/zmq4 v1.4.0
	github.com/plimsoll-go/plimsoll v0.0.0-00010101000000-000000000000
)

require (
	github.com/go-zeromq/goczmq/v4 v4.2.2 // indirect
	github.com/philhofer/fwd v1.2.0 // indirect
	github.com/tinylib/msgp v1.6.5 // indirect
	golang.org/x/sync v0.7.0 // indirect
	golang.org/x/text v0.15.0 // indirect
)
