package chat

import (
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/sandbox-agent/internal/chat/opened"
	"github.com/fairlead/fairlead/sandbox-agent/internal/codingagent"
	"github.com/fairlead/fairlead/sandbox-agent/internal/feature"
	"github.com/fairlead/fairlead/sandbox-agent/internal/process"
)

// maxQueued bounds what a program hasn't read yet, in bytes.
const maxQueued = 32 << 20

// Variables are what people have set for sessions. *environment.Store has them.
type Variables interface {
	// Changes counts the changes of a session's variables and secrets.
	Changes(session protocol.SessionID) uint64
}

// A Hosting starts programs under the accounts of sessions. It is safe for
// concurrent use.
type Hosting struct {
	// Static after construction.
	host      *codingagent.Host
	variables Variables
	reports   opened.Reports

	mu      sync.Mutex
	running map[int]struct{} // guarded by mu: pids of what runs
}

// NewHosting returns a Hosting that starts programs by host.
func NewHosting(host *codingagent.Host, variables Variables) *Hosting {
	return &Hosting{host: host, variables: variables, running: map[int]struct{}{}}
}

// Start implements [Programs].
func (h *Hosting) Start(ctx context.Context, p Program) (Process, error) {
	found := h.surroundings(p.Session)
	started, err := h.host.Start(ctx, codingagent.Launch{Session: p.Session, Command: p.Command, Dir: p.Dir})
	if err != nil {
		return nil, err
	}
	h.mu.Lock()
	h.running[started.PID()] = struct{}{}
	h.mu.Unlock()
	hosted := &hosted{
		hosting: h, session: p.Session, process: started, found: found,
		closing: make(chan struct{}), wake: make(chan struct{}, 1), written: make(chan struct{}),
	}
	go hosted.write() // Close waits for it
	return hosted, nil
}

// surroundings are what a program finds when it starts: if they change it has to
// be started anew.
type surroundings struct {
	changes uint64
	logins  string
}

// logins are where providers keep who is logged in, below a home.
var logins = []string{
	".claude/.credentials.json", ".codex/auth.json", ".gemini/oauth_creds.json", ".local/share/opencode/auth.json", ".config/cursor/auth.json",
}

func (h *Hosting) surroundings(session protocol.SessionID) surroundings {
	var found strings.Builder
	for _, login := range logins {
		if at, err := os.Lstat(filepath.Join(h.host.Home(session), login)); err == nil {
			found.WriteString(login + at.ModTime().Format(time.RFC3339Nano) + strconv.FormatInt(at.Size(), 10))
		}
	}
	return surroundings{h.variables.Changes(session), found.String()}
}

// AgentSession notes that the coding agent called name in a terminal has a
// provider's session open.
func (h *Hosting) AgentSession(session protocol.SessionID, pty protocol.PTYID, name, native string) {
	h.reports.Note(session, pty, name, native)
}

// TerminalEnded implements [feature.Ender].
func (h *Hosting) TerminalEnded(of feature.Terminal) { h.reports.Forget(of.PTY) }

// Resumed implements [Programs].
func (h *Hosting) Resumed(session protocol.SessionID, native string) bool {
	h.mu.Lock()
	own := make(map[int]struct{}, len(h.running))
	for pid := range h.running {
		own[pid] = struct{}{}
	}
	h.mu.Unlock()
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return false // nothing can be found
	}
	reported := h.reports.Of(session, native)
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil {
			continue
		}
		line, err := os.ReadFile(filepath.Join("/proc", e.Name(), "cmdline"))
		if err != nil || !opened.Has(pid, line, native, reported) {
			continue
		}
		_, leads := own[pid]
		s, runs := process.Read(pid)
		if _, ours := own[s.Session]; runs && !leads && !ours {
			return true
		}
	}
	return false
}

// A hosted process is one of codingagent's. What it is told is queued, so that
// nobody waits for it.
type hosted struct {
	// Static after construction.
	hosting *Hosting
	session protocol.SessionID
	process *codingagent.Process
	found   surroundings
	closing chan struct{} // closed by Close
	wake    chan struct{} // 1 element: there is something to write
	written chan struct{} // closed when write has ended

	mu sync.Mutex
	// Guarded by mu.
	queue  [][]byte
	queued int   // bytes of it
	closed bool  // nothing comes behind the queue
	err    error // why nothing is written any more
}

// Write implements [Process].
func (h *hosted) Write(p []byte) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	switch {
	case h.err != nil:
		return h.err
	case h.closed:
		return protocol.Errorf(protocol.KindEnded, "its input is closed")
	case h.queued+len(p) > maxQueued:
		return protocol.Errorf(protocol.KindTooMany, "over %d bytes wait for it", maxQueued)
	}
	h.queue = append(h.queue, slices.Clone(p))
	h.queued += len(p)
	h.poke()
	return nil
}

// CloseInput implements [Process].
func (h *hosted) CloseInput() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.closed = true
	h.poke()
}

func (h *hosted) poke() {
	select {
	case h.wake <- struct{}{}:
	default: // it will look
	}
}

// write writes what is queued until Close.
func (h *hosted) write() {
	defer close(h.written)
	for {
		next, over := h.take()
		switch {
		case next != nil:
			if err := h.process.Write(context.Background(), next); err != nil {
				h.fail(err)
				return
			}
		case over:
			h.process.CloseInput()
			return
		default:
			select {
			case <-h.wake:
			case <-h.closing:
				return
			}
		}
	}
}

func (h *hosted) take() (next []byte, over bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if len(h.queue) == 0 {
		return nil, h.closed
	}
	next = h.queue[0]
	h.queue[0] = nil
	h.queue = h.queue[1:]
	h.queued -= len(next)
	return next, false
}

func (h *hosted) fail(err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.err, h.queue, h.queued = err, nil, 0
}

// Line implements [Process].
func (h *hosted) Line() ([]byte, error) {
	line, err := h.process.Line()
	switch {
	case err != nil && !errors.Is(err, io.EOF):
		return nil, err
	case err != nil:
		return nil, io.EOF
	case line.Dropped > 0:
		return nil, LongLine(line.Dropped)
	}
	return line.Text, nil
}

// Wait implements [Process].
func (h *hosted) Wait() (int, []byte) {
	exit, stderr := h.process.Exit()
	if exit.Code < 0 { // a signal
		return 1, stderr
	}
	return exit.Code, stderr
}

// End implements [Process].
func (h *hosted) End(ctx context.Context) error { return h.process.End(ctx) }

// Close implements [Process].
func (h *hosted) Close() {
	close(h.closing)
	h.process.Close() // a write that waits fails
	<-h.written
	h.hosting.mu.Lock()
	defer h.hosting.mu.Unlock()
	delete(h.hosting.running, h.process.PID())
}

// Stale implements [Process].
func (h *hosted) Stale() bool { return h.hosting.surroundings(h.session) != h.found }
