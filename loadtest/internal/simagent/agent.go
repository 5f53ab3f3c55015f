package simagent

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/protocol/jws"
	"github.com/fairlead/fairlead/tunnel"
	"github.com/fairlead/fairlead/tunnel/terminalstream"
)

// An agent is one simulated sandbox.
type agent struct {
	// Static after construction.
	fleet       *Fleet
	sandbox     protocol.SandboxID
	certificate string
	device      *jws.DeviceKey
	ladder      tunnel.Ladder

	// Owned by tunnel.Run.
	relay int // the next to dial

	mu sync.Mutex
	// Guarded by mu.
	terminals map[protocol.PTYID]*terminal // nil: none yet
	ledger    *ledger                      // nil: no command yet
}

// run keeps the agent connected until ctx ends.
func (a *agent) run(ctx context.Context) {
	f := a.fleet
	defer a.closeAll()
	cfg := tunnel.RunConfig{Keeper: a, Logger: f.log}
	if len(f.cfg.Carriers) == 0 {
		cfg.Climb = &tunnel.Climb{Climber: a, Ladder: &a.ladder}
	}
	err := tunnel.Run(ctx, cfg)
	if ctx.Err() == nil {
		f.log.Warn("a simulated agent has ended", "sandbox", a.sandbox, "err", err)
		f.count(func(s *Stats) { s.Ended++ })
	}
}

// Fatal says that another copy of the sandbox took over.
func (a *agent) Fatal(err error) bool {
	e, ok := errors.AsType[*protocol.Error](err)
	return ok && e.Kind == protocol.KindSuperseded
}

// Next returns the relay to dial: one after the other.
func (a *agent) Next(context.Context) (string, error) {
	relays := a.fleet.cfg.Relays
	addr := relays[a.relay%len(relays)]
	a.relay++
	return addr, nil
}

// Dial registers by the carriers that are allowed.
func (a *agent) Dial(ctx context.Context, addr string) (*tunnel.Session, error) {
	return a.dial(ctx, addr, a.fleet.cfg.Carriers...)
}

// dial opens and registers a tunnel under a new generation.
func (a *agent) dial(ctx context.Context, addr string, by ...tunnel.Carrier) (*tunnel.Session, error) {
	f := a.fleet
	session, err := tunnel.Dial(ctx, tunnel.DialConfig{
		Addr: addr, TLS: f.tls, Carriers: by, Ladder: &a.ladder, Logger: f.log,
		Hello: a.hello,
	})
	if err != nil {
		f.count(func(s *Stats) { s.Failures++ })
		if f.cfg.Failed != nil {
			f.cfg.Failed(a.sandbox, time.Now(), err)
		}
	}
	return session, err
}

func (a *agent) hello(c protocol.Challenge, exporter []byte) (protocol.Hello, error) {
	signature, err := a.device.Sign(protocol.HelloTranscript(c.RelayID, c.Nonce, exporter))
	return protocol.Hello{
		MinVersion: protocol.MinVersion, MaxVersion: protocol.MaxVersion,
		SandboxID: a.sandbox, Certificate: a.certificate,
		Generation: a.fleet.generation.Add(1), InstanceID: a.fleet.instance,
		Revision: "simulated", Isolation: "none", Signature: signature,
	}, err
}

// Probe checks whether QUIC gets through.
func (a *agent) Probe(ctx context.Context, addr string) error {
	return tunnel.Probe(ctx, tunnel.DialConfig{Addr: addr, TLS: a.fleet.tls})
}

// Climb registers again over QUIC.
func (a *agent) Climb(ctx context.Context, addr string, _ *tunnel.Session) (*tunnel.Session, error) {
	return a.dial(ctx, addr, tunnel.CarrierQUIC)
}

// Serve uses a registered tunnel until it is over.
func (a *agent) Serve(ctx context.Context, _ string, session *tunnel.Session) error {
	f := a.fleet
	defer session.Close() // again, if it comes to streams
	if err := session.SendRole(protocol.Role{Primary: true, Generation: f.generation.Add(1)}); err != nil {
		return err
	}
	f.count(func(s *Stats) { s.Connected++; s.Registrations++ })
	if f.cfg.Registered != nil {
		f.cfg.Registered(a.sandbox, time.Now())
	}
	err := a.streams(ctx, session)
	f.count(func(s *Stats) { s.Connected--; s.Lost++ })
	if f.cfg.Lost != nil {
		f.cfg.Lost(a.sandbox, time.Now(), session.Err())
	}
	return err
}

