package simagent

import (
	"crypto/rand"
	"encoding/binary"
	"net"
	"sync"
	"time"

	"github.com/fairlead/fairlead/loadtest/internal/source"
	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/protocol/bytelog"
	"github.com/fairlead/fairlead/protocol/jws"
	"github.com/fairlead/fairlead/protocol/lease"
	"github.com/fairlead/fairlead/protocol/pace"
)

// maxClients bounds the clients whose sequence is remembered.
const maxClients = 1 << 10

// A terminal is a simulated one: a log and a lease in front of a machine that
// obeys what is typed.
type terminal struct {
	// Static after construction.
	agent   *agent
	session protocol.SessionID
	info    protocol.PTYInfo // as it was made
	machine *source.Machine

	typing sync.Mutex // held while input goes to the machine; taken before mu

	mu sync.Mutex
	// Guarded by mu.
	log         *bytelog.Log
	lease       *lease.Register
	grant       *jws.Grant // under which the lease is held; nil: it is free
	grace       *time.Timer
	accepted    *lease.Window
	attachments map[*attachment]struct{}
	gate        pace.Gate     // who holds the output back
	streams     pace.Stream   // made so far
	room        chan struct{} // closed and replaced when somebody took output; nil: nobody waits
	drawn       time.Time     // the last keyframe
	drawing     *time.Timer   // for the next; nil: none is wanted
	ended       bool
}

func newTerminal(a *agent, session protocol.SessionID, info protocol.PTYInfo) *terminal {
	var epoch [8]byte
	rand.Read(epoch[:]) // never fails
	t := &terminal{
		agent: a, session: session, info: info,
		log:         bytelog.New(protocol.Epoch(binary.BigEndian.Uint64(epoch[:])), a.fleet.cfg.Window),
		lease:       lease.New(),
		accepted:    lease.NewWindow(maxClients),
		attachments: make(map[*attachment]struct{}),
	}
	t.log.Resize(info.Cols, info.Rows)
	t.machine = source.New(t, func() { t.exit(0, "") })
	return t
}

// Write appends what the machine says to the log, once nobody holds it back.
func (t *terminal) Write(p []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for !t.ended && !t.gate.MayRead(t.log.Head(), time.Now()) {
		deadline, _ := t.gate.Deadline(t.log.Head()) // which it has, for somebody holds it back
		t.await(time.Until(deadline))
	}
	if t.ended {
		return 0, net.ErrClosed
	}
	t.log.Append(p)
	t.wakeAll()
	return len(p), nil
}

// await waits until somebody took output, or for d. It is called with mu held,
// and lets go of it meanwhile.
func (t *terminal) await(d time.Duration) {
	if t.room == nil {
		t.room = make(chan struct{})
	}
	room := t.room
	t.mu.Unlock()
	timer := time.NewTimer(d)
	select {
	case <-room:
	case <-timer.C:
	}
	timer.Stop()
	t.mu.Lock()
}

// took wakes a writer that waits for room. It is called with mu held.
func (t *terminal) took() {
	if t.room != nil {
		close(t.room)
		t.room = nil
	}
}

// wakeAll is called with mu held.
func (t *terminal) wakeAll() {
	for a := range t.attachments {
		a.notify()
	}
}

// exit records the end of what runs in the terminal.
func (t *terminal) exit(code int, signal string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.ended {
		return
	}
	t.ended = true
	t.log.Exit(code, signal)
	t.took()
	t.wakeAll()
}

// close ends the terminal and waits for its machine.
func (t *terminal) close() {
	t.exit(-1, "SIGHUP")
	t.machine.Close()
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.grace != nil {
		t.grace.Stop()
	}
	if t.drawing != nil {
		t.drawing.Stop()
	}
}

// signal does to the machine what the signal would do to a program.
func (t *terminal) signal(name string) error {
	switch name {
	case "INT", "QUIT", "TSTP", "CONT", "WINCH", "USR1", "USR2":
		return nil // the machine is in raw mode, and not interested
	case "HUP", "TERM", "KILL":
		t.exit(-1, "SIG"+name)
		return nil
	}
	return protocol.Errorf(protocol.KindInvalid, "unknown signal")
}

// resize gives the terminal another size.
func (t *terminal) resize(cols, rows int) error {
	if cols < protocol.MinCols || rows < protocol.MinRows {
		return protocol.Errorf(protocol.KindInvalid, "not a size: %d×%d", cols, rows)
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.ended {
		return protocol.Errorf(protocol.KindEnded, "the program has ended")
	}
	t.resized(min(cols, protocol.MaxCols), min(rows, protocol.MaxRows))
	return nil
}

// resized is called with mu held. A keyframe that waits for this place in the
// log is of another size now.
func (t *terminal) resized(cols, rows int) {
	t.log.Resize(cols, rows)
	for a := range t.attachments {
		if a.keyframe != nil && a.sent == 0 && a.keyframe.at.Offset() == t.log.Head() {
			a.putOff()
		}
	}
	t.wakeAll()
}

// shown returns the terminal as a list shows it.
func (t *terminal) shown() protocol.PTYInfo {
	t.mu.Lock()
	defer t.mu.Unlock()
	info := t.info
	info.Cols, info.Rows = t.log.SizeAt(t.log.Head())
	if exited, ok := t.log.Exited(); ok {
		info.Exited = &exited
	}
	return info
}

// sockets counts a user's sockets at all relays. It is called with mu held.
func (t *terminal) sockets(user protocol.UserID) (n int) {
	for a := range t.attachments {
		n += a.present[user]
	}
	return n
}

// leaseChanged tells everybody how the lease stands, the one who proposed it
// under the proposal's id, and has the grace end in time. It is called with mu
// held.
func (t *terminal) leaseChanged(proposer *attachment, id uint64) {
	now := time.Now()
	leased := protocol.Leased{Lease: t.lease.Lease(now)}
	if leased.Lease.Holder == "" {
		t.grant = nil
	}
	for a := range t.attachments {
		leased.ID = 0
		if a == proposer {
			leased.ID = id
		}
		a.post(leased)
	}
	if t.grace != nil {
		t.grace.Stop()
		t.grace = nil
	}
	if deadline, ok := t.lease.Deadline(); ok {
		t.grace = time.AfterFunc(time.Until(deadline), t.expire)
	}
}

// expire frees a lease whose grace is over.
func (t *terminal) expire() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.ended {
		return
	}
	if t.lease.Expire(time.Now()) {
		t.leaseChanged(nil, 0)
	} else if deadline, ok := t.lease.Deadline(); ok { // a moment too early
		t.grace = time.AfterFunc(max(time.Until(deadline), time.Millisecond), t.expire)
	}
}

// seen notes that a user's sockets may have changed. It is called with mu held.
func (t *terminal) seen(user protocol.UserID) {
	if !t.ended && t.lease.Sockets(user, t.sockets(user), time.Now()) {
		t.leaseChanged(nil, 0)
	}
}
