package integrations

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/fairlead/fairlead/deploy/controlplane/internal/store"
	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/protocol/op"
)

const (
	notifyWorkers = 32   // commands under way to sandboxes, at most
	maxWaiting    = 4096 // terminals that wait for one, at most
	notifyTimeout = 15 * time.Second
)

// Commands has sandboxes do what the control plane itself wants.
type Commands interface {
	// Tell signs an operation, and waits until its target has done it. While no
	// relay is connected nothing happens.
	Tell(ctx context.Context, what op.Op, target protocol.CommandTarget) error
}

// A notifier tells sandboxes that the integrations of their terminals have
// changed. It tries once, since an agent also asks by itself; changes of a
// terminal that come while it waits are one.
type notifier struct {
	// Static after construction.
	commands Commands
	logger   *slog.Logger
	ctx      context.Context

	wg sync.WaitGroup // workers

	mu sync.Mutex
	// Guarded by mu.
	closed  bool
	waiting map[terminal]bool
	order   []terminal // of waiting
	busy    map[terminal]bool
	workers int
	dropped uint64 // since the server began: maxWaiting were waiting
}

// A terminal is one whose sandbox is to be told.
type terminal struct {
	sandbox protocol.SandboxID
	session protocol.SessionID
	pty     protocol.PTYID
}

func newNotifier(ctx context.Context, commands Commands, logger *slog.Logger) *notifier {
	return &notifier{
		commands: commands, logger: logger, ctx: ctx,
		waiting: make(map[terminal]bool), busy: make(map[terminal]bool),
	}
}

// changed tells the sandboxes of terminals whose attachments changed.
func (n *notifier) changed(attachments []store.Attachment) {
	for _, t := range attachments {
		n.add(terminal{t.Sandbox, t.Session, t.PTY})
	}
}

// add has a sandbox told of a terminal, soon.
func (n *notifier) add(at terminal) {
	n.mu.Lock()
	defer n.mu.Unlock()
	switch {
	case n.closed, at.sandbox == "", n.waiting[at]:
		return
	case len(n.order) >= maxWaiting:
		n.dropped++
		if n.dropped%maxWaiting == 1 {
			n.failed(at, fmt.Errorf("%d others wait already; %d dropped so far", maxWaiting, n.dropped))
		}
		return
	}
	n.waiting[at] = true
	n.order = append(n.order, at)
	if n.workers < notifyWorkers {
		n.workers++
		n.wg.Go(n.work) // close waits for it
	}
}

// work tells what waits until nothing does.
func (n *notifier) work() {
	for {
		at, ok := n.next()
		if !ok {
			return
		}
		ctx, cancel := context.WithTimeout(n.ctx, notifyTimeout)
		err := n.tell(ctx, at)
		cancel()
		if err != nil {
			n.failed(at, err)
		}
		n.mu.Lock()
		delete(n.busy, at)
		n.mu.Unlock()
	}
}

// next takes the first that waits and isn't being told: whoever tells that one
// finds it afterwards.
func (n *notifier) next() (terminal, bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for i, at := range n.order {
		if n.closed {
			break
		}
		if n.busy[at] {
			continue
		}
		n.order = append(n.order[:i], n.order[i+1:]...)
		delete(n.waiting, at)
		n.busy[at] = true
		return at, true
	}
	n.workers--
	return terminal{}, false
}

// close drops what waits, and waits for what is under way, which ends with ctx.
func (n *notifier) close() {
	n.mu.Lock()
	n.closed = true
	n.mu.Unlock()
	n.wg.Wait()
}

func (n *notifier) tell(ctx context.Context, at terminal) error {
	return n.commands.Tell(ctx, op.Op{Kind: op.KindIntegrationsChanged},
		protocol.CommandTarget{SandboxID: at.sandbox, SessionID: at.session, PTYID: at.pty})
}

func (n *notifier) failed(at terminal, err error) {
	n.logger.Warn("a sandbox was not told of changed integrations",
		"sandbox", at.sandbox, "session", at.session, "pty", at.pty, "error", err)
}
