package zmqsub

// ours reports whether the connections are our own, and not libzmq's.
func (c *Config) ours() bool { return !c.Libzmq && c.Curve == nil }

func openBus(c Config) (bus, error) {
	if c.ours() {
		return openNative(c)
	}
	return openZMQ(c)
}

func descriptorsPerSocket(c *Config) int {
	if c.ours() {
		return 1
	}
	return 2
}
