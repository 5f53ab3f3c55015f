// Package devstack runs a whole fairlead on this machine, with the real
// programs as its children: a control plane, relays, sandboxes, and three
// users who share a terminal.
package devstack

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"time"

	"github.com/fairlead/fairlead/deploy/program"
	"github.com/fairlead/fairlead/protocol"
)

// startTimeout bounds the start of the whole stack.
const startTimeout = 30 * time.Second

// Config is what a stack is told at its start.
type Config struct {
	Bin       string // directory with the programs
	Listen    string // public address of the first relay
	Relays    int
	Sandboxes int
	People    int // members p1, p2, … beside alice, bob and carol, at most MaxPeople
	StateDir  string
	Temporary bool   // workspaces and homes go with the stack
	ReadyFile string // written when everything runs
	Revision  string
	Out       io.Writer // what a person reads

	GrantsPerPerson  int // live ones, at the control plane; 0: its own default
	SocketsPerPerson int // at one relay; 0: its own default

	TunnelListen  string   // where the first relay takes tunnels, UDP and TCP; empty: a free port
	ExtensionIDs  []string // browser extensions whose side panels may come to the relays
	SandboxRelays []string // "host:port" that sandboxes dial instead of the relays' own

	SandboxesSpread bool // each sandbox tries the relays in an order of its own, and hears of others

	Egress          bool     // terminals go through the egress proxy
	UserEntries     bool     // users of terminals have entries in /etc/passwd while they run
	AllowPrivileges bool     // terminals' programs may gain privileges
	SyncUnisolated  bool     // people's cookies are taken without isolation, too
	SandboxConfig   string   // YAML file with further flags of the sandboxes' agents; empty: none
	OutboundHosts   []string // "name=ip[:port]", addresses for names that no resolver knows
	Integrations    string   // file: how to reach the providers of integrations; empty: there are none
}

// A Stack is a running fairlead.
type Stack struct {
	// Static after construction.
	cfg      Config
	identity *identity
	ca       *authority
	logs     string // directory

	// Owned by Run until everything is up.
	controlPlane *child
	cpReady      controlPlaneReady
	public       []string // addresses of the relays' public listeners, or port 0
	extension    *readyExtension
	relays       []*relay
	sandboxes    []*sandbox
	files        []string // directories that go with a temporary stack

	sayMu   sync.Mutex // one line of Out at a time
	readyMu sync.Mutex // one writer of the ready file at a time
}

type controlPlaneReady struct {
	URL      string `json:"url"`
	TLS      string `json:"tls"`
	AdminURL string `json:"admin_url"`
}

// A relay is one of the stack's relays. After its first start it keeps its
// addresses.
type relay struct {
	relayIdentity
	keeper
	name                  string
	listen, tunnel, admin string
	preview               string
	ready                 relayReady
}

type relayReady struct {
	URL        string `json:"url"`
	Tunnel     string `json:"tunnel"`
	AdminURL   string `json:"admin_url"`
	PreviewURL string `json:"preview_url"`
}

type sandbox struct {
	sandboxIdentity
	child    *child
	stateDir string
	pty      protocol.PTYID // its first terminal
}

// Run runs a stack until ctx ends.
func Run(ctx context.Context, cfg Config) error {
	s, lock, err := prepare(cfg)
	if err != nil {
		return err
	}
	defer lock.Close()
	defer s.removeReady()
	defer s.removeFiles()
	children, end := context.WithCancel(context.WithoutCancel(ctx))
	defer s.wait()
	defer end()

	starting, cancel := context.WithTimeout(ctx, startTimeout)
	err = s.start(starting, children)
	cancel()
	if err != nil {
		if ctx.Err() != nil {
			return nil
		}
		return err
	}
	var keeping sync.WaitGroup
	defer keeping.Wait()
	defer end()
	for _, r := range s.relays {
		keeping.Go(func() { r.keep(children) })
	}
	if err := s.writeReady(); err != nil {
		return err
	}
	s.welcome()
	s.watch(ctx)
	s.say("ending")
	return nil
}

