package agent

import (
	"context"
	"crypto/rand"
	"errors"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/fairlead/fairlead/deploy/program/intake"
	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/sandbox-agent/internal/browser"
	"github.com/fairlead/fairlead/sandbox-agent/internal/hooks"
	"github.com/fairlead/fairlead/sandbox-agent/internal/integration"
	"github.com/fairlead/fairlead/sandbox-agent/internal/loopback"
	"github.com/fairlead/fairlead/sandbox-agent/internal/mcp"
	"github.com/fairlead/fairlead/sandbox-agent/internal/peer"
	"github.com/fairlead/fairlead/sandbox-agent/internal/process"
	"github.com/fairlead/fairlead/sandbox-agent/internal/toolbox"
	"github.com/fairlead/fairlead/sandbox-agent/internal/tools"
)

// browserPTY stands for a session's browser where the egress proxy wants a
// terminal's name. No terminal has it: ids don't begin so.
const browserPTY protocol.PTYID = "-browser"

// A workshop is what coding agents work with: tools by MCP, the session's
// browser, accounts that people have attached, and settings of their own in which
// they find all that.
type workshop struct {
	// Static after construction.
	local        *local
	loopback     *http.Server
	server       *mcp.Server
	browser      *browser.Browser
	integrations *integration.Set
	program      string // path of this program, for terminals

	// Guarded by mu.
	mu          sync.Mutex
	credentials map[protocol.PTYID]protocol.MCPCredentials // of terminals that run
	proxies     map[protocol.SessionID]*url.URL            // that browsers use, with their credentials
}

// newWorkshop makes a workshop that serves once it runs; open must be called
// before.
func newWorkshop(s *local) (*workshop, error) {
	cfg := s.agent.cfg
	w := &workshop{
		local:       s,
		credentials: make(map[protocol.PTYID]protocol.MCPCredentials),
		proxies:     make(map[protocol.SessionID]*url.URL),
	}
	var err error
	if w.program, err = ownProgram(cfg.Homes, s.isolated); err != nil {
		return nil, err
	}
	return w, nil
}

// open makes what serves tools, when the terminals' host and the workspace are
// there.
func (w *workshop) open() (err error) {
	s := w.local
	if w.browser, err = w.newBrowser(); err != nil {
		return err
	}
	w.integrations, err = integration.New(integration.Options{
		Client:   integration.Client{Requests: s.agent.authority.Credentials},
		OnChange: func(session protocol.SessionID, pty protocol.PTYID) { w.server.Changed(session, pty) },
		Log:      s.agent.log,
	})
	if err != nil {
		return err
	}
	options := mcp.Options{
		Sets: []toolbox.Set{
			&tools.Terminals{Host: s.agent.host},
			s.files,
			w.browser, w.integrations,
		},
		Secrets: w.secret, Port: w.port, Mask: s.agent.secrets.Mask,
		Stopped: w.stopped, Started: s.agent.host.AgentStarted, Ready: s.agent.host.AgentReady,
		Scrollback: s.agent.host.Scrollback, OnTools: s.agent.host.NoteTools,
		Version: s.agent.cfg.Revision, Log: s.agent.log, Registry: s.registry,
	}
	if s.isolated {
		options.PeerUID, options.UID = peer.UID, s.agent.host.UID
	}
	w.server = mcp.New(options)
	here := func(r *http.Request) netip.Addr { return intake.Address(r, false) }
	w.loopback = &http.Server{
		Handler: intake.NewBodies(here, nil).Handler(w.server.Loopback()), ReadHeaderTimeout: 10 * time.Second, IdleTimeout: 5 * time.Minute, MaxHeaderBytes: 64 << 10,
	}
	return nil
}

func (w *workshop) port() int { return w.local.listeners.mcp.Addr().(*net.TCPAddr).Port }

