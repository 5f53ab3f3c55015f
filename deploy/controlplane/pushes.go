package controlplane

import (
	"context"
	"encoding/json"
	"fmt"
	"sync"
	"time"

	"github.com/fairlead/fairlead/deploy/controlplane/internal/store"
	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/protocol/op"
)

const (
	pushWorkers = 32   // commands under way to sandboxes, at most
	maxPushes   = 4096 // terminals that wait for one, at most
	pushTimeout = 15 * time.Second
)

// pushes tell sandboxes that the integrations of their terminals are others than
// before. What a sandbox doesn't get it finds out by itself, so that is tried
// once; changes of a terminal that come while it waits are one.
type pushes struct {
	// Static after construction.
	tell func(ctx context.Context, at pushTarget) error
	fail func(at pushTarget, err error)
	ctx  context.Context

	wg sync.WaitGroup // workers

	mu sync.Mutex
	// Guarded by mu.
	closed  bool
	waiting map[pushTarget]bool
	order   []pushTarget // of waiting
	busy    map[pushTarget]bool
	workers int
	dropped uint64 // since the server began: maxPushes were waiting
}

type pushTarget struct {
	sandbox protocol.SandboxID
	session protocol.SessionID
	pty     protocol.PTYID
}

func newPushes(ctx context.Context, tell func(context.Context, pushTarget) error, fail func(pushTarget, error)) *pushes {
	return &pushes{
		tell: tell, fail: fail, ctx: ctx,
		waiting: make(map[pushTarget]bool), busy: make(map[pushTarget]bool),
	}
}

// add has a sandbox told of a terminal, soon.
func (p *pushes) add(at pushTarget) {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case p.closed, at.sandbox == "", p.waiting[at]:
		return
	case len(p.order) >= maxPushes:
		p.dropped++
		if p.dropped%maxPushes == 1 {
			p.fail(at, fmt.Errorf("%d others wait already; %d dropped so far", maxPushes, p.dropped))
		}
		return
	}
	p.waiting[at] = true
	p.order = append(p.order, at)
	if p.workers < pushWorkers {
		p.workers++
		p.wg.Go(p.work) // close waits for it
	}
}

// work tells what waits until nothing does.
func (p *pushes) work() {
	for {
		at, ok := p.next()
		if !ok {
			return
		}
		ctx, cancel := context.WithTimeout(p.ctx, pushTimeout)
		err := p.tell(ctx, at)
		cancel()
		if err != nil {
			p.fail(at, err)
		}
		p.mu.Lock()
		delete(p.busy, at)
		p.mu.Unlock()
	}
}

// next takes the first that waits and isn't being told: whoever tells that one
// finds it afterwards.
func (p *pushes) next() (pushTarget, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for i, at := range p.order {
		if p.closed {
			break
		}
		if p.busy[at] {
			continue
		}
		p.order = append(p.order[:i], p.order[i+1:]...)
		delete(p.waiting, at)
		p.busy[at] = true
		return at, true
	}
	p.workers--
	return pushTarget{}, false
}

// close drops what waits, and waits for what is under way, which ends with ctx.
func (p *pushes) close() {
	p.mu.Lock()
	p.closed = true
	p.mu.Unlock()
	p.wg.Wait()
}

// pushAttachments tells the sandboxes of terminals whose attachments changed.
func (s *Server) pushAttachments(changed []store.Attachment) {
	for _, t := range changed {
		s.integrations.pushes.add(pushTarget{t.Sandbox, t.Session, t.PTY})
	}
}

// tellIntegrations dispatches an integrations.changed to a sandbox.
func (s *Server) tellIntegrations(ctx context.Context, at pushTarget) error {
	data, err := json.Marshal(op.Op{Kind: op.KindIntegrationsChanged})
	if err != nil {
		return err
	}
	return s.tellSandbox(ctx, operation{
		Kind: op.KindIntegrationsChanged, Op: data, TTLMs: protocol.DefaultCommandTTL.Milliseconds(),
		Target: protocol.CommandTarget{SandboxID: at.sandbox, SessionID: at.session, PTYID: at.pty},
	})
}

// tellSandbox signs an operation that is the control plane's own, and has it
// done; while no relay is connected nothing happens.
func (s *Server) tellSandbox(ctx context.Context, do operation) error {
	all, err := s.relays.Registered(ctx)
	if err != nil || len(all) == 0 {
		return err
	}
	o := order{operation: do, origin: all[0].PublicOrigin}
	if o.requestHash, err = s.hashOf(do); err != nil {
		return err
	}
	cmd, err := s.sign(ctx, o)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, protocol.DefaultCommandTTL)
	defer cancel()
	if cmd.Outcome, err = s.dispatch(ctx, all, cmd); err != nil {
		return err
	}
	return s.finish(context.WithoutCancel(ctx), cmd)
}

// TellRevoked dispatches a grant.revoke to a sandbox.
func (s *Server) TellRevoked(ctx context.Context, sandbox protocol.SandboxID, grants []protocol.GrantID) error {
	data, err := json.Marshal(op.Op{Kind: op.KindGrantRevoke, Body: &op.GrantRevoke{Grants: grants}})
	if err != nil {
		return err
	}
	return s.tellSandbox(ctx, operation{
		Kind: op.KindGrantRevoke, Op: data, TTLMs: protocol.DefaultCommandTTL.Milliseconds(),
		Target: protocol.CommandTarget{SandboxID: sandbox},
	})
}
