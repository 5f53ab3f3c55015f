package agent

import (
	"context"
	"crypto/ecdh"
	"crypto/rand"
	"errors"
	"fmt"
	"net"
	"net/http"
	"path/filepath"
	"strconv"
	"sync"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/protocol/envseal"
	"github.com/fairlead/fairlead/protocol/op"
	"github.com/fairlead/fairlead/sandbox-agent/internal/approval"
	"github.com/fairlead/fairlead/sandbox-agent/internal/broker"
	"github.com/fairlead/fairlead/sandbox-agent/internal/egress"
	"github.com/fairlead/fairlead/sandbox-agent/internal/environment"
	"github.com/fairlead/fairlead/sandbox-agent/internal/files"
	"github.com/fairlead/fairlead/sandbox-agent/internal/files/workspace"
	"github.com/fairlead/fairlead/sandbox-agent/internal/hostname"
	"github.com/fairlead/fairlead/sandbox-agent/internal/loopback"
	"github.com/fairlead/fairlead/sandbox-agent/internal/outbound"
	"github.com/fairlead/fairlead/sandbox-agent/internal/peer"
	"github.com/fairlead/fairlead/sandbox-agent/internal/preview"
	"github.com/fairlead/fairlead/sandbox-agent/internal/redact"
	"github.com/fairlead/fairlead/sandbox-agent/internal/route"
	"github.com/fairlead/fairlead/sandbox-agent/internal/terminal"
)

// A local is what the agent does for its terminals' programs, and what people
// see of them beside the terminals: variables and secrets, the broker, the
// egress proxy, approvals and files.
type local struct {
	// Static after construction.
	agent       *Agent
	isolated    bool // each terminal has a uid of its own
	private     *ecdh.PrivateKey
	environment *environment.Store
	broker      *broker.Server
	rules       *egress.Rules
	proxy       *egress.Proxy
	approvals   *approval.Log
	files       *files.Files
	static      outbound.Static
	listeners   listeners
	ports       loopback.Agent // of the listeners
	workshop    *workshop
	registry    *prometheus.Registry            // of the tools' metrics
	rejects     func() map[protocol.Kind]uint64 // commands that were refused

	enforcing sync.Once        // makes enforcer when the first terminal needs it
	enforcer  *egress.Enforcer // after enforcing
}

// newLocal opens what is kept in the state directory and the listeners.
// Requests are served once it runs.
func newLocal(a *Agent, isolation terminal.Isolation) (_ *local, err error) {
	s := &local{
		agent: a, isolated: isolation == terminal.IsolationUID, registry: prometheus.NewRegistry(),
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, s.close())
		}
	}()
	if s.listeners, err = a.cfg.listen(); err != nil {
		return nil, err
	}
	s.ports = s.listeners.ports()
	s.registry.MustRegister(a.tunnels)
	if s.private, err = a.identity.Device.ECDH(); err != nil {
		return nil, err
	}
	if s.static, err = outbound.ParseStatic(a.cfg.OutboundHosts); err != nil {
		return nil, fmt.Errorf("--outbound-hosts: %w", err)
	}
	s.approvals, err = approval.Open(approval.Options{
		Dir: filepath.Join(a.cfg.StateDir, "approvals"), Logger: a.log, OnEvent: s.noteApproval,
	})
	if err != nil {
		return nil, err
	}
	if s.rules, err = egress.OpenRules(filepath.Join(a.cfg.StateDir, "egress.json"), a.cfg.Egress); err != nil {
		return nil, err
	}
	dialer := &outbound.Dialer{Static: s.static}
	if err := s.openBroker(dialer); err != nil {
		return nil, err
	}
	if s.workshop, err = newWorkshop(s); err != nil {
		return nil, err
	}
	s.environment = environment.New(environment.Options{Broker: s.broker, OnSecrets: s.mask, OnRunning: s.applyEnv})
	return s, s.openProxy(dialer)
}

func (s *local) openBroker(dialer *outbound.Dialer) (err error) {
	options := broker.Options{
		Listener: s.listeners.broker, Dialer: dialer, Ask: s.askBroker, Audit: s.noteRequest,
		Masker: func() broker.Masker { return s.agent.secrets.Stream() },
	}
	if s.isolated {
		options.PeerUID = peer.UID
	}
	s.broker, err = broker.NewServer(options)
	return err
}

func (s *local) openProxy(dialer *outbound.Dialer) (err error) {
	config := egress.Config{
		Listener: s.listeners.egress, Rules: s.rules, Approver: s,
		Dial:      func(ctx context.Context, host hostname.Host) (net.Conn, error) { return dialer.DialHost(ctx, host, 0) },
		Check:     func(host hostname.Host) error { return dialer.Check(host, 0) },
		Forbidden: s.ports.Owns, OnEvent: s.noteVerdict,
	}
	if s.isolated {
		config.PeerUID = peer.UID
	}
	s.proxy, err = egress.New(config)
	return err
}

// fileOwner returns the uid that files have which people put into the workspace:
// a terminal's, so that programs may change their mode. Any will do, for
// terminals share the workspace.
func (s *local) fileOwner() (uid int, ok bool) {
	for _, t := range s.agent.host.Running() {
		return t.UID, true
	}
	return terminal.DefaultFirstUID, true
}