// streams answers what the relay opens until the tunnel is over.
func (a *agent) streams(ctx context.Context, session *tunnel.Session) error {
	ctx, cancel := context.WithCancel(ctx)
	var serving sync.WaitGroup
	defer serving.Wait()
	defer session.Close()
	defer cancel()
	by := a.server(&watching{set: session.SetWatched})
	serving.Go(func() { // ends with the tunnel
		select {
		case m := <-session.GoAways():
			if m.Reason != protocol.KindSuperseded || m.InstanceID == a.fleet.instance {
				session.Close()
			}
		case <-session.Done():
		}
	})
	for {
		in, err := session.Accept(ctx)
		if err != nil {
			return a.ending(session)
		}
		serving.Go(func() {
			if err := a.answer(ctx, in, by); err != nil && ctx.Err() == nil {
				a.fleet.log.Debug("stream ended", "kind", in.Open.Kind, "err", err)
			}
		})
	}
}

// ending returns an error if another copy of the sandbox ended the tunnel.
func (a *agent) ending(session *tunnel.Session) error {
	select {
	case m := <-session.GoAways():
		if m.Reason == protocol.KindSuperseded && m.InstanceID != a.fleet.instance {
			return protocol.Errorf(protocol.KindSuperseded, "another copy of sandbox %s took over", a.sandbox)
		}
	default:
	}
	return nil
}

// watching says whether somebody watches a terminal through one tunnel.
type watching struct {
	set func(bool)
	n   atomic.Int64
}

func (w *watching) begin() {
	if w.n.Add(1) == 1 {
		w.set(true)
	}
}

func (w *watching) end() {
	if w.n.Add(-1) == 0 {
		w.set(false)
	}
}

// answer serves one stream.
func (a *agent) answer(ctx context.Context, in *tunnel.Incoming, by *terminalstream.Server) error {
	switch in.Open.Kind {
	case protocol.StreamTerminal:
		return by.Terminal(ctx, in)
	case protocol.StreamRead:
		return by.Read(ctx, in)
	case protocol.StreamCommand:
		return a.commandStream(ctx, in)
	case protocol.StreamHTTP:
		return a.httpStream(ctx, in, by)
	}
	return in.Refuse(protocol.Errorf(protocol.KindUnsupported, "a simulated sandbox has no %q streams", string(in.Open.Kind)))
}

// find returns a terminal of a session.
func (a *agent) find(session protocol.SessionID, id protocol.PTYID) (*terminal, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	t := a.terminals[id]
	if t == nil || t.session != session {
		return nil, protocol.Errorf(protocol.KindNotFound, "no such terminal")
	}
	return t, nil
}

// list returns the terminals of a session, of all if that is empty.
func (a *agent) list(session protocol.SessionID) []*terminal {
	a.mu.Lock()
	defer a.mu.Unlock()
	var list []*terminal
	for _, t := range a.terminals {
		if session == "" || t.session == session {
			list = append(list, t)
		}
	}
	return list
}

// add puts a terminal on the list.
func (a *agent) add(t *terminal) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.terminals == nil {
		a.terminals = make(map[protocol.PTYID]*terminal)
	}
	switch {
	case a.terminals[t.info.ID] != nil:
		return protocol.Errorf(protocol.KindConflict, "terminal %s exists already", t.info.ID)
	case len(a.terminals) >= protocol.MaxPTYs:
		return protocol.Errorf(protocol.KindTooMany, "over %d terminals", protocol.MaxPTYs)
	}
	a.terminals[t.info.ID] = t
	a.fleet.count(func(s *Stats) { s.Terminals++ })
	return nil
}

// remove ends terminals and takes them off the list.
func (a *agent) remove(list ...*terminal) {
	for _, t := range list {
		a.mu.Lock()
		known := a.terminals[t.info.ID] == t
		delete(a.terminals, t.info.ID)
		a.mu.Unlock()
		if known {
			a.fleet.count(func(s *Stats) { s.Terminals-- })
		}
		t.close()
	}
}

func (a *agent) closeAll() { a.remove(a.list("")...) }