// run serves until ctx ends.
func (w *workshop) run(ctx context.Context) {
	var serving sync.WaitGroup
	serving.Go(func() {
		if err := intake.Serve(w.loopback, w.server.Bounded(w.local.listeners.mcp), nil); !errors.Is(err, http.ErrServerClosed) {
			w.local.agent.log.Error("the listener for tools has ended", "err", err)
		}
	})
	serving.Go(func() { w.integrations.Run(ctx) })
	<-ctx.Done()
	w.loopback.Close()
	serving.Wait()
}

// close ends what may run. It is called after run, and also when there was none.
func (w *workshop) close() {
	if w.server != nil {
		w.server.Close()
	}
	if w.browser != nil {
		w.browser.Close()
	}
}

// credentialsOf returns the credentials of a terminal that runs, or is about to.
func (w *workshop) credentialsOf(session protocol.SessionID, pty protocol.PTYID) protocol.MCPCredentials {
	w.mu.Lock()
	defer w.mu.Unlock()
	c, ok := w.credentials[pty]
	if !ok || c.SessionID != session {
		c = protocol.MCPCredentials{
			URL:       "http://" + w.local.listeners.mcp.Addr().String() + "/sessions/" + string(session) + "/mcp",
			SessionID: session, PTYID: pty, Secret: rand.Text(),
		}
		w.credentials[pty] = c
		w.integrations.Track(session, pty)
	}
	return c
}

func (w *workshop) secret(session protocol.SessionID, pty protocol.PTYID) (string, bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	c, ok := w.credentials[pty]
	return c.Secret, ok && c.SessionID == session
}

// ended forgets a terminal.
func (w *workshop) ended(session protocol.SessionID, pty protocol.PTYID) {
	w.mu.Lock()
	delete(w.credentials, pty)
	w.mu.Unlock()
	w.server.Ended(session, pty)
	w.integrations.Forget(session, pty)
}

// sessionEnded forgets a session that was deleted.
func (w *workshop) sessionEnded(session protocol.SessionID) {
	w.server.Ended(session, "")
	w.integrations.Forget(session, "")
	w.browser.End(session)
	w.mu.Lock()
	delete(w.proxies, session)
	w.mu.Unlock()
	w.local.proxy.Forget(session, browserPTY)
}

// changed has the control plane asked what is attached to a terminal now.
func (w *workshop) changed(session protocol.SessionID, pty protocol.PTYID) {
	if pty == "" {
		w.integrations.RefreshAll()
		return
	}
	go func() { // ends with its request
		ctx, cancel := context.WithTimeout(context.Background(), integration.ListTimeout)
		defer cancel()
		if err := w.integrations.Refresh(ctx, session, pty); err != nil {
			w.local.agent.log.Warn("what is attached to a terminal is not known", "pty", pty, "err", err)
		}
	}()
}

// stopped passes on what a stop hook reports.
func (w *workshop) stopped(session protocol.SessionID, pty protocol.PTYID, report protocol.AgentStoppedReport) error {
	return w.local.agent.host.AgentTurn(session, pty, protocol.AgentTurn{
		Agent: report.Agent, LastMessage: report.LastMessage, Reason: report.Reason, At: time.Now().UnixMilli(),
	})
}

// noteTurn tells the control plane of a turn, as everybody sees it.
func (w *workshop) noteTurn(session protocol.SessionID, pty protocol.PTYID, turn protocol.AgentTurn) {
	w.local.agent.authority.Outbox.Turn(protocol.PTYCompleted{
		SessionID: session, PTYID: pty, Agent: turn.Agent, Status: turn.Reason, LastMessage: turn.LastMessage, At: turn.At,
	})
}

// wire has the coding agents of a terminal find our tools and run our hooks.
func (w *workshop) wire(home *os.Root, uid, gid int, _ protocol.SessionID, _ protocol.PTYID, agent string) error {
	options := hooks.Options{Agent: agent, Command: w.program}
	if uid >= 0 {
		options.Chown = func(f *os.File) error { return f.Chown(uid, gid) }
	}
	return hooks.Wire(home, options)
}

