// Package pty starts programs on PTYs of their own and signals them and what
// they start.
package pty

import (
	"syscall"

	"github.com/fairlead/fairlead/sandbox-agent/internal/account"
	"github.com/fairlead/fairlead/sandbox-agent/internal/process"
)

// A Launch describes a program to start on a new PTY.
type Launch struct {
	Argv       []string // Argv[0] is looked up in Env's PATH
	Dir        string
	Env        []string
	Cols, Rows int
	Account    account.Account
	Front      bool         // of a coding agent: other programs run under Account too
	Mark       process.Mark // with Front: all that the program starts bears it
}

// A Launcher starts a program on a PTY. Tests use an in-memory one in place of
// [New]'s.
type Launcher func(Launch) (Device, Child, error)

// A Device is a PTY as the agent sees it. No method holds a thread, and Close
// ends those that wait.
type Device interface {
	// Read waits for output. It returns io.EOF when there will be no more.
	Read(p []byte) (int, error)
	// Offer writes as much of p as there is room for, perhaps nothing. It never
	// waits.
	Offer(p []byte) (int, error)
	// WhenWritable calls fn now and whenever there may be room again, until fn
	// returns true. It fails if the device is closed.
	WhenWritable(fn func() (done bool)) error
	Resize(cols, rows int) error
	Close() error
}

// A Child is the program on a PTY and what it started.
type Child interface {
	// Wait waits for the program's end, reaps it and returns how it ended, once.
	Wait() Exit
	// Signal sends sig to the terminal's foreground job and returns the number of
	// processes.
	Signal(sig syscall.Signal) int
	// SignalAll sends sig to everything that still runs in the terminal, the
	// program included, and returns the number of processes. For a coding agent
	// that is all that the agent started, and nothing else.
	SignalAll(sig syscall.Signal) int
	// Freeze stops the program and all that it started, or continues them.
	Freeze(on bool) error
	// PID returns the program's process id.
	PID() int
	// Dir returns the program's working directory, "" if unknown.
	Dir() string
}

// An Exit says how a program ended.
type Exit = process.Exit
