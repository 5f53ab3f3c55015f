package terminal

import (
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
// there is none, with KindConflict for a CONT that would wake a paused agent behind
// everybody's back, and for a program that hasn't started yet.
func (h *Host) Signal(session protocol.SessionID, id protocol.PTYID, name string) error {
	sig, ok := signals[name]
	if !ok {
		return protocol.Errorf(protocol.KindInvalid, "unknown signal")
	}
	t, err := h.Get(session, id)
	if err != nil {
		return err
	}
	front, paused := t.arbiter.Front()
	switch {
	case paused && sig == syscall.SIGCONT:
		return protocol.Errorf(protocol.KindConflict, "a paused coding agent is resumed by agent.resume")
	case front == t.own.Program && t.waits():
		return protocol.Errorf(protocol.KindConflict, "the terminal's program starts with the first byte that is typed")
	case t.hasEnded() || front.Process.Signal(sig) == 0:
		return protocol.Errorf(protocol.KindEnded, "nothing runs in the terminal")
	}
	return nil
}