// prepare checks the programs and makes the state directory, which it locks.
func prepare(cfg Config) (*Stack, io.Closer, error) {
	for _, name := range []string{"controlplane", "relay", "sandbox-agent"} {
		if _, err := os.Stat(filepath.Join(cfg.Bin, name)); err != nil {
			return nil, nil, program.Hint(fmt.Errorf("%s is not beside devstack in %s", name, cfg.Bin), "make build puts all programs there")
		}
	}
	var err error
	if cfg.StateDir, err = filepath.Abs(cfg.StateDir); err != nil {
		return nil, nil, err
	}
	s := &Stack{cfg: cfg, logs: filepath.Join(cfg.StateDir, "logs")}
	for _, dir := range []string{cfg.StateDir, s.logs} {
		if err := os.MkdirAll(dir, 0o700); err != nil {
			return nil, nil, fmt.Errorf("state directory: %w", err)
		}
	}
	lock, err := os.OpenFile(filepath.Join(cfg.StateDir, lockName), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, nil, fmt.Errorf("state directory: %w", err)
	}
	if err := syscall.Flock(int(lock.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		return nil, nil, errors.Join(fmt.Errorf("state directory %s: another devstack uses it", cfg.StateDir), lock.Close())
	}
	s.removeReady() // it would speak of an earlier stack
	if err := sweep(); err != nil {
		s.say("what killed stacks have left: %v", err)
	}
	if s.identity, err = loadIdentity(cfg.StateDir, cfg.Relays, cfg.Sandboxes, cfg.People); err == nil {
		s.ca, err = newAuthority(cfg.StateDir, time.Now())
	}
	if err != nil {
		return nil, nil, errors.Join(err, lock.Close())
	}
	return s, lock, nil
}

// start brings everything up. What it starts lives until children ends.
func (s *Stack) start(ctx, children context.Context) error {
	if err := s.startControlPlane(ctx, children); err != nil {
		return err
	}
	var err error
	if s.public, err = publicAddresses(s.cfg.Listen, s.cfg.Relays); err != nil {
		return err
	}
	if s.extension, err = s.makeExtension(ctx); err != nil {
		s.say("no browser extension: %v", err) // the programs were built without it
	}
	for i := range s.cfg.Relays {
		if err := s.startRelay(ctx, children, i); err != nil {
			return err
		}
	}
	for i := range s.cfg.Sandboxes {
		if err := s.startSandbox(ctx, children, i); err != nil {
			return err
		}
	}
	for _, sb := range s.sandboxes {
		if err := s.createTerminal(ctx, sb); err != nil {
			return err
		}
	}
	return nil
}

// wait waits until every child has ended.
func (s *Stack) wait() {
	for _, sb := range s.sandboxes {
		<-sb.child.done
	}
	for _, r := range s.relays {
		<-r.child().done
	}
	if s.controlPlane != nil {
		<-s.controlPlane.done
	}
}

// watch waits for the end of ctx and tells when a program that isn't restarted
// ends before.
func (s *Stack) watch(ctx context.Context) {
	var watching sync.WaitGroup
	defer watching.Wait()
	tell := func(c *child) {
		select {
		case <-c.done:
			if ctx.Err() == nil {
				s.say("%v", c.failure())
			}
		case <-ctx.Done():
		}
	}
	watching.Go(func() { tell(s.controlPlane) })
	for _, sb := range s.sandboxes {
		watching.Go(func() { tell(sb.child) })
	}
	<-ctx.Done()
}

func (s *Stack) say(format string, args ...any) {
	s.sayMu.Lock()
	defer s.sayMu.Unlock()
	fmt.Fprintf(s.cfg.Out, "devstack: "+format+"\n", args...)
}

// welcome prints what a person needs: one link for each user.
func (s *Stack) welcome() {
	s.sayMu.Lock()
	defer s.sayMu.Unlock()
	out := s.cfg.Out
	fmt.Fprintf(out, "\nfairlead is running. Open a link in a browser, and another one in a second browser or a private window:\n\n")
	for _, u := range s.identity.Users[:len(people)] {
		fmt.Fprintf(out, "  %-6s %s/#token=%s\n", u.Name, s.relays[0].ready.URL, u.Token)
	}
	fmt.Fprintf(out, "\nalice controls the first terminal, bob may ask for control, carol may watch.\n")
	if s.cfg.People > 0 {
		fmt.Fprintf(out, "So may p1 to p%d, whose tokens are in the ready file.\n", s.cfg.People)
	}
	if s.extension != nil {
		fmt.Fprintf(out, "The browser extension is in %s (\"Load unpacked\" on chrome://extensions).\n", s.extension.Dir)
	}
	fmt.Fprintf(out, "To sign its browser in where yours is: bin/fairlead-source login %s, pair --site SITE, push --watch.\n", s.cpReady.URL)
	fmt.Fprintf(out, "Logs are in %s. Ctrl-C ends everything.\n\n", s.logs)
}

// readyStack is the ready file of DESIGN §9.
type readyStack struct {
	Revision     string               `json:"revision"`
	ControlPlane readyControlPlane    `json:"control_plane"`
	Relays       []readyRelay         `json:"relays"`
	Sandboxes    []readySandbox       `json:"sandboxes"`
	SessionID    protocol.SessionID   `json:"session_id"`
	PTYID        protocol.PTYID       `json:"pty_id"`
	Users        map[string]readyUser `json:"users"`
	Extension    *readyExtension      `json:"extension,omitempty"` // none: it wasn't built
}

type readyControlPlane struct {
	URL      string `json:"url"`
	AdminURL string `json:"admin_url"`
	PID      int64  `json:"pid"`
}

type readyRelay struct {
	URL      string `json:"url"`
	Tunnel   string `json:"tunnel"`
	AdminURL string `json:"admin_url"`
	PID      int64  `json:"pid"`
	Preview  string `json:"preview_url"`
}

type readySandbox struct {
	ID        protocol.SandboxID `json:"id"`
	PID       int64              `json:"pid"`
	StateDir  string             `json:"state_dir"`
	SessionID protocol.SessionID `json:"session_id"`
	PTYID     protocol.PTYID     `json:"pty_id"` // the first terminal of the session
}

type readyUser struct {
	ID    protocol.UserID `json:"id"`
	Token string          `json:"token"`
}

// removeReady removes the ready file of a stack that isn't running.
func (s *Stack) removeReady() {
	if s.cfg.ReadyFile == "" {
		return
	}
	if err := os.Remove(s.cfg.ReadyFile); err != nil && !errors.Is(err, fs.ErrNotExist) {
		s.say("ready file: %v", err)
	}
}

// writeReady writes the ready file, which holds the users' tokens.
func (s *Stack) writeReady() error {
	if s.cfg.ReadyFile == "" {
		return nil
	}
	s.readyMu.Lock()
	defer s.readyMu.Unlock()
	ready := readyStack{
		Revision:     s.cfg.Revision,
		ControlPlane: readyControlPlane{s.cpReady.URL, s.cpReady.AdminURL, s.controlPlane.pid.Load()},
		SessionID:    s.sandboxes[0].Session,
		PTYID:        s.sandboxes[0].pty,
		Users:        map[string]readyUser{},
		Extension:    s.extension,
	}
	for _, r := range s.relays {
		ready.Relays = append(ready.Relays, readyRelay{r.ready.URL, r.ready.Tunnel, r.ready.AdminURL, r.child().pid.Load(), r.ready.PreviewURL})
	}
	for _, sb := range s.sandboxes {
		ready.Sandboxes = append(ready.Sandboxes, readySandbox{sb.ID, sb.child.pid.Load(), sb.stateDir, sb.Session, sb.pty})
	}
	for _, u := range s.identity.Users[:len(people)+s.cfg.People] {
		ready.Users[u.Name] = readyUser{u.ID, u.Token}
	}
	data, err := json.MarshalIndent(ready, "", "  ")
	if err != nil {
		return err
	}
	return program.ReplaceFile(s.cfg.ReadyFile, append(data, '\n'), 0o600)
}
