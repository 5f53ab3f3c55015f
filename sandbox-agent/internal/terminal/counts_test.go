package terminal

import (
	"testing"
	"testing/synctest"

	"github.com/fairlead/fairlead/protocol"
)

// TestCounts: what terminals print and take is added up, and goes on when one
// has ended.
func TestCounts(t *testing.T) {
	hostBubble(t, func(t *testing.T, h *fakeHost) {
		h.create(t, "pty_1")
		h.launched[0].dev.output <- []byte("hello")
		synctest.Wait()
		h.mu.Lock()
		terminal := h.listed["pty_1"]
		h.mu.Unlock()
		a, _, err := terminal.Attach(protocol.TerminalParams{SessionID: session, PTYID: "pty_1"})
		if err != nil {
			t.Fatal(err)
		}
		if c := h.Counts(); c.Started != 1 || c.Ended != 0 || c.OutputBytes != 5 || c.Attached != 1 || c.Paced != 0 {
			t.Errorf("%+v", c)
		}
		a.Close()
		h.end(0)
		if c := h.Counts(); c.Started != 1 || c.Ended != 1 || c.OutputBytes != 5 || c.Attached != 0 {
			t.Errorf("after the end: %+v", c)
		}
	})
}

// TestInputIsCounted: what was written, and what was refused, by its reason.
func TestInputIsCounted(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		v := r.attach(t, nil)
		term := v.propose(alice).Lease.Term
		v.typed(term, 1, "ls\r")
		v.wantAck(1)
		v.typed(term-1, 2, "late")
		synctest.Wait()
		c := &r.counts.arbiters
		if n, refused := c.InputBytes.Load(), c.Refused(); n != 3 || refused[protocol.RefusedStaleTerm] != 1 || len(refused) != 1 {
			t.Errorf("%d, %v", n, refused)
		}
	})
}
