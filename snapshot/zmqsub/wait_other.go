//go:build cgo && !linux

package zmqsub

func newWaiter() (zmqWaiter, error) { return newTicking(), nil }
