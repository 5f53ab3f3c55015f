package terminal

import (
	"os"
	"os/signal"
	"strconv"
	"strings"
	"syscall"

	"github.com/fairlead/fairlead/protocol"
)

// signals are those that [Host.Signal] takes, by name.
var signals = map[string]syscall.Signal{
	"INT": syscall.SIGINT, "TERM": syscall.SIGTERM, "KILL": syscall.SIGKILL, "HUP": syscall.SIGHUP,
	"QUIT": syscall.SIGQUIT, "TSTP": syscall.SIGTSTP, "CONT": syscall.SIGCONT,
	"WINCH": syscall.SIGWINCH, "USR1": syscall.SIGUSR1, "USR2": syscall.SIGUSR2,
}

// Signal sends the signal called name ("INT", …) to the terminal's foreground
// job, that of a coding agent if one is in front. It fails with KindEnded when
// there is none, and with KindConflict for a CONT that would wake a paused
// agent behind everybody's back.
func (h *Host) Signal(session protocol.SessionID, id protocol.PTYID, name string) error {
	sig, ok := signals[name]
	if !ok {
		return protocol.Errorf(protocol.KindInvalid, "unknown signal")
	}
	t, err := h.Get(session, id)
	if err != nil {
		return err
	}
	proc, paused := t.inFront()
	switch {
	case paused && sig == syscall.SIGCONT:
		return protocol.Errorf(protocol.KindConflict, "a paused coding agent is resumed by agent.resume")
	case t.hasEnded() || proc.Signal(sig) == 0:
		return protocol.Errorf(protocol.KindEnded, "nothing runs in the terminal")
	}
	return nil
}

// inFront returns the program that has the terminal, and whether that is a paused
// coding agent.
func (t *Terminal) inFront() (proc child, paused bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.stage.front.proc, t.stage.state() == protocol.AgentPaused
}

// heedSignals gives terminals the usual signals even when the agent was started
// with some ignored, as nohup and the background jobs of a script are. Programs
// inherit that, and a shell can't undo it: Ctrl-C would be dead. A signal that
// the agent handles, by dropping it, is back at its default in what it starts.
func heedSignals() (stop func()) {
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
