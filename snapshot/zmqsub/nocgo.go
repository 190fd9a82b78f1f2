//go:build !cgo

package zmqsub

func openBus(Config) (bus, error) { return nil, ErrNoCgo }
