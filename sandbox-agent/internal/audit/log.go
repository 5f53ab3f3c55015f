// Package audit writes the audit log of an agent: executed commands, changes of
// leases and approvals, what people's browsers have sent, in the form of package protocol/audit. It keeps nobody
// waiting for the disk.
package audit

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"strconv"
	"sync"
	"time"

	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/protocol/audit"
	"github.com/fairlead/fairlead/protocol/jws"
)

const (
	// maxQueued bounds the records that wait for the disk, those of commands
	// that run included. The last commandRoom of them are for commands alone.
	maxQueued   = 4096
	commandRoom = 512
	// headRecords and headDelay say how many records, and for how long, may
	// stand without a signed head behind them.
	headRecords = 256
	headDelay   = time.Second
	// retryDelay is the time between two attempts at a disk that fails.
	retryDelay = time.Second

	defaultFileBytes = 16 << 20
	defaultFiles     = 64
)

// Options configure a [Log].
type Options struct {
	Dir          string // made when missing, 0700
	Sandbox      protocol.SandboxID
	Device       *jws.DeviceKey // signs the heads
	MaxFileBytes int64          // of one file; default 16 MiB
	MaxFiles     int            // older ones are removed; default 64
	Now          func() time.Time
	Logger       *slog.Logger
	// Changed receives whenever what Err returns changes. Nothing waits for a
	// reader; nil: nobody reads.
	Changed chan<- struct{}
}

// A Log records what happens in one sandbox. It is safe for concurrent use, and
// for two processes that share a directory by mistake: the one that opened it
// last owns it.
type Log struct {
	// Static after construction.
	o       Options
	wake    chan struct{}   // capacity 1: there is something to write
	syncs   chan chan error // who waits for what is written to be on disk
	closing chan struct{}   // closed by Close
	ended   chan struct{}   // closed when the writer is over

	mu sync.Mutex
	// Guarded by mu.
	queue     []audit.Record
	reserved  int           // places of commands that run
	freed     chan struct{} // closed when the writer has taken the queue
	lost      audit.Lost    // changes since the last Lost record
	lostEver  uint64        // changes and envelopes since the start
	problem   error         // why nothing can be written
	damage    error         // what was found at the start
	head      protocol.AuditHead
	signature []byte
	closed    bool

	writer writer // owned by run
}

// Open goes on with the log in o.Dir, or begins one. What is wrong with the
// disk is no error but what Err says; commands are refused until it is better.
// It fails when o.Device's key can't be put in a log.
func Open(o Options) (*Log, error) {
	key, err := audit.ParseKey(o.Device.PublicJWK())
	if err != nil {
		return nil, err
	}
	if o.MaxFileBytes <= 0 {
		o.MaxFileBytes = defaultFileBytes
	}
	if o.MaxFiles <= 0 {
		o.MaxFiles = defaultFiles
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	l := &Log{
		o:    o,
		wake: make(chan struct{}, 1), syncs: make(chan chan error), closing: make(chan struct{}), ended: make(chan struct{}),
		freed: make(chan struct{}),
	}
	l.writer = writer{
		options: o, log: l,
		opened: audit.Opened{Format: audit.Format, Sandbox: o.Sandbox, Device: key.Thumbprint(), Key: key},
	}
	l.report(l.writer.open())
	go l.run() // Close waits for it
	return l, nil
}

// Reserve takes a place for the record of a command that is about to run, which
// Command fills and Release gives back. Where there is none it waits until ctx
// ends. It fails with kind unavailable, or superseded when another process has
// the log: then the command must not run.
func (l *Log) Reserve(ctx context.Context) error {
	for {
		l.mu.Lock()
		err, full, freed := l.refusal(), len(l.queue)+l.reserved >= maxQueued, l.freed
		if err == nil && !full {
			l.reserved++
		}
		l.mu.Unlock()
		if err != nil || !full {
			return err
		}
		select {
		case <-freed:
		case <-ctx.Done():
			return protocol.Fault(protocol.KindUnavailable, fmt.Errorf("audit: no room: %w", ctx.Err()))
		}
	}
}

// refusal is called with mu held.
func (l *Log) refusal() error {
	switch {
	case l.closed:
		return protocol.Errorf(protocol.KindUnavailable, "the sandbox is shutting down")
	case l.problem == nil:
		return nil
	case protocol.KindOf(l.problem) == protocol.KindSuperseded:
		return l.problem
	}
	return protocol.Fault(protocol.KindUnavailable, l.problem)
}

// Release gives a reserved place back.
func (l *Log) Release() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.reserved--
	l.free()
}

// free tells those who wait that there may be room. Called with mu held.
func (l *Log) free() {
	close(l.freed)
	l.freed = make(chan struct{})
}

// Command records a command in a reserved place.
func (l *Log) Command(c audit.Command) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.reserved--
	l.put(audit.Record{Command: &c})
}

// Lease records the lease of a terminal after a change. It never waits: what
// finds no room is counted, and the log says how much is missing.
func (l *Log) Lease(session protocol.SessionID, pty protocol.PTYID, lease protocol.Lease, cause string) {
	l.notice(audit.Record{Lease: &audit.Lease{
		Session: session, PTY: pty, Revision: lease.Revision, Term: lease.Term, State: lease.State,
		Holder: lease.Holder, Grant: lease.GrantID, Cause: cause,
	}})
}

