package terminal

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/protocol/jws"
	"github.com/fairlead/fairlead/protocol/op"
	"github.com/fairlead/fairlead/sandbox-agent/internal/account"
	"github.com/fairlead/fairlead/sandbox-agent/internal/launch"
	"github.com/fairlead/fairlead/sandbox-agent/internal/process"
	"github.com/fairlead/fairlead/sandbox-agent/internal/pty"
	"github.com/fairlead/fairlead/sandbox-agent/internal/recording"
	"github.com/fairlead/fairlead/sandbox-agent/internal/redact"
)

// A Host runs the terminals of one sandbox. It is safe for concurrent use.
// Errors have kinds: KindNotFound for a terminal that the session doesn't have,
// KindConflict for an id in use, KindTooMany beyond protocol.MaxPTYs,
// KindInvalid for a request that makes no sense, KindUnavailable after
// Shutdown.
type Host struct {
	// Static after construction.
	config   Config
	log      *slog.Logger
	accounts *account.Pool
	launch   pty.Launcher
	unheed   func()        // stops what pty.HeedSignals began
	leases   *leaseChanges // nil: nobody is told
	counts   *counts
	reports  time.Duration // how often hooks may report, see [arbiter.Options]; 0 but in tests

	secrets   secrets
	terminals sync.WaitGroup // one for each terminal, until it is released

	mu sync.Mutex
	// Guarded by mu.
	listed   map[protocol.PTYID]*Terminal
	starting map[protocol.PTYID]chan struct{} // closed when it is listed, or has failed
	closed   bool
}

// NewHost prepares the folders of config and returns a Host without terminals.
// It fails when they can't be made, or when config asks for an isolation that
// needs root.
func NewHost(config Config) (*Host, error) {
	start := process.StartConfined
	if config.AllowPrivileges {
		start = (*exec.Cmd).Start
	}
	h, err := newHost(config, pty.New(start))
	if err != nil {
		return nil, err
	}
	h.accounts.ClearLeftovers(h.log)
	h.unheed = pty.HeedSignals()
	pty.KeepDescriptors()
	return h, nil
}

func newHost(config Config, launcher pty.Launcher) (*Host, error) {
	root := os.Geteuid() == 0
	switch {
	case config.Isolation == "" && root:
		config.Isolation = IsolationUID
	case config.Isolation == "":
		config.Isolation = IsolationNone
	case config.Isolation == IsolationUID && !root:
		return nil, fmt.Errorf("terminal: isolation %q needs root", config.Isolation)
	case config.Isolation != IsolationUID && config.Isolation != IsolationNone:
		return nil, fmt.Errorf("terminal: unknown isolation %q", config.Isolation)
	}
	if config.FirstUID == 0 {
		config.FirstUID = DefaultFirstUID
	}
	if config.GID == 0 {
		config.GID = DefaultGID
	}
	if config.Logger == nil {
		config.Logger = slog.New(slog.DiscardHandler)
	}
	if config.Shell == "" {
		config.Shell = launch.FindShell()
	}
	if config.SearchPath == "" {
		config.SearchPath = DefaultSearchPath
	}
	if config.Revoked == nil {
		config.Revoked = jws.NewRevocationSet()
	}
	if err := prepareFolders(config); err != nil {
		return nil, fmt.Errorf("terminal: %w", err)
	}
	h := &Host{
		config: config,
		log:    config.Logger,
		accounts: &account.Pool{
			Homes: config.Homes, Own: config.Isolation == IsolationUID,
			FirstUID: config.FirstUID, GID: config.GID,
			Users: config.Passwd, Shell: config.Shell, Log: config.Logger,
		},
		launch:   launcher,
		unheed:   func() {},
		counts:   new(counts),
		listed:   make(map[protocol.PTYID]*Terminal),
		starting: make(map[protocol.PTYID]chan struct{}),
	}
	if config.Leases != nil {
		h.leases = newLeaseChanges(config.Leases, config.Logger)
	}
	config.Revoked.OnChange(h.dropRevoked)
	return h, nil
}

