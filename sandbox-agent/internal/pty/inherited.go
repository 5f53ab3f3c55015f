package pty

import (
	"os"
	"os/signal"
	"strconv"
	"strings"
	"syscall"
)

// KeepDescriptors closes every descriptor of this process in the programs it
// starts. Go does so for those that it opens, but not for those that the agent
// inherited, say from a supervisor.
func KeepDescriptors() {
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		return // without /proc they can't be found
	}
	for _, entry := range entries {
		if fd, err := strconv.Atoi(entry.Name()); err == nil && fd > 2 {
			syscall.CloseOnExec(fd)
		}
	}
}

// HeedSignals gives terminals the usual signals even if the agent was started
// with some ignored, as by nohup. Programs inherit that and a shell can't undo
// it: Ctrl-C would be dead. A signal that the agent handles, here by dropping
// it, has its default action in programs it starts.
func HeedSignals() (stop func()) {
	dropped := make(chan os.Signal, 1) // never read: surplus signals are dropped
	ignored := ignoredSignals()
	for sig := syscall.Signal(1); sig < 32; sig++ {
		if ignored&(1<<(sig-1)) != 0 {
			signal.Notify(dropped, sig)
		}
	}
	return func() { signal.Stop(dropped) }
}

// ignoredSignals returns the signals that this process ignores, signal n at bit
// n−1. The standard library reports only SIGHUP and SIGINT.
func ignoredSignals() uint64 {
	status, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return 0
	}
	_, rest, _ := strings.Cut(string(status), "\nSigIgn:\t")
	digits, _, _ := strings.Cut(rest, "\n")
	set, err := strconv.ParseUint(digits, 16, 64)
	if err != nil {
		return 0
	}
	return set
}
