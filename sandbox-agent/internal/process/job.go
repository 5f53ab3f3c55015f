package process

import (
	"errors"
	"syscall"

	"golang.org/x/sys/unix"
)

// wholeGroup is PIDFD_SIGNAL_PROCESS_GROUP, of Linux 6.9.
const wholeGroup = 1 << 2

// SignalJob sends sig to a job of a terminal: a process group of a session. It
// returns how many processes or, where the group's leader lives, 1: then nobody has
// to look for the others among all processes of the machine. 0: there is no such
// job. It never signals a group of another session that has the same number by now.
func SignalJob(sig syscall.Signal, session, group int) int {
	if group <= 1 || session <= 1 {
		return 0
	}
	inJob := func(s Stat) bool { return s.Session == session && s.Group == group }
	if signalGroup(sig, group, inJob) {
		return 1
	}
	return Signal(sig, inJob)
}

// signalGroup sends sig to the group whose leader has its number, if match accepts
// the leader. A leader that lives keeps the number from being used again.
func signalGroup(sig syscall.Signal, group int, match func(Stat) bool) bool {
	fd, err := unix.PidfdOpen(group, 0)
	if err != nil {
		return false // the leader has ended, or this kernel is old
	}
	defer unix.Close(fd)
	leader, ok := Read(group)
	if !ok || leader.zombie() || !match(leader) {
		return false
	}
	err = unix.PidfdSendSignal(fd, sig, nil, wholeGroup)
	if errors.Is(err, unix.EINVAL) { // before Linux 6.9
		err = unix.Kill(-group, sig)
	}
	return err == nil
}
