package terminal

import (
	"crypto/rand"
	"encoding/binary"
	"errors"
	"io"
	"log/slog"
	"os"
	"sync"
	"syscall"
	"time"

	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/protocol/bytelog"
	"github.com/fairlead/fairlead/protocol/lease"
)

const (
	// readBytes is the most output taken at once. Linux hands out 4 KiB.
	readBytes = 32 << 10
	// drainFor is how long an ended program's output may take to arrive.
	drainFor = time.Second
	// hangUpEvery is how often a program that is to end is told so. Bash
	// overlooks a signal that comes just before it waits for a key.
	hangUpEvery = 100 * time.Millisecond
	// sweepEvery is how often leftover processes are looked for.
	sweepEvery = 50 * time.Millisecond
	// maxKills bounds the rounds in which leftover processes are killed.
	maxKills = 200
	// maxAttachments bounds the streams of one terminal: a relay has one, and
	// may leave a dead one behind for a moment.
	maxAttachments = 16
)

// A Terminal is one PTY, running or ended. It is safe for concurrent use.
//
// Its mutex owns the log, the lease and the input queue together, and input is
// written with it held. So a change of control is a clean cut: once it is
// announced, not one byte of the former holder reaches the program.
type Terminal struct {
	// Static after construction.
	session protocol.SessionID
	info    protocol.PTYInfo // but for size and end
	dev     device
	proc    process
	log     *slog.Logger
	changed chan struct{} // 1 element: keep should look at its deadlines
	closing latch         // the program is to end
	killing latch         // and at once
	gone    chan struct{} // closed when everything is released

	reader  sync.WaitGroup // read
	writers sync.WaitGroup // flush; only added to before the end

	mu sync.Mutex
	// Guarded by mu.
	output      *bytelog.Log
	lease       *lease.Register
	attachments map[*Attachment]struct{}
	input       inputQueue
	size        sizeLimiter
	ended       time.Time // zero while the program runs
}

// A latch is a channel that can be closed more than once.
type latch struct {
	c    chan struct{}
	once sync.Once
}

func (l *latch) raise() { l.once.Do(func() { close(l.c) }) }

// newTerminal returns a Terminal that reads dev. The caller must run keep.
func newTerminal(session protocol.SessionID, info protocol.PTYInfo, dev device, proc process, log *slog.Logger) *Terminal {
	t := &Terminal{
		session: session, info: info, dev: dev, proc: proc, log: log,
		changed:     make(chan struct{}, 1),
		closing:     latch{c: make(chan struct{})},
		killing:     latch{c: make(chan struct{})},
		gone:        make(chan struct{}),
		output:      bytelog.New(newEpoch(), protocol.LogWindowBytes),
		lease:       lease.New(),
		attachments: make(map[*Attachment]struct{}),
		input:       newInputQueue(),
	}
	t.output.Resize(info.Cols, info.Rows)
	t.reader.Go(t.read) // finish waits for it
	return t
}

func newEpoch() protocol.Epoch {
	var b [8]byte
	rand.Read(b[:]) // never fails
	return protocol.Epoch(binary.BigEndian.Uint64(b[:]))
}

// Info returns the terminal as a list shows it.
func (t *Terminal) Info() protocol.PTYInfo {
	t.mu.Lock()
	defer t.mu.Unlock()
	info := t.info
	info.Cols, info.Rows = t.output.SizeAt(t.output.Head())
	if exited, ok := t.output.Exited(); ok {
		info.Exited = &exited
	}
	return info
}

func (t *Terminal) endedAt() time.Time {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.ended
}

func (t *Terminal) hasEnded() bool { return !t.endedAt().IsZero() }

// released reports whether the terminal holds nothing but its log.
func (t *Terminal) released() bool {
	select {
	case <-t.gone:
		return true
	default:
		return false
	}
}

func (t *Terminal) close() { t.closing.raise() }

func (t *Terminal) kill() {
	t.closing.raise()
	t.killing.raise()
}

