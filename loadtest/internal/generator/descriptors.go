package generator

import (
	"fmt"
	"math"
	"syscall"
)

// spareDescriptors is what a process needs beside its sockets.
const spareDescriptors = 128

// raiseDescriptors lets this process have as many descriptors as it may. Where
// it can't, [Fits] says so.
func raiseDescriptors() {
	var limit syscall.Rlimit
	if syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit) == nil && limit.Cur < limit.Max {
		limit.Cur = limit.Max
		_ = syscall.Setrlimit(syscall.RLIMIT_NOFILE, &limit)
	}
}

// Fits says whether sockets of processes fit the limit on descriptors, which
// every process has to itself.
func Fits(sockets, processes int) error {
	var limit syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil {
		return fmt.Errorf("limit on descriptors: %w", err)
	}
	room := int(min(limit.Max, math.MaxInt32)) - spareDescriptors
	if each := (sockets + processes - 1) / processes; each > room {
		return fmt.Errorf("%d sockets in each of %d generator processes: the limit on descriptors leaves room for %d; use --generators %d, or raise it (ulimit -Hn)",
			each, processes, room, (sockets+room-1)/room)
	}
	return nil
}