// Approval records an approval that was decided, cancelled or has expired; it
// passes over one that is pending. Like Lease it never waits.
func (l *Log) Approval(a protocol.Approval) {
	record := audit.Approval{
		ID: a.ID, Session: a.SessionID, PTY: a.PTYID, About: about(a),
		Decision: string(a.Decision), User: a.UserID, Grant: a.GrantID,
		Remember: a.Remember, Command: a.CommandID,
	}
	switch a.State {
	case protocol.ApprovalPending:
		return
	case protocol.ApprovalExpired, protocol.ApprovalCancelled:
		record.Decision = string(a.State)
	}
	l.notice(audit.Record{Approval: &record})
}

// Sync records what came of an envelope. Like Lease it never waits.
func (l *Log) Sync(push audit.Sync) { l.notice(audit.Record{Sync: &push}) }

// about says what an approval is for.
func about(a protocol.Approval) string {
	switch a.Kind {
	case protocol.ApprovalEgress:
		return fmt.Sprintf("%s %s", a.Kind, net.JoinHostPort(a.Host, strconv.Itoa(a.Port)))
	case protocol.ApprovalTool:
		return fmt.Sprintf("%s %s in conversation %s, input sha256:%s", a.Kind, a.Tool, a.ConversationID, a.InputSHA256)
	}
	return fmt.Sprintf("%s %s to %s", a.Kind, a.Secret, a.Host)
}

// notice records a lease, an approval or an envelope, or counts it as lost: when there is no
// room, or when something was lost that the log doesn't tell of yet.
func (l *Log) notice(r audit.Record) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed || l.lost != (audit.Lost{}) || len(l.queue)+l.reserved >= maxQueued-commandRoom {
		switch {
		case r.Lease != nil:
			l.lost.Leases++
		case r.Approval != nil:
			l.lost.Approvals++
		default:
			l.lost.Syncs++
		}
		l.lostEver++
		return
	}
	l.put(r)
}

// put is called with mu held.
func (l *Log) put(r audit.Record) {
	r.At = l.o.Now().UnixMilli()
	l.queue = append(l.queue, r)
	select {
	case l.wake <- struct{}{}:
	default: // it is awake
	}
}

// take returns what waits, and makes room for more.
func (l *Log) take() []audit.Record {
	l.mu.Lock()
	defer l.mu.Unlock()
	taken := l.queue
	if lost := l.lost; lost != (audit.Lost{}) {
		taken = append(taken, audit.Record{At: l.o.Now().UnixMilli(), Lost: &lost})
		l.lost = audit.Lost{}
	}
	l.queue = nil
	l.free()
	return taken
}

// Err returns why what happens is not recorded, or what was found wrong with
// the log at the start; nil when all is well.
func (l *Log) Err() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.problem != nil {
		return l.problem
	}
	return l.damage
}

// Lost returns how many changes of leases and approvals, and envelopes, were not
// recorded since the start.
func (l *Log) Lost() uint64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.lostEver
}

// report sets the problem, nil for none.
func (l *Log) report(problem error) {
	l.mu.Lock()
	changed := (l.problem == nil) != (problem == nil)
	l.problem = problem
	if changed {
		l.free() // those who wait hear of it
	}
	l.mu.Unlock()
	if !changed {
		return
	}
	if problem != nil {
		l.o.Logger.Error("audit log can't be written", "err", problem)
	} else {
		l.o.Logger.Info("audit log is written")
	}
	select {
	case l.o.Changed <- struct{}{}:
	default:
	}
}

// Head returns the newest head and its signature, once they are on disk. While
// there is none, Sequence is 0. The error is one of the disk, or says that the
// log is closed.
func (l *Log) Head() (protocol.AuditHead, []byte, error) {
	l.mu.Lock()
	head, signature := l.head, l.signature
	l.mu.Unlock()
	if head.Sequence == 0 {
		return head, nil, nil
	}
	done := make(chan error, 1)
	select {
	case l.syncs <- done:
	case <-l.ended:
		return protocol.AuditHead{}, nil, protocol.Errorf(protocol.KindUnavailable, "the audit log is closed")
	}
	if err := <-done; err != nil {
		return protocol.AuditHead{}, nil, fmt.Errorf("audit: %w", err)
	}
	return head, signature, nil
}

// Close writes what waits, and a head. It fails when that can't be done.
func (l *Log) Close() error {
	l.mu.Lock()
	if !l.closed {
		l.closed = true
		close(l.closing)
	}
	l.mu.Unlock()
	<-l.ended
	return l.writer.closed
}

// run writes until the log is closed.
func (l *Log) run() {
	defer close(l.ended)
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-l.closing:
			l.writer.close()
			return
		case done := <-l.syncs:
			done <- l.writer.sync()
			continue
		case <-l.wake:
		case <-timer.C:
		}
		l.report(l.writer.turn())
		timer.Reset(l.writer.rest())
	}
}
