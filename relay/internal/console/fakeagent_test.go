package console_test

import (
	"encoding/json"
	"net/http"
	"slices"
	"strings"

	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/protocol/op"
)

func (f *fakeRelay) loginConfig(w http.ResponseWriter, _ *http.Request) {
	f.mu.Lock()
	defer f.mu.Unlock()
	answer(w, 200, map[string]any{"oidc": f.signIn != "", "name": f.signIn})
}

func (f *fakeRelay) logout(w http.ResponseWriter, r *http.Request) {
	if _, ok := f.user(w, r, false); !ok {
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.users, strings.TrimPrefix(r.Header.Get("Authorization"), "Bearer "))
	w.WriteHeader(http.StatusNoContent)
}

// mayAgent finds the terminal of a request about its agent.
func (f *fakeRelay) mayAgent(w http.ResponseWriter, r *http.Request) *fakePTY {
	u, ok := f.user(w, r, true)
	if !ok {
		return nil
	}
	if r.Header.Get("Idempotency-Key") == "" || !slices.Contains(u.caps, protocol.CapAgent) {
		f.fault("POST agent by %s with key %q", u.id, r.Header.Get("Idempotency-Key"))
	}
	p := f.pty(r.PathValue("pid"))
	if p == nil {
		refuse(w, protocol.KindNotFound)
	}
	return p
}

func (f *fakeRelay) startAgent(w http.ResponseWriter, r *http.Request) {
	p := f.mayAgent(w, r)
	if p == nil {
		return
	}
	var start op.AgentStart
	if err := json.NewDecoder(r.Body).Decode(&start); err != nil {
		refuse(w, protocol.KindInvalid)
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	switch {
	case start.Name == "droid":
		answer(w, 400, map[string]any{"error": protocol.ErrorBody{Message: "droid is not installed in this sandbox", Name: "RequestError"}})
		return
	case p.agent.AgentState != protocol.AgentStopped:
		refuse(w, protocol.KindConflict)
		return
	}
	p.started = append(p.started, start)
	p.work(start.Name)
	answer(w, 200, map[string]any{"state": p.agent.AgentState})
}

func (f *fakeRelay) steerAgent(w http.ResponseWriter, r *http.Request) {
	p := f.mayAgent(w, r)
	if p == nil {
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	switch r.PathValue("verb") {
	case "pause":
		p.rest(protocol.AgentPaused)
	case "resume":
		p.work(p.agent.Agent)
	case "stop":
		p.rest(protocol.AgentStopped)
	}
	answer(w, 200, map[string]any{"state": p.agent.AgentState})
}

// work has an agent take control.
func (p *fakePTY) work(name string) {
	p.before = p.controller
	p.hold(protocol.AgentHolder)
	p.agent = protocol.AgentStateMessage{AgentState: protocol.AgentRunning, Agent: name}
	p.changed(protocol.ControlTaken{Controller: protocol.AgentHolder, Term: p.term})
	p.changed(p.agent)
}

// rest has the agent give control back.
func (p *fakePTY) rest(state protocol.AgentState) {
	if p.agent.AgentState == protocol.AgentRunning {
		p.hold(p.before)
		p.requests = slices.DeleteFunc(p.requests, func(id protocol.UserID) bool { return id == p.before })
		if p.before == "" {
			p.changed(protocol.ControlRevoked{From: protocol.AgentHolder})
		} else {
			p.changed(protocol.ControlGranted{From: protocol.AgentHolder, To: p.before, Controller: p.before, Term: p.term})
		}
	}
	p.agent.AgentState = state
	p.changed(p.agent)
}

// finish has the agent end its turn: one in front waits for a prompt then.
func (f *fakeRelay) finish(p *fakePTY, turn protocol.AgentStoppedMessage) {
	f.mu.Lock()
	defer f.mu.Unlock()
	p.turn = &turn
	p.broadcast(turn)
	if p.agent.AgentState == protocol.AgentRunning {
		p.rest(protocol.AgentWaiting)
	}
}

// prompt has the agent begin another turn.
func (f *fakeRelay) prompt(p *fakePTY) {
	f.mu.Lock()
	defer f.mu.Unlock()
	p.work(p.agent.Agent)
}