// prepareFolders makes the workspace, shared by all terminals through its
// group, and the folder of homes, which can be passed through but not listed.
func prepareFolders(config Config) error {
	for _, dir := range []string{config.Workspace, config.Homes} {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return err
		}
	}
	if config.Isolation == IsolationNone {
		return nil
	}
	if err := os.Chown(config.Workspace, -1, config.GID); err != nil {
		return err
	}
	if err := os.Chmod(config.Workspace, 0o770|os.ModeSetgid); err != nil {
		return err
	}
	return os.Chmod(config.Homes, 0o711)
}

// Accounts returns what terminals run as.
func (h *Host) Accounts() *account.Pool { return h.accounts }

// Isolation returns what config's isolation came to.
func (h *Host) Isolation() Isolation { return h.config.Isolation }

// Create starts a terminal in session. An empty id has one made.
func (h *Host) Create(ctx context.Context, session protocol.SessionID, id protocol.PTYID, p op.PTYCreate) (protocol.PTYInfo, error) {
	if id == "" {
		id = protocol.NewPTYID()
	}
	if p.Conversation != "" {
		return protocol.PTYInfo{}, protocol.Errorf(protocol.KindUnsupported, "this sandbox has no conversations")
	}
	return h.create(ctx, &ground{host: h, session: session, id: id, create: p})
}

// create starts a terminal on its ground.
func (h *Host) create(ctx context.Context, on *ground) (protocol.PTYInfo, error) {
	if !protocol.ValidID(on.session) || !protocol.ValidID(on.id) {
		return protocol.PTYInfo{}, protocol.Errorf(protocol.KindInvalid, "not a session or terminal id")
	}
	l, err := h.Setup().Plan(on.create)
	if err != nil {
		return protocol.PTYInfo{}, err
	}
	if err := ctx.Err(); err != nil {
		return protocol.PTYInfo{}, protocol.Fault(protocol.KindUnavailable, err)
	}
	if err := h.reserve(on.id); err != nil {
		return protocol.PTYInfo{}, err
	}
	t, err := h.list(on, l)
	if err != nil {
		return protocol.PTYInfo{}, protocol.AsError(err)
	}
	h.catchUp(t)
	h.NoteList(on.session)
	return t.Info(), nil
}

// list starts a terminal whose name is reserved and lists it.
func (h *Host) list(on *ground, l pty.Launch) (*Terminal, error) {
	t, err := on.start(l)
	h.mu.Lock()
	defer h.mu.Unlock()
	close(h.starting[on.id])
	delete(h.starting, on.id)
	if err != nil {
		return nil, err
	}
	h.listed[on.id] = t
	if h.closed { // Shutdown didn't see it
		t.close()
	}
	h.log.Info("terminal started", "session", on.session, "pty", on.id)
	return t, nil
}

// Setup returns what all terminals have in common when they are started.
func (h *Host) Setup() launch.Setup {
	return launch.Setup{Workspace: h.config.Workspace, Shell: h.config.Shell, SearchPath: h.config.SearchPath}
}

// reserve takes the name id and a place among the running terminals, which
// start gives back when it fails.
func (h *Host) reserve(id protocol.PTYID) error {
	h.prune()
	h.mu.Lock()
	defer h.mu.Unlock()
	_, starting := h.starting[id]
	switch {
	case h.closed:
		return protocol.Errorf(protocol.KindUnavailable, "the sandbox is shutting down")
	case starting || h.listed[id] != nil:
		return protocol.Errorf(protocol.KindConflict, "terminal %s exists", id)
	case h.running()+len(h.starting) >= protocol.MaxPTYs:
		return protocol.Errorf(protocol.KindTooMany, "%d terminals run already", protocol.MaxPTYs)
	}
	h.starting[id] = make(chan struct{})
	h.terminals.Add(1)
	return nil
}

// tape begins the recording of a terminal that is about to start.
func (h *Host) tape(session protocol.SessionID, info protocol.PTYInfo, secrets *redact.Set) (*recording.Recording, error) {
	if h.config.Recordings == nil {
		return nil, errNoRecordings
	}
	info.Command = withoutSecrets(secrets, info.Command)
	return h.config.Recordings.Create(tapeParams(session, info, time.Now()))
}

// running counts the terminals that still hold anything of the system. The
// caller holds mu.
func (h *Host) running() (n int) {
	for _, t := range h.listed {
		if !t.released() {
			n++
		}
	}
	return n
}

