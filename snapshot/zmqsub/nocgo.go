//go:build !cgo

package zmqsub

func openZMQ(Config) (bus, error) { return nil, ErrNoCgo }
