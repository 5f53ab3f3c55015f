// Package integration gives a terminal's programs the tools that the control
// plane serves: those of the dashboard, its tasks and its memory, and those of
// the accounts that people have attached to the terminal.
//
// No token of an account comes here. The control plane decides what an
// attachment may be used for.
package integration

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/sandbox-agent/internal/toolbox"
)

const (
	// MaxTerminals bounds the terminals whose integrations are known. More
	// terminals get the tools that need no integration.
	MaxTerminals = 4 * protocol.MaxPTYs
	// RefreshEvery is the greatest age of a list of integrations, because a push
	// may be lost. RetryEvery is the pause after a failed request for a list.
	RefreshEvery = time.Minute
	RetryEvery   = 10 * time.Second
	// CallTimeout bounds a call of a tool, ListTimeout a list of integrations.
	CallTimeout = 30 * time.Second
	ListTimeout = 10 * time.Second

	listsAtOnce = 4
)

// Options configure a Set.
type Options struct {
	Client   Client
	Listener Listener     // nil: nobody
	Log      *slog.Logger // nil: slog.Default
}

// A Listener learns that a terminal's tools have changed. It must not wait.
type Listener interface {
	Changed(session protocol.SessionID, pty protocol.PTYID)
}

// A terminal is one of a session.
type terminal struct {
	session protocol.SessionID
	pty     protocol.PTYID
}

// attached holds what is known of a terminal's integrations.
type attached struct {
	providers []string  // in the order of attachable
	asked     uint64    // number of the last request
	told      uint64    // number of the request whose answer providers are
	next      time.Time // when to ask again
}

// A Set is the toolbox.Set of these tools. It is safe for concurrent use.
type Set struct {
	// Static after construction.
	options Options
	tools   map[string][]toolbox.Tool // by provider
	wake    chan struct{}             // tells Run to look for work

	// Guarded by mu.
	mu        sync.Mutex
	terminals map[terminal]*attached
}

// New returns a Set that knows no terminal yet.
func New(o Options) (*Set, error) {
	definitions, err := catalogue()
	if err != nil {
		return nil, err
	}
	if o.Log == nil {
		o.Log = slog.Default()
	}
	s := &Set{
		options: o, tools: make(map[string][]toolbox.Tool), wake: make(chan struct{}, 1),
		terminals: make(map[terminal]*attached),
	}
	for provider, list := range definitions {
		for _, d := range list {
			s.tools[provider] = append(s.tools[provider], s.tool(provider, d))
		}
	}
	return s, nil
}

// Tools returns caller's tools: those that need no integration, and those of
// the known attachments of its terminal.
func (s *Set) Tools(caller toolbox.Caller) []toolbox.Tool {
	var tools []toolbox.Tool
	for _, provider := range always {
		tools = append(tools, s.tools[provider]...)
	}
	for _, provider := range s.attached(caller) {
		tools = append(tools, s.tools[provider]...)
	}
	return tools
}

// attached returns the providers attached to caller's terminal. A program's
// terminal is tracked from then on. A person's isn't: it may not exist.
func (s *Set) attached(caller toolbox.Caller) []string {
	if caller.PTY == "" {
		return nil
	}
	s.mu.Lock()
	known := s.terminals[terminal{caller.Session, caller.PTY}]
	var providers []string
	if known != nil {
		providers = known.providers // always replaced as a whole, never changed
	}
	s.mu.Unlock()
	if known == nil && caller.Grant == nil {
		s.Track(caller.Session, caller.PTY)
	}
	return providers
}

// Track asks for a terminal's integrations soon, and from time to time until
// Forget. Beyond MaxTerminals it only logs that.
func (s *Set) Track(session protocol.SessionID, pty protocol.PTYID) {
	t := terminal{session, pty}
	s.mu.Lock()
	there, full := s.terminals[t] != nil, len(s.terminals) >= MaxTerminals
	if !there && !full {
		s.terminals[t] = &attached{}
	}
	s.mu.Unlock()
	switch {
	case there:
	case full:
		s.options.Log.Warn("too many terminals to know their integrations", "limit", MaxTerminals)
	default:
		s.rouse()
	}
}

