package codingagent

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"sync"
	"syscall"
	"time"

	"github.com/fairlead/fairlead/sandbox-agent/internal/process"
)

const (
	// lingerFor is how long what a program has started may go on after its end.
	lingerFor = time.Second
	// lookEvery is how often that is looked for, and killed later.
	lookEvery = 50 * time.Millisecond
	// maxKills bounds the rounds of killing.
	maxKills = 200
)

// An Exit says how a program ended: by a code, or by a signal and with Code −1.
type Exit = process.Exit

// A Process is a coding agent's program on pipes, and all that it has started.
// Its methods are safe for concurrent use but for Line, which is for one
// goroutine. [Process.Close] must be called.
type Process struct {
	// Static after construction.
	child  *process.Child
	group  *process.Group
	log    *slog.Logger
	in     *inlet
	out    *outlet
	stderr *outlet
	tail   *tail
	ended  chan struct{} // closed when the program itself has ended
	done   chan struct{} // closed when nothing of it is left
	exit   Exit          // static once ended is closed

	lines lineReader // owned by whoever calls Line
	close sync.Once
}

// launchOnPipes starts cmd, which was made by process.Command. released is called
// when nothing is left of it.
func launchOnPipes(cmd *exec.Cmd, mark process.Mark, start func(*exec.Cmd) error, log *slog.Logger, released func(*Process)) (*Process, error) {
	cmd.Env = mark.Environ(cmd.Env)
	var ours, theirs [3]*os.File
	closeAll := func(files [3]*os.File) {
		for _, f := range files {
			if f != nil {
				f.Close()
			}
		}
	}
	defer func() { closeAll(theirs) }() // the running program has copies
	for i := range ours {
		r, w, err := os.Pipe()
		if err != nil {
			closeAll(ours)
			return nil, err
		}
		if ours[i], theirs[i] = r, w; i == 0 {
			ours[i], theirs[i] = w, r
		}
	}
	cmd.Stdin, cmd.Stdout, cmd.Stderr = theirs[0], theirs[1], theirs[2]
	child, err := process.StartChild(cmd, start)
	if err != nil {
		closeAll(ours)
		return nil, err
	}
	p := &Process{
		child: child, group: process.NewGroup(child.PID(), mark), log: log,
		in:  &inlet{file: ours[0], writing: make(chan struct{}, 1)},
		out: &outlet{file: ours[1]}, stderr: &outlet{file: ours[2]}, tail: &tail{},
		ended: make(chan struct{}), done: make(chan struct{}),
	}
	p.lines.from = p.out
	go p.keep(released) // Close waits for it
	return p, nil
}

// keep owns the process's life: it waits for the end of the program, clears away
// what it has left running, and calls released.
func (p *Process) keep(released func(*Process)) {
	var reading sync.WaitGroup
	reading.Go(func() {
		_, err := io.Copy(p.tail, p.stderr)
		if err != nil && !errors.Is(err, os.ErrClosed) {
			p.log.Warn("a coding agent's errors can't be read", "err", err)
		}
	})
	p.exit = p.child.Wait()
	close(p.ended)
	p.sweep()
	p.out.hurry()
	p.stderr.hurry()
	reading.Wait()
	released(p)
	close(p.done)
}

// sweep gives what the program has left running a moment, and kills it.
func (p *Process) sweep() {
	again := time.NewTicker(lookEvery)
	defer again.Stop()
	for late := time.Now().Add(lingerFor); time.Now().Before(late); <-again.C {
		if p.group.Left() == 0 {
			return
		}
	}
	for range maxKills {
		if p.group.Signal(syscall.SIGKILL) == 0 {
			return
		}
		<-again.C
	}
	p.log.Error("what a coding agent has started can't be killed", "pid", p.child.PID())
}

// PID returns the program's process id.
func (p *Process) PID() int { return p.child.PID() }

// Line waits for the next line of the program's standard output, and returns
// io.EOF behind the last one. What the program has printed before its end is
// always returned, also half a line.
func (p *Process) Line() (Line, error) {
	l, err := p.lines.next()
	if err != nil { // or the process is closed
		return Line{}, io.EOF
	}
	return l, nil
}

// Write writes all of b, at most MaxWrite bytes, to the program's standard input.
// It waits while the program doesn't read, until ctx ends: then the program may
// have got a part, and nothing more can be written. It fails with KindEnded when
// the program doesn't read any more.
func (p *Process) Write(ctx context.Context, b []byte) error { return p.in.write(ctx, b) }

// CloseInput ends the program's standard input. A Write that waits fails.
func (p *Process) CloseInput() { p.in.file.Close() }

// Interrupt sends SIGINT to the program and all that it has started.
func (p *Process) Interrupt() { p.group.Signal(syscall.SIGINT) }

// Signal implements process.Running.
func (p *Process) Signal(sig syscall.Signal) int { return p.group.Signal(sig) }

// Done is closed when the program itself has ended.
func (p *Process) Done() <-chan struct{} { return p.ended }

// Gone is closed when nothing is left of the program and of what it has started,
// at most about a second after Done.
func (p *Process) Gone() <-chan struct{} { return p.done }

// Exit waits for the program's end and returns how it ended, with the last 4 KiB
// of its standard error, in which secrets are not masked.
func (p *Process) Exit() (Exit, []byte) {
	<-p.done
	return p.exit, p.tail.text()
}

// End ends the program and all that it has started: by SIGINT three times, then
// SIGTERM, then SIGKILL, as [process.Stop] does. When ctx ends it kills at once.
// It returns when nothing is left, and an error if something can't be killed.
func (p *Process) End(ctx context.Context) error {
	select {
	case <-p.done: // to look for it again takes long
		return nil
	default:
	}
	err := process.Stop(ctx, p, false)
	if err == nil {
		if ctx.Err() != nil {
			p.group.Signal(syscall.SIGKILL)
		}
		<-p.done
	}
	return err
}

// Close kills what still runs, and frees what the process holds. No line can be
// read any more.
func (p *Process) Close() {
	p.close.Do(func() {
		over, cancel := context.WithCancel(context.Background())
		cancel()
		if err := p.End(over); err != nil {
			p.log.Error("a coding agent can't be ended", "pid", p.child.PID(), "err", err)
		}
		p.in.file.Close()
		p.out.file.Close()
		p.stderr.file.Close()
	})
}
