package pty

import (
	"os"
	"os/signal"
	"strconv"
	"strings"
	"syscall"
)

// KeepDescriptors has every descriptor of this process closed in the programs
// it starts. Go sees to that for those it opens, not for what the agent itself
// inherited, say from a supervisor.
func KeepDescriptors() {
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		return // no /proc: they can't be found
	}
	for _, entry := range entries {
		if fd, err := strconv.Atoi(entry.Name()); err == nil && fd > 2 {
			syscall.CloseOnExec(fd)
		}
	}
}

// HeedSignals gives terminals the usual signals even when the agent was started
// with some ignored, as nohup and the background jobs of a script are. Programs
// inherit that, and a shell can't undo it: Ctrl-C would be dead. A signal that
// the agent handles, by dropping it, is back at its default in what it starts.
func HeedSignals() (stop func()) {
	dropped := make(chan os.Signal, 1) // never read: signals beyond the first are lost at once
	ignored := ignoredSignals()
	for sig := syscall.Signal(1); sig < 32; sig++ {
		if ignored&(1<<(sig-1)) != 0 {
			signal.Notify(dropped, sig)
		}
	}
	return func() { signal.Stop(dropped) }
}

// ignoredSignals returns the set of signals that this process ignores, signal
// n at bit n−1. The standard library knows of SIGHUP and SIGINT alone.
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
