package sidebar

import (
	"encoding/json"
	"net/http"
	"time"

	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/sandbox-agent/internal/route"
	"github.com/fairlead/fairlead/sandbox-agent/internal/sidebar/lineup"
	"github.com/fairlead/fairlead/sandbox-agent/internal/sidebar/push"
)

const (
	// defaultHistory and maxHistory bound GET …/activity/history.
	defaultHistory = 50
	maxHistory     = 1000
)

// Routes implements [feature.Router].
func (s *Sidebars) Routes(mux *http.ServeMux) {
	route.Get(mux, "sidebar/chat", protocol.CapView, s.chat)
	route.Get(mux, "sidebar/chat/stream", protocol.CapView, s.stream)
	route.Get(mux, "sidebar/tabs", protocol.CapView, s.tabs)
	route.Get(mux, "sidebar/session", protocol.CapView, s.session)
	route.Get(mux, "sidebar/health", protocol.CapView, s.health)
	route.Get(mux, "sidebar/sessions", protocol.CapView, s.sessions)
	route.Get(mux, "activity/stream", protocol.CapView, s.activity)
	route.Get(mux, "activity/history", protocol.CapView, s.history)
}

// answer answers with v as JSON, masked.
func (s *Sidebars) answer(w http.ResponseWriter, v any) error {
	text, err := json.Marshal(v)
	if err != nil {
		return err
	}
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	_, _ = w.Write(s.o.Secrets.Mask(text)) // or the client is gone
	return nil
}

// chat is GET …/sidebar/chat?after=&tabId=, a poll.
func (s *Sidebars) chat(w http.ResponseWriter, r *http.Request, session protocol.SessionID) error {
	after, tab, err := asked(r)
	if err != nil {
		return err
	}
	p, err := s.panel(session)
	if err != nil {
		return err
	}
	return s.answer(w, p.poll(after, tab))
}

// stream is GET …/sidebar/chat/stream?after=&tabId=: each entry as an event
// "entry", and how the panel stands as "state", at the beginning and when it
// changes; "gap" before them where entries are missing.
func (s *Sidebars) stream(w http.ResponseWriter, r *http.Request, session protocol.SessionID) error {
	after, tab, err := asked(r)
	if err != nil {
		return err
	}
	p, err := s.panel(session)
	if err != nil {
		return err
	}
	f, err := p.follow(after, tab)
	if err != nil {
		return err
	}
	defer f.close()
	push.Serve(p.closing, w, r, f)
	return nil
}

// tabs is GET …/sidebar/tabs.
func (s *Sidebars) tabs(w http.ResponseWriter, r *http.Request, session protocol.SessionID) error {
	p, err := s.panel(session)
	if err != nil {
		return err
	}
	shown := s.o.Browser.Tabs(r.Context(), session)
	p.mu.Lock()
	all := p.list(shown)
	p.mu.Unlock()
	return s.answer(w, map[string]any{"tabs": all})
}

// An agentAnswer is how the active tab's agent stands.
type agentAnswer struct {
	Status         string   `json:"status"`
	RunningFor     *int64   `json:"runningFor"`     // milliseconds
	CurrentMessage *string  `json:"currentMessage"` // that it works on
	QueueLength    int      `json:"queueLength"`
	Queue          []queued `json:"queue"`
}

// queued is a message that waits.
type queued struct {
	Message string `json:"message"`
	At      string `json:"ts"`
}

// session is GET …/sidebar/session.
func (s *Sidebars) session(w http.ResponseWriter, r *http.Request, session protocol.SessionID) error {
	p, err := s.panel(session)
	if err != nil {
		return err
	}
	p.mu.Lock()
	c, agent := p.chapter(), p.agent(p.active)
	p.mu.Unlock()
	return s.answer(w, map[string]any{"session": c, "agent": agent})
}

// health is GET …/sidebar/health: what the panel reads of /health (seed 000), in a
// few bytes.
func (s *Sidebars) health(w http.ResponseWriter, r *http.Request, session protocol.SessionID) error {
	p, err := s.panel(session)
	if err != nil {
		return err
	}
	shown := s.o.Browser.Tabs(r.Context(), session)
	p.mu.Lock()
	c, agent := p.chapter(), p.agent(p.active)
	p.mu.Unlock()
	return s.answer(w, map[string]any{
		"tabs": len(shown), "session": map[string]any{"id": c.ID, "name": c.Name},
		"agent": map[string]any{"status": agent.Status, "runningFor": agent.RunningFor, "queueLength": agent.QueueLength},
	})
}

// agent returns how a tab's agent stands. The caller holds mu.
func (p *Panel) agent(id lineup.Tab) agentAnswer {
	now := time.Now()
	of := p.lineup.Status(id, now)
	a := agentAnswer{Status: of.State, QueueLength: len(of.Waiting), Queue: []queued{}}
	if !of.Since.IsZero() {
		a.RunningFor = new(now.Sub(of.Since).Milliseconds())
	}
	if t := p.tabOf(id); t != nil && t.ours != nil {
		a.CurrentMessage = &t.ours.message.body.Message
	}
	for _, m := range of.Waiting {
		a.Queue = append(a.Queue, queued{m.body.Message, stamp(time.UnixMilli(m.command.IssuedAt))})
	}
	return a
}

// sessions is GET …/sidebar/sessions.
func (s *Sidebars) sessions(w http.ResponseWriter, _ *http.Request, session protocol.SessionID) error {
	p, err := s.panel(session)
	if err != nil {
		return err
	}
	p.mu.Lock()
	all := append([]chapter{p.chapter()}, p.past...)
	p.mu.Unlock()
	return s.answer(w, map[string]any{"sessions": all, "activeId": all[0].ID})
}

// activity is GET …/activity/stream?after=: "activity" for each entry, "gap" where
// some are missing.
func (s *Sidebars) activity(w http.ResponseWriter, r *http.Request, session protocol.SessionID) error {
	after, err := number(r, "after")
	if err != nil {
		return err
	}
	p, err := s.panel(session)
	if err != nil {
		return err
	}
	seat, err := p.follow(0, 0) // it counts among the streams
	if err != nil {
		return err
	}
	defer seat.close()
	subscription := s.o.Activity.Subscribe(session, after, s.o.Secrets)
	defer subscription.Close()
	push.Serve(p.closing, w, r, subscription)
	return nil
}

// history is GET …/activity/history?limit=.
func (s *Sidebars) history(w http.ResponseWriter, r *http.Request, session protocol.SessionID) error {
	limit, err := number(r, "limit")
	if err != nil {
		return err
	}
	if limit == 0 {
		limit = defaultHistory
	}
	return s.answer(w, s.o.Activity.Newest(session, int(min(limit, maxHistory))))
}