// open opens the workspace, which the terminals' host has made, and what works in
// it.
func (s *local) open() error {
	options := workspace.Options{Dir: s.agent.cfg.Workspace, Logger: s.agent.log}
	if s.isolated {
		options.Own, options.Owner = s.agent.host.OwnsUID, s.fileOwner
	}
	tree, err := workspace.Open(options)
	if err != nil {
		return err
	}
	s.files = &files.Files{
		FS: tree, Marked: files.DefaultMarked, Log: s.agent.log,
		Redact: func() files.Masker { return s.agent.secrets.Stream() },
	}
	return s.workshop.open()
}

// run serves the sandbox's programs until ctx ends.
func (s *local) run(ctx context.Context) {
	var serving sync.WaitGroup
	defer serving.Wait()
	serving.Go(func() {
		if err := s.broker.Serve(); err != nil && ctx.Err() == nil {
			s.agent.log.Error("the broker has ended", "err", err)
		}
	})
	serving.Go(func() {
		if err := s.proxy.Run(ctx); err != nil && ctx.Err() == nil {
			s.agent.log.Error("the egress proxy has ended", "err", err)
		}
	})
	serving.Go(func() { s.workshop.run(ctx) })
	<-ctx.Done()
	if err := s.broker.Close(); err != nil {
		s.agent.log.Debug("broker", "err", err)
	}
}

// close releases what is left when the terminals have ended. It is called after
// run, and also when there was none.
func (s *local) close() error {
	errs := []error{s.listeners.Close()}
	if s.workshop != nil {
		s.workshop.close()
	}
	if s.approvals != nil {
		s.approvals.Close()
	}
	if s.files != nil {
		errs = append(errs, s.files.Close())
	}
	if s.enforcer != nil {
		errs = append(errs, s.enforcer.Close())
	}
	return errors.Join(errs...)
}

// routes returns what relays may ask of the sandbox over HTTP.
func (s *local) routes() ([]interface{ Routes(*http.ServeMux) }, error) {
	metrics, err := s.newMetrics()
	if err != nil {
		return nil, err
	}
	return []interface{ Routes(*http.ServeMux) }{
		s.workshop.server, s.workshop.browser, metrics,
		&preview.Preview{Ports: loopback.Ports{Agent: s.ports, Terminals: s.agent.host}, Log: s.agent.log},
		s.files, s.approvals, s.environment, s,
	}, nil
}

// Routes serves the rules by which a session reaches the network.
func (s *local) Routes(mux *http.ServeMux) {
	route.GetJSON(mux, "egress/allowlist", protocol.CapApprove, func(session protocol.SessionID) any { return s.egressRules(session) })
}

// openEnv opens the values of env.apply.
func (s *local) openEnv(box []byte) (protocol.EnvValues, error) {
	return envseal.Open(s.private, s.agent.identity.Enrolment.SandboxID, box)
}

// ApplyEnv implements [environment.Applier].
func (s *local) ApplyEnv(_ context.Context, session protocol.SessionID, pty protocol.PTYID, values protocol.EnvValues, unset []string, now bool) error {
	if pty != "" {
		if _, ok := s.agent.host.UID(session, pty); !ok {
			return protocol.Errorf(protocol.KindNotFound, "no such terminal")
		}
	}
	return s.environment.Apply(session, pty, values, unset, now)
}

// mask has secrets masked from now on, wherever output may show them.
func (s *local) mask(secrets []string) error {
	set, err := redact.Compile(secrets)
	switch {
	case errors.Is(err, redact.ErrTooMany):
		return protocol.Errorf(protocol.KindTooMany, "%w", redact.ErrTooMany)
	case err != nil:
		return protocol.Errorf(protocol.KindInvalid, "a secret is too short to be masked, without what can't be seen of it")
	}
	s.agent.secrets.Use(set)
	s.agent.host.SetSecrets(set, secrets)
	return nil
}

func (s *local) applyEnv(session protocol.SessionID, pty protocol.PTYID, script []byte) error {
	return s.agent.host.ApplyEnv(session, pty, script)
}

// environ returns what a new terminal, or a coding agent in front of one, has in
// its environment.
func (s *local) environ(session protocol.SessionID, pty protocol.PTYID, uid int, create op.PTYCreate) ([]string, protocol.EgressState, error) {
	env, err := s.environment.Environ(session, pty, uid)
	if err != nil || !s.goesThroughProxy(session, create) {
		return env, "", err
	}
	state, _ := s.enforcement()
	if uid > 0 && state == protocol.EgressEnforced {
		if err := s.enforcer.Add(uid); err != nil { // better none than one that gets out
			return nil, "", protocol.Fault(protocol.KindUnavailable, err)
		}
	}
	return append(env, s.proxy.Environ(session, pty, uid, rand.Text())...), state, nil
}

