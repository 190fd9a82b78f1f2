module github.com/plimsoll-go/plimsoll

go 1.26.0

require (
	github.com/pebbe/zmq4 v1.4.0
	github.com/tinylib/msgp v1.6.5
	golang.org/x/sync v0.25.0
)

require go.uber.org/goleak v1.3.0 // indirect
