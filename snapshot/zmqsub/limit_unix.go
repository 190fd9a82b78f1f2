//go:build unix

package zmqsub

import (
	"fmt"
	"syscall"
)

// ownDescriptors is how many a Subscriber and the rest of a small program take
// besides those of the subscriptions.
const ownDescriptors = 32

// checkDescriptors says that the process cannot have as many subscriptions as it
// was configured for, before the first one that fails does.
func (c *Config) checkDescriptors() error {
	var limit syscall.Rlimit
	if c.MaxSockets == 0 || syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit) != nil {
		return nil
	}
	if need := c.MaxSockets*descriptorsPerSocket(c) + ownDescriptors; uint64(need) > uint64(limit.Cur) {
		return fmt.Errorf("%w: %d subscriptions (Config.MaxSockets) need %d descriptors, and the process may have %d (ulimit -n)", ErrLimit, c.MaxSockets, need, limit.Cur)
	}
	return nil
}
