package integrations

import (
	"context"
	"log/slog"
	"testing"

	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/protocol/op"
)

// slowCommands says which terminal it tells of, and waits then.
type slowCommands struct {
	begun chan terminal
	goOn  chan struct{}
}

func (c *slowCommands) Tell(_ context.Context, _ op.Op, target protocol.CommandTarget) error {
	c.begun <- terminal{target.SandboxID, target.SessionID, target.PTYID}
	<-c.goOn
	return nil
}

// TestNotifier: changes of a terminal that wait are one, terminals don't wait for
// each other, and nothing is left behind.
func TestNotifier(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	begun, goOn := make(chan terminal), make(chan struct{})
	p := newNotifier(ctx, &slowCommands{begun, goOn}, slog.New(slog.DiscardHandler))
	slow, other := terminal{"sb_1", "ses_1", "pty_1"}, terminal{"sb_1", "ses_1", "pty_2"}
	p.add(slow)
	<-begun
	for range 1000 {
		p.add(slow)
	}
	p.add(other)
	if at := <-begun; at != other {
		t.Errorf("%v while %v is told", at, slow)
	}
	p.add(terminal{session: "ses_1"}) // of a dashboard without a sandbox
	goOn <- struct{}{}
	goOn <- struct{}{}
	if at := <-begun; at != slow {
		t.Errorf("%v, want %v once more", at, slow)
	}
	goOn <- struct{}{}
	p.close()
	p.add(slow)
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.workers != 0 || len(p.waiting)+len(p.order)+len(p.busy) != 0 || p.dropped != 0 {
		t.Errorf("%+v", p)
	}
}
