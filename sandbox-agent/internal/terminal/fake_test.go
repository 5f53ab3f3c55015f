package terminal

import (
	"bytes"
	"context"
	"errors"
	"io"
	"log/slog"
	"os"
	"slices"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/protocol/jws"
	"github.com/fairlead/fairlead/sandbox-agent/internal/pty"
)

const (
	session = protocol.SessionID("ses_1")
	alice   = protocol.UserID("usr_alice")
	bob     = protocol.UserID("usr_bob")
)

// A fakeDevice is a PTY in memory. Its program prints what is sent to output
// and reads nothing by itself: take makes room.
type fakeDevice struct {
	output   chan []byte
	closed   latch
	writable chan struct{}
	offered  func(p []byte) // called with each offer

	mu      sync.Mutex
	pending []byte // output not read yet
	room    int
	input   bytes.Buffer
	sizes   [][2]int
}

func newFakeDevice() *fakeDevice {
	return &fakeDevice{
		output:   make(chan []byte),
		closed:   latch{c: make(chan struct{})},
		writable: make(chan struct{}, 1),
		room:     1 << 20,
	}
}

func (d *fakeDevice) Read(p []byte) (int, error) {
	if len(d.pending) == 0 {
		select {
		case out, ok := <-d.output:
			if !ok {
				return 0, io.EOF
			}
			d.pending = out
		case <-d.closed.c:
			return 0, os.ErrClosed
		}
	}
	n := copy(p, d.pending)
	d.pending = d.pending[n:]
	return n, nil
}

func (d *fakeDevice) Offer(p []byte) (int, error) {
	select {
	case <-d.closed.c:
		return 0, os.ErrClosed
	default:
	}
	if d.offered != nil {
		d.offered(p)
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	n := min(len(p), d.room)
	d.room -= n
	d.input.Write(p[:n])
	return n, nil
}

func (d *fakeDevice) WhenWritable(fn func() bool) error {
	for !fn() {
		select {
		case <-d.writable:
		case <-d.closed.c:
			return os.ErrClosed
		}
	}
	return nil
}

func (d *fakeDevice) Resize(cols, rows int) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.sizes = append(d.sizes, [2]int{cols, rows})
	return nil
}

// sized returns the sizes that the device was given.
func (d *fakeDevice) sized() [][2]int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return slices.Clone(d.sizes)
}

func (d *fakeDevice) Close() error {
	d.closed.raise()
	return nil
}

// setRoom says how much more input the program takes.
func (d *fakeDevice) setRoom(n int) {
	d.mu.Lock()
	d.room = n
	d.mu.Unlock()
	select {
	case d.writable <- struct{}{}:
	default:
	}
}

// take returns the input written since the last call.
func (d *fakeDevice) take() string {
	d.mu.Lock()
	defer d.mu.Unlock()
	s := d.input.String()
	d.input.Reset()
	return s
}

// A fakeProcess runs until it gets SIGKILL, or SIGHUP unless it is stubborn.
// Then leftover processes stay, which end in the same way.
type fakeProcess struct {
	exits    chan pty.Exit
	stubborn bool

	mu       sync.Mutex
	running  bool
	leftover int
	got      []syscall.Signal
	heeds    syscall.Signal // another signal that ends the program
	stuck    bool           // Freeze fails
	frozen   bool
}

func newFakeProcess() *fakeProcess {
	return &fakeProcess{exits: make(chan pty.Exit, 1), running: true}
}

func (p *fakeProcess) Wait() pty.Exit { return <-p.exits }

func (p *fakeProcess) Signal(sig syscall.Signal) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.got = append(p.got, sig)
	return 1
}

func (p *fakeProcess) SignalAll(sig syscall.Signal) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	n := p.leftover
	if p.running {
		n++
	}
	if n > 0 && sig != 0 {
		p.got = append(p.got, sig)
	}
	ends := sig == syscall.SIGKILL || sig == syscall.SIGHUP && !p.stubborn
	if ends {
		p.leftover = 0
	}
	if p.running && (ends || sig != 0 && sig == p.heeds) {
		p.running = false
		p.exits <- pty.Exit{Code: -1, Signal: unix.SignalName(sig)}
	}
	return n
}

func (p *fakeProcess) Freeze(on bool) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.stuck && on {
		return errors.New("it escapes")
	}
	p.frozen = on
	return nil
}

func (p *fakeProcess) PID() int { return 0 }

func (p *fakeProcess) Dir() string { return "" }

// exit ends the program by itself.
func (p *fakeProcess) exit(code int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.running = false
	p.exits <- pty.Exit{Code: code}
}

// A rig is a terminal over fakes.
type rig struct {
	*Terminal
	dev    *fakeDevice
	proc   *fakeProcess
	counts counts
}