// Forget drops what is known of an ended terminal, or of all the session's
// terminals if pty is empty.
func (s *Set) Forget(session protocol.SessionID, pty protocol.PTYID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if pty != "" {
		delete(s.terminals, terminal{session, pty})
		return
	}
	for t := range s.terminals {
		if t.session == session {
			delete(s.terminals, t)
		}
	}
}

// RefreshAll asks for everything again soon: pushes may have been lost.
func (s *Set) RefreshAll() {
	s.mu.Lock()
	for _, known := range s.terminals {
		known.next = time.Time{}
	}
	s.mu.Unlock()
	s.rouse()
}

func (s *Set) rouse() {
	select {
	case s.wake <- struct{}{}:
	default: // it is on its way
	}
}

// Refresh asks what is attached to a terminal now and waits for the answer. It
// returns nil once the tools match that answer and the Listener has learned of
// any change. For an unknown terminal it returns nil at once.
func (s *Set) Refresh(ctx context.Context, session protocol.SessionID, pty protocol.PTYID) error {
	t := terminal{session, pty}
	s.mu.Lock()
	known := s.terminals[t]
	if known == nil {
		s.mu.Unlock()
		return nil
	}
	known.asked++
	question := known.asked
	known.next = time.Now().Add(RefreshEvery)
	s.mu.Unlock()

	ctx, cancel := context.WithTimeout(ctx, ListTimeout)
	defer cancel()
	list, err := s.options.Client.List(ctx, session, pty)
	if r, ok := errors.AsType[*Refusal](err); ok && r.Status == http.StatusNotFound {
		list, err = nil, nil // the control plane doesn't know the terminal: nothing is attached
	}
	if err != nil {
		s.mu.Lock()
		known.next = time.Now().Add(RetryEvery)
		s.mu.Unlock()
		return err
	}
	if s.tell(t, known, question, providersOf(list)) && s.options.Listener != nil {
		s.options.Listener.Changed(session, pty)
	}
	return nil
}

// tell stores an answer, unless that to a later request came first. It reports
// whether the answer changes anything.
func (s *Set) tell(t terminal, known *attached, question uint64, providers []string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.terminals[t] != known || question < known.told {
		return false
	}
	known.told = question
	if slices.Equal(known.providers, providers) {
		return false
	}
	known.providers = providers
	return true
}

// providersOf returns the providers in a list of integrations.
func providersOf(list []protocol.Integration) []string {
	var providers []string
	for _, name := range attachable {
		if slices.ContainsFunc(list, func(i protocol.Integration) bool { return i.Provider == name }) {
			providers = append(providers, name)
		}
	}
	return providers
}

// Run sends the requests that are due until ctx ends. It returns when all have
// finished.
func (s *Set) Run(ctx context.Context) {
	var asking sync.WaitGroup
	defer asking.Wait()
	room := make(chan struct{}, listsAtOnce)
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-s.wake:
		case <-timer.C:
		}
		for _, t := range s.due() {
			select {
			case <-ctx.Done():
				return
			case room <- struct{}{}:
			}
			asking.Go(func() {
				defer func() { <-room }()
				if err := s.Refresh(ctx, t.session, t.pty); err != nil && ctx.Err() == nil {
					s.options.Log.Debug("integrations are not known", "session", t.session, "pty", t.pty, "error", err)
				}
			})
		}
		timer.Reset(s.pause())
	}
}

// due returns the terminals to ask about, and marks them as asked.
func (s *Set) due() []terminal {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	var due []terminal
	for t, known := range s.terminals {
		if !known.next.After(now) {
			known.next = now.Add(RefreshEvery)
			due = append(due, t)
		}
	}
	return due
}

// pause returns the time until the next request is due.
func (s *Set) pause() time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	next := time.Now().Add(RetryEvery) // a request that fails meanwhile is due then
	for _, known := range s.terminals {
		if known.next.Before(next) {
			next = known.next
		}
	}
	return time.Until(next)
}

// tool returns a provider's tool.
func (s *Set) tool(provider string, d definition) toolbox.Tool {
	needs := protocol.CapControl
	if d.ReadOnly && slices.Contains(always, provider) {
		needs = protocol.CapView
	}
	return toolbox.Tool{
		Tool: d.Tool, Needs: needs,
		Call: func(ctx context.Context, caller toolbox.Caller, args json.RawMessage) (protocol.ToolResult, error) {
			return s.call(ctx, caller, provider, d.Action, args), nil
		},
	}
}
