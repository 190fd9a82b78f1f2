//go:build !linux

package zmqsub

func openBus(c Config) (bus, error) { return openZMQ(c) }

func descriptorsPerSocket(*Config) int { return 2 }
