package pty

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"syscall"

	creack "github.com/creack/pty"
	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/deploy/program/hops"
	"github.com/fairlead/fairlead/sandbox-agent/internal/process"
	"github.com/fairlead/fairlead/tunnel/quiet"
)

// New returns the launcher of real programs. start starts each.
func New(start func(*exec.Cmd) error) Launcher {
	return func(l Launch) (Device, Child, error) { return launch(l, start) }
}

// launch starts l on a new PTY, as a session leader.
func launch(l Launch, start func(*exec.Cmd) error) (Device, Child, error) {
	master, slave, err := creack.Open()
	if err != nil {
		return nil, nil, fmt.Errorf("open pty: %w", err)
	}
	// The running program has its own copy. Ours would hide the PTY's end.
	defer slave.Close()
	dev, err := newMaster(master)
	if err != nil {
		return nil, nil, err
	}
	if err := dev.Resize(l.Cols, l.Rows); err != nil {
		return nil, nil, errors.Join(err, dev.Close())
	}
	if err := l.Account.Own(slave); err != nil {
		return nil, nil, errors.Join(err, dev.Close())
	}
	cmd := process.Command(l.Argv)
	cmd.Env, cmd.Dir = l.Mark.Environ(l.Env), l.Dir
	cmd.Stdin, cmd.Stdout, cmd.Stderr = slave, slave, slave
	cmd.SysProcAttr.Setctty, cmd.SysProcAttr.Credential = true, l.Account.Credential()
	child, err := process.StartChild(cmd, start)
	if err != nil {
		return nil, nil, errors.Join(err, dev.Close())
	}
	p := &ptyProcess{Child: child, dev: dev, uid: l.Account.UID, group: process.NewGroup(child.PID(), l.Mark)}
	if l.Front {
		p.uid = -1
	}
	return dev, p, nil
}

// master is the device of a real PTY.
type master struct {
	file *os.File
	raw  syscall.RawConn
	in   joiner
}

// newMaster takes over f, which [creack.Open] may leave in blocking mode. Then
// each reader would hold a thread, and Close would not wake it. The runtime's
// poller serves a duplicate in non-blocking mode.
func newMaster(f *os.File) (*master, error) {
	fd, err := unix.FcntlInt(f.Fd(), unix.F_DUPFD_CLOEXEC, 0)
	if err = errors.Join(err, f.Close()); err != nil {
		return nil, fmt.Errorf("duplicate pty: %w", err)
	}
	if err := unix.SetNonblock(fd, true); err != nil {
		return nil, errors.Join(err, unix.Close(fd))
	}
	file := os.NewFile(uintptr(fd), "pty")
	raw, err := file.SyscallConn()
	if err != nil {
		return nil, errors.Join(err, file.Close())
	}
	m := &master{file: file, raw: raw}
	m.in.from = m
	return m, nil
}

// Read joins what comes within a moment, under load.
func (m *master) Read(p []byte) (n int, err error) {
	if len(p) == 0 {
		return 0, nil
	}
	return m.in.Read(p)
}

// await and more implement printer.
func (m *master) await(p []byte) (int, error) { return m.read(p, true) }
func (m *master) more(p []byte) (int, error)  { return m.read(p, false) }

// read reads once, and perhaps waits until there is something. It returns io.EOF
// for EIO, by which Linux reports that no process has the other side open.
func (m *master) read(p []byte, wait bool) (n int, err error) {
	waited := m.raw.Read(func(fd uintptr) bool {
		n, err = quiet.Read(fd, p)
		return !wait || !errors.Is(err, unix.EAGAIN)
	})
	hops.Pass(hops.TerminalOut)
	switch {
	case waited != nil:
		return 0, os.ErrClosed // there are no deadlines
	case errors.Is(err, unix.EIO), err == nil && n == 0:
		return 0, io.EOF
	}
	return n, err
}

func (m *master) Offer(p []byte) (n int, err error) {
	m.in.typed.Store(true) // before its echo is there
	hops.Pass(hops.TerminalIn)
	control := m.raw.Control(func(fd uintptr) {
		for n < len(p) && err == nil {
			var wrote int
			wrote, err = quiet.Write(fd, p[n:])
			n += wrote
			if wrote == 0 && err == nil {
				err = unix.EAGAIN
			}
		}
	})
	if errors.Is(err, unix.EAGAIN) {
		err = nil
	}
	return n, errors.Join(control, err)
}

func (m *master) WhenWritable(fn func() bool) error {
	return m.raw.Write(func(uintptr) bool { return fn() })
}

func (m *master) Resize(cols, rows int) (err error) {
	size := &unix.Winsize{Col: uint16(cols), Row: uint16(rows)}
	control := m.raw.Control(func(fd uintptr) {
		err = unix.IoctlSetWinsize(int(fd), unix.TIOCSWINSZ, size)
	})
	return errors.Join(control, err)
}

func (m *master) Close() error { return m.file.Close() }

// foreground returns the process group that the terminal's keys act on, 0 if
// there is none.
func (m *master) foreground() (group int) {
	err := m.raw.Control(func(fd uintptr) {
		if id, err := unix.IoctlGetUint32(int(fd), unix.TIOCGPGRP); err == nil {
			group = int(id)
		}
	})
	if err != nil {
		return 0
	}
	return group
}

// ptyProcess is the child of a real PTY.
type ptyProcess struct {
	*process.Child
	dev   *master
	uid   int // −1: other programs run under it too
	group *process.Group
}

func (p *ptyProcess) Signal(sig syscall.Signal) int {
	return process.SignalJob(sig, p.PID(), p.dev.foreground())
}

// SignalAll signals everything under the PTY's own uid, or else the program and
// what it started, as far as a [process.Group] finds it.
func (p *ptyProcess) SignalAll(sig syscall.Signal) int {
	if p.uid < 0 {
		return p.group.Signal(sig)
	}
	return process.Signal(sig, func(s process.Stat) bool { return s.UID == p.uid })
}

func (p *ptyProcess) Freeze(on bool) error {
	if on {
		return p.group.Pause()
	}
	p.group.Continue()
	return nil
}

// Dir returns the working directory of the program itself, not that of its
// foreground job.
func (p *ptyProcess) Dir() string {
	dir, err := os.Readlink(filepath.Join("/proc", strconv.Itoa(p.PID()), "cwd"))
	if err != nil {
		return ""
	}
	return dir
}

// A LineEditor is a device that knows whether a shell's line editor reads it.
type LineEditor interface {
	// Editing returns the process group that the terminal's keys act on, and
	// whether it reads them one by one.
	Editing() (group int, byKey bool)
}

func (m *master) Editing() (group int, byKey bool) {
	var mode *unix.Termios
	var err error
	control := m.raw.Control(func(fd uintptr) { mode, err = unix.IoctlGetTermios(int(fd), unix.TCGETS) })
	if control != nil || err != nil {
		return 0, false
	}
	return m.foreground(), mode.Lflag&unix.ICANON == 0
}