func newRig(t *testing.T) *rig {
	t.Helper()
	r := &rig{dev: newFakeDevice(), proc: newFakeProcess()}
	info := protocol.PTYInfo{ID: "pty_1", CreatorID: alice, Cols: 80, Rows: 24}
	r.Terminal = newTerminal(session, info, newProgram(r.dev, r.proc), site{counts: &r.counts}, slog.New(slog.DiscardHandler))
	go r.keep(func() {})
	t.Cleanup(func() {
		r.kill()
		<-r.life.gone
	})
	return r
}

// print has the program print s and waits until the terminal took it in. It
// works in a bubble only.
func (r *rig) print(s string) {
	r.dev.output <- []byte(s)
	synctest.Wait()
}

// A viewer is an attachment with shorthands for tests.
type viewer struct {
	*Attachment
	t      testing.TB
	opened protocol.TerminalOpened
}

func (r *rig) attach(t *testing.T, since *protocol.Position) *viewer {
	t.Helper()
	return attach(t, r.Terminal, since)
}

func attach(t testing.TB, term *Terminal, since *protocol.Position) *viewer {
	t.Helper()
	a, opened, err := term.Attach(protocol.TerminalParams{SessionID: session, PTYID: term.id, Since: since})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(a.Close)
	return &viewer{a, t, opened}
}

func (v *viewer) next() protocol.Message {
	v.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	m, err := v.Next(ctx)
	if err != nil {
		v.t.Fatalf("Next: %v", err)
	}
	return m
}

// nothing checks that no message waits, but that the holder is idle by now.
func (v *viewer) nothing() {
	v.t.Helper()
	m, err := v.Poll()
	if l, ok := m.(protocol.Leased); ok && l.Lease.Idle && l.ID == 0 {
		m, err = v.Poll()
	}
	if m != nil || err != nil {
		v.t.Fatalf("unexpected %#v, %v", m, err)
	}
}

func want[M protocol.Message](v *viewer) M {
	v.t.Helper()
	m := v.next()
	got, ok := m.(M)
	if !ok {
		v.t.Fatalf("got %#v, want %T", m, got)
	}
	return got
}

// grantOf returns a grant of user's that is good for d and allows to view
// everything, and more.
func grantOf(user protocol.UserID, id protocol.GrantID, d time.Duration, more ...protocol.Capability) *jws.Grant {
	now := time.Now()
	return &jws.Grant{
		Subject: user, Session: session, PTYs: []string{jws.AllPTYs}, Caps: append(more, protocol.CapView),
		IssuedAt: now.Unix(), ExpiresAt: now.Add(d - jws.Skew).Unix(), ID: id,
	}
}

// mayControl adds a grant of user's to control the terminal for ten minutes.
func (v *viewer) mayControl(user protocol.UserID, id protocol.GrantID) {
	v.t.Helper()
	v.mayControlFor(user, id, 10*time.Minute)
}

func (v *viewer) mayControlFor(user protocol.UserID, id protocol.GrantID, d time.Duration) {
	v.t.Helper()
	if err := v.AddGrant(grantOf(user, id, d, protocol.CapControl), 0); err != nil {
		v.t.Fatal(err)
	}
}

// propose makes holder the next controller, or nobody, and returns the answer.
func (v *viewer) propose(holder protocol.UserID) protocol.Leased {
	v.t.Helper()
	p := protocol.LeaseProposal{ID: 7}
	p.ExpectRevision = v.terminal.arbiter.Lease().Revision
	if holder != "" {
		v.mayControl(holder, "gr_1")
		p.Next = protocol.LeaseNext{Holder: holder, GrantID: "gr_1"}
	}
	v.Propose(p)
	l := want[protocol.Leased](v)
	if l.ID != 7 {
		v.t.Fatalf("answer %+v to proposal 7", l)
	}
	return l
}

func (v *viewer) typed(term, seq uint64, s string) {
	v.Input(protocol.Input{Term: term, Seq: seq, Client: "c", Bytes: []byte(s)})
}

func (v *viewer) wantAck(seq uint64) {
	v.t.Helper()
	if m := want[protocol.InputAck](v); m.Seq != seq || m.Client != "c" {
		v.t.Fatalf("got %+v, want ack of %d", m, seq)
	}
}

func (v *viewer) wantRefused(seq uint64, reason protocol.RefusalReason) {
	v.t.Helper()
	if m := want[protocol.InputRefused](v); m.Seq != seq || m.Reason != reason {
		v.t.Fatalf("got %+v, want %d refused: %s", m, seq, reason)
	}
}

func (v *viewer) wantData(offset uint64, s string) {
	v.t.Helper()
	if m := want[protocol.Data](v); m.Offset != offset || string(m.Bytes) != s {
		v.t.Fatalf("got %d %q, want %d %q", m.Offset, m.Bytes, offset, s)
	}
}

// must stops the test on an error.
func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