// newBrowser makes what keeps the sessions' browsers, each as a user of its own.
func (w *workshop) newBrowser() (*browser.Browser, error) {
	s := w.local
	dir := filepath.Join(s.agent.cfg.Homes, ".fairlead")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, err
	}
	metrics := browser.NewMetrics()
	if err := s.registry.Register(metrics); err != nil {
		return nil, err
	}
	return browser.New(browser.Options{
		Dir: filepath.Join(dir, "browser"), Account: w.browserAccount, Start: w.startBrowser,
		Proxy: w.browserProxy, Local: w.browserMay, PeerUID: peer.UID, Secrets: s.agent.secrets, Metrics: metrics, Log: s.agent.log,
	})
}

// browserAccount returns a user for a session's browser, which is kept to the
// egress proxy if the session's terminals are.
func (w *workshop) browserAccount(session protocol.SessionID) (browser.Account, error) {
	s := w.local
	uid, gid, release, err := s.agent.host.ReserveUID()
	if err != nil || uid < 0 || !s.rules.Enabled(session) {
		return browser.Account{UID: uid, GID: gid, Release: release}, err
	}
	state, _ := s.enforcement()
	if state != protocol.EgressEnforced {
		return browser.Account{UID: uid, GID: gid, Release: release}, nil
	}
	if err := s.enforcer.Add(uid); err != nil {
		release()
		return browser.Account{}, protocol.Fault(protocol.KindUnavailable, err)
	}
	return browser.Account{UID: uid, GID: gid, Release: func() {
		if err := s.enforcer.Remove(uid); err != nil {
			s.agent.log.Warn("a browser's uid stays confined", "uid", uid, "err", err)
		}
		release()
	}}, nil
}

// startBrowser starts a session's browser so that all it starts is found again,
// and gains no privileges. The thread is the browser's own.
func (w *workshop) startBrowser(cmd *exec.Cmd) (kill func(), err error) {
	if !w.local.agent.cfg.AllowPrivileges {
		if err := process.Confine(); err != nil {
			return nil, err
		}
	}
	return startMarked(cmd)
}

// startMarked starts a program so that all it starts is found again.
func startMarked(cmd *exec.Cmd) (kill func(), err error) {
	uid, gid := -1, -1
	if cmd.SysProcAttr != nil && cmd.SysProcAttr.Credential != nil {
		uid, gid = int(cmd.SysProcAttr.Credential.Uid), int(cmd.SysProcAttr.Credential.Gid)
	}
	mark := process.NewMark(uid, gid)
	cmd.Env = mark.Environ(cmd.Env)
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	group := process.NewGroup(cmd.Process.Pid, mark)
	return func() { group.Signal(syscall.SIGKILL) }, nil
}

// browserProxy returns the egress proxy for a session's browser, nil when the
// session goes out directly.
func (w *workshop) browserProxy(session protocol.SessionID) *url.URL {
	s := w.local
	if !s.rules.Enabled(session) {
		return nil
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if at := w.proxies[session]; at != nil {
		return at
	}
	for _, variable := range s.proxy.Environ(session, browserPTY, -1, rand.Text()) {
		if text, ok := strings.CutPrefix(variable, "HTTP_PROXY="); ok {
			at, err := url.Parse(text)
			if err != nil {
				panic(err) // we wrote it
			}
			w.proxies[session] = at
		}
	}
	return w.proxies[session]
}

// browserMay decides whether a session's pages may connect to a port of this
// machine: to what its terminals serve, where that can be told, and never to us.
func (w *workshop) browserMay(session protocol.SessionID, port int) error {
	s := w.local
	ports := loopback.Ports{Agent: s.ports, Terminals: s.agent.host}
	if ports.Owns(port) {
		return protocol.Errorf(protocol.KindForbidden, "port %d is the agent's own", port)
	}
	ours, err := ports.Belongs(session, port)
	if err != nil {
		return protocol.Errorf(protocol.KindUnavailable, "nobody listens on port %d of the sandbox", port)
	}
	if ours {
		return nil
	}
	return protocol.Errorf(protocol.KindForbidden, "what listens on port %d is no program of this session's terminals", port)
}