// prune forgets ended terminals that are too old or too many. It is called
// whenever somebody asks for terminals.
func (h *Host) prune() {
	for _, t := range h.stale() {
		t.transcript.Discard()
	}
}

// stale takes those terminals off the list and returns them.
func (h *Host) stale() (stale []*Terminal) {
	h.mu.Lock()
	defer h.mu.Unlock()
	var ended []*Terminal
	for _, t := range h.listed {
		if t.released() {
			ended = append(ended, t)
		}
	}
	stale = surplus(ended, time.Now())
	for _, t := range stale {
		delete(h.listed, t.id)
	}
	return stale
}

// Get returns the terminal id of session, which may have ended.
func (h *Host) Get(session protocol.SessionID, id protocol.PTYID) (*Terminal, error) {
	h.prune()
	h.mu.Lock()
	defer h.mu.Unlock()
	t := h.listed[id]
	if t == nil || t.session != session {
		return nil, protocol.Errorf(protocol.KindNotFound, "no such terminal")
	}
	return t, nil
}

// List returns the terminals of session, the oldest first, and with them those
// that ended lately.
func (h *Host) List(session protocol.SessionID) []protocol.PTYInfo {
	infos := []protocol.PTYInfo{}
	for _, t := range h.of(session) {
		infos = append(infos, t.Info())
	}
	slices.SortFunc(infos, func(a, b protocol.PTYInfo) int {
		if a.CreatedAt != b.CreatedAt {
			return int(a.CreatedAt - b.CreatedAt)
		}
		return strings.Compare(string(a.ID), string(b.ID))
	})
	return infos
}

// all returns the terminals of all sessions.
func (h *Host) all() []*Terminal {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.Collect(maps.Values(h.listed))
}

// of returns the terminals of session.
func (h *Host) of(session protocol.SessionID) []*Terminal {
	h.prune()
	return slices.DeleteFunc(h.all(), func(t *Terminal) bool { return t.session != session })
}

// Close ends a terminal and forgets it: its program is hung up and, after 3
// seconds, killed with all that it started. Close returns when nothing of it
// is left. Viewers see the end.
func (h *Host) Close(session protocol.SessionID, id protocol.PTYID) error {
	t, err := h.Get(session, id)
	if err != nil {
		return err
	}
	t.close()
	h.forget(t)
	return nil
}

// forget waits until nothing is left of t, which is closing, and takes it off
// the list.
func (h *Host) forget(t *Terminal) {
	<-t.life.gone
	h.mu.Lock()
	listed := h.listed[t.id] == t
	if listed {
		delete(h.listed, t.id)
	}
	h.mu.Unlock()
	if listed { // else somebody else does
		t.transcript.Discard()
		h.NoteList(t.session)
	}
}

// CloseSession ends all terminals of session and returns when they are gone.
func (h *Host) CloseSession(session protocol.SessionID) {
	ts := h.of(session)
	for _, t := range ts {
		t.close()
	}
	for _, t := range ts {
		h.forget(t)
	}
}

// Shutdown ends every terminal and refuses new ones. It returns when all are
// gone. When ctx ends first, what still runs is killed at once.
func (h *Host) Shutdown(ctx context.Context) {
	h.mu.Lock()
	h.closed = true
	for _, t := range h.listed {
		t.close()
	}
	h.mu.Unlock()
	stop := context.AfterFunc(ctx, func() {
		h.mu.Lock()
		defer h.mu.Unlock()
		for _, t := range h.listed {
			t.kill()
		}
	})
	defer stop()
	h.terminals.Wait()
	h.secrets.close()
	h.leases.end()
	h.unheed()
}

// RevokeGrants makes grants void, presented or not: viewers who have no other
// are cut off, and a lease that is held under one of them is free. All of that
// is done when it returns.
func (h *Host) RevokeGrants(ids ...protocol.GrantID) {
	h.config.Revoked.Add(ids...) // which calls dropRevoked
}

// dropRevoked applies what is void to all terminals.
func (h *Host) dropRevoked() {
	for _, t := range h.all() {
		t.arbiter.DropRevoked()
	}
}
