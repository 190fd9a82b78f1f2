module github.com/plimsoll-go/plimsoll/examples/extproc

go 1.26.0

replace (
	github.com/plimsoll-go/plimsoll => ../../
	github.com/plimsoll-go/plimsoll/examples => ../
)

require (
	github.com/envoyproxy/go-control-plane/envoy v1.40.0
	github.com/plimsoll-go/plimsoll v0.0.0-00010101000000-000000000000
	github.com/plimsoll-go/plimsoll/examples v0.0.0-00010101000000-000000000000
	go.uber.org/goleak v1.3.0
	google.golang.org/grpc v1.84.0
	google.golang.org/protobuf v1.36.12
)

require (
	github.com/cncf/xds/go v0.0.0-20260202195803-dba9d589def2 // indirect
	github.com/envoyproxy/protoc-gen-validate v1.3.3 // indirect
	github.com/pebbe/zmq4 v1.4.0 // indirect
	github.com/philhofer/fwd v1.2.0 // indirect
	github.com/planetscale/vtprotobuf v0.6.1-0.20240319094008-0393e58bdf10 // indirect
	github.com/tinylib/msgp v1.6.5 // indirect
	golang.org/x/net v0.58.0 // indirect
	golang.org/x/sys v0.48.0 // indirect
	golang.org/x/text v0.42.0 // indirect
	google.golang.org/genproto/googleapis/rpc v0.0.0-20260720211330-0afa2a65878a // indirect
)
