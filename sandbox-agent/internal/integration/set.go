// Package integration gives programs of a terminal the tools that the control
// plane serves: those of the dashboard, its tasks and its memory, and those of
// the accounts that people have attached to the terminal.
//
// No token of an account comes here. What an attachment may be used for, the
// control plane decides.
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
	// MaxTerminals bounds the terminals whose integrations are known; more get
	// the tools that need none.
	MaxTerminals = 4 * protocol.MaxPTYs
	// RefreshEvery is how old a list of integrations may become: a push may be
	// lost. RetryEvery is when one is asked for again that couldn't be had.
	RefreshEvery = time.Minute
	RetryEvery   = 10 * time.Second
	// CallTimeout bounds a call of a tool, ListTimeout a list of integrations.
	CallTimeout = 30 * time.Second
	ListTimeout = 10 * time.Second

	listsAtOnce = 4
)

// Options say how a Set works.
type Options struct {
	Client   Client
	Listener Listener     // nil: nobody
	Log      *slog.Logger // nil: slog.Default
}

// A Listener is told that a terminal has other tools than before. It must not
// wait for anything.
type Listener interface {
	Changed(session protocol.SessionID, pty protocol.PTYID)
}

// A terminal is one of a session.
type terminal struct {
	session protocol.SessionID
	pty     protocol.PTYID
}

// attached is what is known of a terminal's integrations.
type attached struct {
	providers []string  // in the order of attachable
	asked     uint64    // the last question
	told      uint64    // the question whose answer providers are
	next      time.Time // when to ask again
}

// A Set is where these tools come from: a toolbox.Set. It is safe for concurrent
// use.
type Set struct {
	// Static after construction.
	options Options
	tools   map[string][]toolbox.Tool // by provider
	wake    chan struct{}             // Run has something to do

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

// Tools returns the tools that caller has: those that need no integration, and
// those of what is attached to its terminal as far as that is known by now.
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

// attached returns the providers that are attached to caller's terminal. A
// program's terminal is known from then on; what a person names may be no
// terminal at all.
func (s *Set) attached(caller toolbox.Caller) []string {
	if caller.PTY == "" {
		return nil
	}
	s.mu.Lock()
	known := s.terminals[terminal{caller.Session, caller.PTY}]
	var providers []string
	if known != nil {
		providers = known.providers // replaced as a whole, never changed
	}
	s.mu.Unlock()
	if known == nil && caller.Grant == nil {
		s.Track(caller.Session, caller.PTY)
	}
	return providers
}

// Track has a terminal's integrations asked for, soon and from time to time,
// until it is forgotten. Beyond MaxTerminals it does nothing but say so in the
// log.
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

// Forget drops what is known of a terminal that has ended, or of all terminals
// of a session if pty is empty.
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

// RefreshAll has everything asked for again, soon: after a time in which pushes
// may have been lost.
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
// returns nil once the tools are those that the control plane said, and the
// Listener was told if they are others; and for a terminal that isn't known, which nobody
// has asked about.
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
		list, err = nil, nil // the terminal is none of ours: nothing is attached
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

// tell takes an answer, unless that to a later question was faster, and reports
// whether it changes anything.
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

// providersOf returns whose tools a list of integrations brings.
func providersOf(list []protocol.Integration) []string {
	var providers []string
	for _, name := range attachable {
		if slices.ContainsFunc(list, func(i protocol.Integration) bool { return i.Provider == name }) {
			providers = append(providers, name)
		}
	}
	return providers
}

// Run asks for what is due until ctx ends, and returns when nothing of it goes
// on any more.
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

// due returns the terminals to ask about, and takes it that they are asked.
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

// pause returns how long nothing is due.
func (s *Set) pause() time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	next := time.Now().Add(RetryEvery) // one that fails while nobody looks is due then
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
