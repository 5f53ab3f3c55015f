package terminal

import (
	"log/slog"
	"sync"
	"time"

	"github.com/fairlead/fairlead/protocol"
)

const (
	// maxLeaseChanges bounds the changes of leases that wait for who is told.
	maxLeaseChanges = 4096
	// tellFor is how long telling of the last ones may take.
	tellFor = 3 * time.Second
)

// leaseChanges tells somebody of the changes of leases, who may be slower than
// a terminal can wait.
type leaseChanges struct {
	// Static after construction.
	to      LeaseLog
	log     *slog.Logger
	waiting chan leaseChange
	ending  latch
	ended   chan struct{} // closed when all that waited was told

	mu   sync.Mutex
	lost int // guarded by mu: changes that nobody was told of
}

// A leaseChange is how a lease stands after a change.
type leaseChange struct {
	session protocol.SessionID
	pty     protocol.PTYID
	lease   protocol.Lease
}

func newLeaseChanges(to LeaseLog, log *slog.Logger) *leaseChanges {
	c := &leaseChanges{
		to: to, log: log, waiting: make(chan leaseChange, maxLeaseChanges),
		ending: latch{c: make(chan struct{})}, ended: make(chan struct{}),
	}
	go c.run() // end waits for it, but not for ever
	return c
}

// note has somebody told of a change, and never waits.
func (c *leaseChanges) note(session protocol.SessionID, pty protocol.PTYID, lease protocol.Lease) {
	select {
	case c.waiting <- leaseChange{session, pty, lease}:
	default:
		c.mu.Lock()
		defer c.mu.Unlock()
		if c.lost++; c.lost == 1 {
			c.log.Error("changes of control are not recorded: they come too fast", "pty", pty)
		}
	}
}

func (c *leaseChanges) run() {
	defer close(c.ended)
	for {
		select {
		case m := <-c.waiting:
			c.to.Lease(m.session, m.pty, m.lease, "")
		case <-c.ending.c:
			for {
				select {
				case m := <-c.waiting:
					c.to.Lease(m.session, m.pty, m.lease, "")
				default:
					return
				}
			}
		}
	}
}

// end returns when everything that was noted was told, or after tellFor. It does
// nothing for nil.
func (c *leaseChanges) end() {
	if c == nil {
		return
	}
	c.ending.raise()
	late := time.NewTimer(tellFor)
	defer late.Stop()
	select {
	case <-c.ended:
	case <-late.C:
		c.log.Error("the last changes of control are not recorded: that takes too long")
	}
}