// read moves output from the PTY to the log until there is no more.
func (t *Terminal) read() {
	buf := make([]byte, readBytes)
	var queries responder
	var out, answers []byte
	for {
		n, err := t.dev.Read(buf)
		out, answers = queries.filter(out[:0], answers[:0], buf[:n])
		if err != nil {
			out = queries.flush(out)
		}
		if len(out)+len(answers) > 0 {
			t.mu.Lock()
			t.output.Append(out)
			t.input.answer(answers)
			t.pump()
			t.wakeAll()
			t.mu.Unlock()
		}
		if err != nil {
			if !errors.Is(err, io.EOF) && !errors.Is(err, os.ErrClosed) {
				t.log.Warn("reading a terminal failed", "error", err)
			}
			return
		}
	}
}

// wakeAll tells every attachment that there is something to read. It is called
// with mu held.
func (t *Terminal) wakeAll() {
	for a := range t.attachments {
		a.notify()
	}
}

// keep owns the terminal's life: it runs the deadlines of lease and size, ends
// the program when asked to, records its end, and calls release when nothing
// of it is left.
func (t *Terminal) keep(release func()) {
	exits := make(chan exit, 1)
	go func() { exits <- t.proc.Wait() }() // received below
	deadline := time.NewTimer(t.tick())
	defer deadline.Stop()
	closing, killing := t.closing.c, t.killing.c
	var again, patience <-chan time.Time
	for {
		select {
		case e := <-exits:
			t.finish(e)
			release()
			close(t.gone)
			return
		case <-t.changed:
			deadline.Reset(t.tick())
		case <-deadline.C:
			deadline.Reset(t.tick())
		case <-closing:
			closing = nil
			again, patience = time.After(hangUpEvery), time.After(killAfter)
			t.hangUp()
		case <-again:
			again = time.After(hangUpEvery)
			t.hangUp()
		case <-killing:
			killing = nil
			patience = time.After(0)
		case <-patience:
			// Again until it has ended: what is forked meanwhile escapes one round.
			again, patience = nil, time.After(sweepEvery)
			t.killing.raise() // sweep need not be patient either
			t.proc.SignalAll(syscall.SIGKILL)
		}
	}
}

// hangUp tells everything in the terminal to end, stopped jobs too, and returns
// how much there was.
func (t *Terminal) hangUp() int {
	n := t.proc.SignalAll(syscall.SIGHUP)
	if n > 0 {
		t.proc.SignalAll(syscall.SIGCONT)
	}
	return n
}

// finish takes what output is left, records the end and clears away what the
// program left running.
func (t *Terminal) finish(e exit) {
	drained := make(chan struct{})
	go func() { // ends when read does, at the latest after Close below
		t.reader.Wait()
		close(drained)
	}()
	late := time.NewTimer(drainFor)
	defer late.Stop()
	select {
	case <-drained:
	case <-late.C: // something else holds the PTY open
	}
	t.closeDevice()
	<-drained

	t.mu.Lock()
	t.ended = time.Now()
	t.output.Exit(e.code, e.signal)
	t.refuseAll(protocol.RefusedEnded)
	t.wakeAll()
	t.mu.Unlock()
	t.writers.Wait()
	t.log.Info("terminal ended", "code", e.code, "signal", e.signal)
	t.sweep()
}

func (t *Terminal) closeDevice() {
	if err := t.dev.Close(); err != nil && !errors.Is(err, os.ErrClosed) {
		t.log.Warn("closing a terminal failed", "error", err)
	}
}

// sweep hangs up what the program left running, and kills what is still there
// killAfter later: a uid must be empty before another terminal gets it.
func (t *Terminal) sweep() {
	if t.hangUp() == 0 {
		return
	}
	again := time.NewTicker(sweepEvery)
	defer again.Stop()
	patience := time.NewTimer(killAfter)
	defer patience.Stop()
	for waiting := true; waiting; {
		select {
		case <-patience.C:
			waiting = false
		case <-t.killing.c:
			waiting = false
		case <-again.C:
			if t.proc.SignalAll(0) == 0 {
				return
			}
		}
	}
	for range maxKills {
		if t.proc.SignalAll(syscall.SIGKILL) == 0 {
			return
		}
		<-again.C
	}
	t.log.Error("processes of an ended terminal can't be killed")
}