// goesThroughProxy reports whether a terminal is sent through the egress proxy.
// Whoever makes one can ask for that, but can't get around it.
func (s *local) goesThroughProxy(session protocol.SessionID, create op.PTYCreate) bool {
	return s.rules.Enabled(session) || create.Egress != nil && *create.Egress
}

// ended forgets a terminal.
func (s *local) ended(session protocol.SessionID, pty protocol.PTYID, uid int) {
	s.workshop.ended(session, pty)
	s.environment.Ended(session, pty)
	s.proxy.Forget(session, pty)
	if state, _ := s.enforcementNow(); uid > 0 && state == protocol.EgressEnforced {
		if err := s.enforcer.Remove(uid); err != nil {
			s.agent.log.Warn("a terminal's uid stays confined", "uid", uid, "err", err)
		}
	}
}

// sessionEnded forgets a session that was deleted.
func (s *local) sessionEnded(session protocol.SessionID) {
	s.workshop.sessionEnded(session)
	s.approvals.Forget(session)
	err := errors.Join(s.rules.Delete(session), s.environment.Forget(session))
	if err != nil {
		s.agent.log.Warn("an ended session was not wholly forgotten", "session", session, "err", err)
	}
}

// enforcement returns how far terminals are kept to the proxy, and why not
// further. The first call sets it up.
func (s *local) enforcement() (protocol.EgressState, string) {
	s.enforcing.Do(func() {
		if s.isolated {
			s.enforcer = egress.NewEnforcer(s.agent.identity.Enrolment.SandboxID)
		}
	})
	return s.enforcementNow()
}

func (s *local) enforcementNow() (protocol.EgressState, string) {
	switch {
	case !s.isolated:
		return protocol.EgressAdvisory, "terminals run as the agent's own user"
	case s.enforcer == nil:
		return protocol.EgressAdvisory, "nothing is enforced yet"
	}
	return s.enforcer.Status()
}

// Status returns how far terminals are kept to the proxy where their session
// doesn't say.
func (s *local) Status() (protocol.EgressState, string) {
	if !s.agent.cfg.Egress {
		return protocol.EgressOff, ""
	}
	return s.enforcement()
}

// egressRules is what people see of a session's rules.
func (s *local) egressRules(session protocol.SessionID) protocol.EgressRules {
	allow, deny := s.rules.List(session)
	rules := protocol.EgressRules{
		State: protocol.EgressOff, Defaults: s.rules.Defaults(), User: allow, Denied: deny, Static: s.static.Hosts(),
	}
	if s.rules.Enabled(session) {
		rules.State, rules.Why = s.enforcement()
	}
	return rules
}

// Ask implements [egress.Approver].
func (s *local) Ask(ctx context.Context, session protocol.SessionID, pty protocol.PTYID, host hostname.Host) (protocol.Decision, error) {
	if pty == browserPTY {
		pty = ""
	}
	return s.approvals.Await(ctx, approval.Request{
		Session: session, PTY: pty, Kind: protocol.ApprovalEgress, Host: host.Hostname(), Port: host.Port,
	})
}

// ruled settles the connections that wait for an answer and have one by a rule
// that was made: nobody need be asked about them any more, nor could decide
// otherwise.
func (s *local) ruled(by protocol.Approval) {
	for _, a := range s.approvals.List(by.SessionID).Approvals {
		if a.State != protocol.ApprovalPending || a.Kind != protocol.ApprovalEgress {
			continue
		}
		host, err := hostname.Parse(net.JoinHostPort(a.Host, strconv.Itoa(a.Port)), 0)
		if err != nil {
			continue // it never is
		}
		allowed, known := s.rules.Verdict(a.SessionID, host)
		if !known {
			continue
		}
		by.ID, by.Revision, by.Decision = a.ID, a.Revision, protocol.Deny
		if allowed {
			by.Decision = protocol.AllowOnce
		}
		if _, _, err := s.approvals.Decide(by); err != nil {
			s.agent.log.Warn("an approval that a rule has answered stays open", "id", a.ID, "err", err)
		}
	}
}

// askBroker asks whether a secret may go to a domain. Nobody waits for the
// answer.
func (s *local) askBroker(session protocol.SessionID, pty protocol.PTYID, secret, domain string) {
	_, err := s.approvals.Ask(approval.Request{
		Session: session, PTY: pty, Kind: protocol.ApprovalBroker, Host: domain, Secret: secret,
	})
	if err != nil {
		s.agent.log.Warn("nobody is asked about a secret", "session", session, "secret", secret, "host", domain, "err", err)
	}
}

// noteApproval records a change of an approval and tells the control plane. It
// must not block.
func (s *local) noteApproval(a protocol.Approval) {
	s.agent.audit.Approval(a)
	s.agent.authority.Outbox.Approval(a)
}

func (s *local) noteVerdict(e egress.Event) {
	s.agent.log.Debug("egress", "session", e.Session, "pty", e.PTY, "host", e.Host, "reason", e.Reason, "waited", e.Waited)
}

func (s *local) noteRequest(r broker.Record) {
	s.agent.log.Debug("broker", "session", r.Session, "pty", r.PTY, "provider", r.Provider, "host", r.Host,
		"status", r.Status, "error", r.Error, "took", r.Duration)
}
