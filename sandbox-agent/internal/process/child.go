package process

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"syscall"

	"golang.org/x/sys/unix"
)

// umaskThenExec starts a program with group-writable files, because Go can't
// set the umask of a child alone.
const umaskThenExec = `umask 002; exec "$0" "$@"`

// Command returns a command that runs argv as the leader of a session, with
// files that its group may write. Argv[0] is looked up in the PATH of the
// command's environment.
func Command(argv []string) *exec.Cmd {
	return &exec.Cmd{
		Path: "/bin/sh", Args: append([]string{"/bin/sh", "-c", umaskThenExec}, argv...),
		SysProcAttr: &syscall.SysProcAttr{Setsid: true},
	}
}

// An Exit says how a program ended: by a code, or by a signal and with Code −1.
type Exit struct {
	Code   int
	Signal string
}

// A Child is a program that this process has started.
type Child struct {
	cmd   *exec.Cmd
	pidfd int // −1 if the kernel has none
}

// StartChild starts cmd by start. [Child.Wait] must be called.
func StartChild(cmd *exec.Cmd, start func(*exec.Cmd) error) (*Child, error) {
	c := &Child{cmd: cmd, pidfd: -1}
	cmd.SysProcAttr.PidFD = &c.pidfd
	if err := start(cmd); err != nil {
		return nil, err
	}
	return c, nil
}

// PID returns the program's process id.
func (c *Child) PID() int { return c.cmd.Process.Pid }

// Wait waits for the program's end, reaps it and returns how it ended, once. It
// parks in the poller: a wait in the kernel would hold a thread for each program.
// Only without a pidfd does it do that.
func (c *Child) Wait() Exit {
	err := errors.Join(awaitPidfd(c.pidfd), c.cmd.Wait())
	if c.cmd.ProcessState == nil {
		return Exit{Code: -1, Signal: fmt.Sprintf("lost: %v", err)}
	}
	status, ok := c.cmd.ProcessState.Sys().(syscall.WaitStatus)
	if ok && status.Signaled() {
		return Exit{Code: -1, Signal: unix.SignalName(status.Signal())}
	}
	return Exit{Code: c.cmd.ProcessState.ExitCode()}
}

// awaitPidfd waits until fd's process has ended, which makes fd readable, and
// closes fd. It fails early if fd can't be polled.
func awaitPidfd(fd int) error {
	if err := unix.SetNonblock(fd, true); err != nil {
		return err // no pidfd
	}
	file := os.NewFile(uintptr(fd), "pidfd")
	defer file.Close()
	raw, err := file.SyscallConn()
	if err != nil {
		return err
	}
	return raw.Read(func(fd uintptr) bool {
		polled := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}
		n, err := unix.Poll(polled, 0)
		return n > 0 || err != nil && !errors.Is(err, unix.EINTR)
	})
}
