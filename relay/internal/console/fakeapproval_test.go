package console_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/fairlead/fairlead/protocol"
)

// fakeApprovals is what a sandbox asks for. Guarded by the relay's mu.
type fakeApprovals struct {
	epoch   protocol.Epoch
	events  []protocol.Approval
	current map[string]protocol.Approval
	changed chan struct{} // closed at the next change
	cut     chan struct{} // closed to end the streams
	sinces  []string      // where streams began
	told    int           // events that were sent on the newest stream, and before it
	keys    []string      // of decisions
	words   []string      // what decisions say beyond yes and no
	refused error         // the answer to every decision
	lost    int           // decisions that are taken, and not answered
	rules   protocol.EgressRules
	revoked []string
}

// may finds the user of a request that needs a capability.
func (f *fakeRelay) may(w http.ResponseWriter, r *http.Request, need protocol.Capability) (fakeUser, bool) {
	u, ok := f.user(w, r, true)
	if ok && !slices.Contains(u.caps, need) {
		f.fault("%s %s by %s", r.Method, r.URL.Path, u.id)
		refuse(w, protocol.KindForbidden)
		return u, false
	}
	if ok && r.Method == http.MethodPost && r.Header.Get("Idempotency-Key") == "" {
		f.fault("POST %s without Idempotency-Key", r.URL.Path)
	}
	return u, ok
}

// give lets a user do more.
func (f *fakeRelay) give(token string, caps ...protocol.Capability) {
	f.mu.Lock()
	defer f.mu.Unlock()
	u := f.users[token]
	u.caps = append(slices.Clone(u.caps), caps...)
	f.users[token] = u
}

// ask makes the sandbox ask for something, with so much time to decide, 0 for no
// end.
func (f *fakeRelay) ask(a protocol.Approval, within time.Duration) {
	now := time.Now()
	a.Revision, a.State, a.SessionID = 1, protocol.ApprovalPending, protocol.SessionID(f.session)
	a.AskedAt = now.UnixMilli()
	if within > 0 {
		a.EndsAt = now.Add(within).UnixMilli()
	}
	if a.Kind == "" {
		a.Kind = protocol.ApprovalEgress
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.change(a)
}

// expire ends what nobody decided.
func (f *fakeRelay) expire(id string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	a := f.approvals.current[id]
	a.Revision++
	a.State, a.EndsAt = protocol.ApprovalExpired, time.Now().UnixMilli()
	f.change(a)
}

// cancel takes back what nobody needs an answer to any more.
func (f *fakeRelay) cancel(id string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	a := f.approvals.current[id]
	a.Revision++
	a.State, a.EndsAt, a.Input = protocol.ApprovalCancelled, time.Now().UnixMilli(), nil
	f.change(a)
}

// settle decides as user.
func (f *fakeRelay) settle(id string, user protocol.UserID, d protocol.Decision) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.decided(id, user, d)
}

// decided returns how the approval stands then, and whether that is d. It is
// called with mu held.
func (f *fakeRelay) decided(id string, user protocol.UserID, d protocol.Decision) (protocol.Approval, bool) {
	a := f.approvals.current[id]
	if a.State != protocol.ApprovalPending {
		return a, a.UserID == user && a.Decision == d
	}
	a.Revision++
	a.State, a.Decision, a.UserID, a.EndsAt, a.Input = protocol.ApprovalDecided, d, user, time.Now().UnixMilli(), nil
	f.change(a)
	return a, true
}

// change is called with mu held.
func (f *fakeRelay) change(a protocol.Approval) {
	if f.approvals.current == nil {
		f.approvals.current = make(map[string]protocol.Approval)
	}
	f.approvals.current[a.ID] = a
	f.approvals.events = append(f.approvals.events, a)
	if f.approvals.changed != nil {
		close(f.approvals.changed)
		f.approvals.changed = nil
	}
}

// cutApprovals ends all streams of approvals.
func (f *fakeRelay) cutApprovals() {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.approvals.cut != nil {
		close(f.approvals.cut)
		f.approvals.cut = nil
	}
}

func withLeft(a protocol.Approval) protocol.Approval {
	if a.State == protocol.ApprovalPending && a.EndsAt != 0 {
		a.LeftMs = max(a.EndsAt-time.Now().UnixMilli(), 1)
	}
	return a
}

func (f *fakeRelay) followApprovals(w http.ResponseWriter, r *http.Request) {
	if _, ok := f.may(w, r, protocol.CapApprove); !ok {
		return
	}
	f.mu.Lock()
	f.approvals.sinces = append(f.approvals.sinces, r.URL.Query().Get("since"))
	at := len(f.approvals.events)
	if since, err := protocol.ParsePosition(r.URL.Query().Get("since")); err == nil && since.Epoch == f.approvals.epoch {
		at = int(since.Offset)
	}
	opened := protocol.ApprovalsOpened{Epoch: f.approvals.epoch, Offset: uint64(at), Pending: []protocol.Approval{}}
	opened.Gap = r.URL.Query().Has("since") && at == len(f.approvals.events)
	for _, id := range f.approvals.ids() {
		if a := f.approvals.current[id]; a.State == protocol.ApprovalPending {
			opened.Pending = append(opened.Pending, withLeft(a))
		}
	}
	if f.approvals.cut == nil {
		f.approvals.cut = make(chan struct{})
	}
	cut := f.approvals.cut
	f.mu.Unlock()
	w.Header().Set("Content-Type", "text/event-stream")
	fmt.Fprint(w, "retry: 2000\n\n: \n\n")
	f.write(w, "opened", at, opened)
	for {
		f.mu.Lock()
		news := slices.Clone(f.approvals.events[at:])
		if f.approvals.changed == nil {
			f.approvals.changed = make(chan struct{})
		}
		changed := f.approvals.changed
		f.mu.Unlock()
		for _, a := range news {
			at++
			f.write(w, "approval", at, protocol.ApprovalEvent{Offset: uint64(at - 1), Approval: withLeft(a)})
		}
		f.mu.Lock()
		f.approvals.told = at
		f.mu.Unlock()
		select {
		case <-changed:
		case <-cut:
			return
		case <-r.Context().Done():
			return
		}
	}
}

// ids are those of all approvals, in the order of their first events.
func (a *fakeApprovals) ids() []string {
	var ids []string
	for _, event := range a.events {
		if !slices.Contains(ids, event.ID) {
			ids = append(ids, event.ID)
		}
	}
	return ids
}

func (f *fakeRelay) write(w http.ResponseWriter, name string, at int, v any) {
	data, err := json.Marshal(v)
	if err != nil {
		panic(err)
	}
	fmt.Fprintf(w, "event: %s\nid: %s\ndata: %s\n\n", name, protocol.Position{Epoch: f.approvals.epoch, Offset: uint64(at)}, data)
	w.(http.Flusher).Flush()
}

func (f *fakeRelay) listApprovals(w http.ResponseWriter, r *http.Request) {
	if _, ok := f.may(w, r, protocol.CapApprove); !ok {
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	list := protocol.ApprovalList{Epoch: f.approvals.epoch, Offset: uint64(len(f.approvals.events)), Approvals: []protocol.Approval{}}
	for _, id := range f.approvals.ids() {
		list.Approvals = append(list.Approvals, withLeft(f.approvals.current[id]))
	}
	answer(w, 200, list)
}

func (f *fakeRelay) decide(w http.ResponseWriter, r *http.Request) {
	u, ok := f.may(w, r, protocol.CapApprove)
	if !ok {
		return
	}
	var body struct {
		Kind     protocol.ApprovalKind `json:"kind"`
		Revision uint64                `json:"revision"`
		Decision protocol.Decision     `json:"decision"`
		Message  string                `json:"message"`
		Remember string                `json:"remember"`
	}
	id := r.PathValue("aid")
	if err := json.NewDecoder(r.Body).Decode(&body); err != nil {
		f.fault("a decision: %v", err)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.approvals.keys = append(f.approvals.keys, r.Header.Get("Idempotency-Key"))
	if f.approvals.refused != nil {
		kind := protocol.KindOf(f.approvals.refused)
		answer(w, kind.Status(), map[string]any{"error": protocol.ErrorBody{Message: f.approvals.refused.Error(), Name: kind.Name()}})
		return
	}
	before, known := f.approvals.current[id]
	if !known || before.Kind != body.Kind || before.State == protocol.ApprovalPending && before.Revision != body.Revision {
		f.faults = append(f.faults, fmt.Sprintf("decision %+v about %+v", body, before))
		refuse(w, protocol.KindConflict)
		return
	}
	if words := body.Message + body.Remember; words != "" {
		f.approvals.words = append(f.approvals.words, string(body.Decision)+" "+words)
	}
	a, applied := f.decided(id, protocol.UserID(u.id), body.Decision)
	if f.approvals.lost > 0 {
		f.approvals.lost--
		panic(http.ErrAbortHandler)
	}
	answer(w, 200, map[string]any{"approval": a, "applied": applied})
}

func (f *fakeRelay) allowlist(w http.ResponseWriter, r *http.Request) {
	if _, ok := f.may(w, r, protocol.CapApprove); !ok {
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	answer(w, 200, f.approvals.rules)
}

func (f *fakeRelay) revokeEgress(w http.ResponseWriter, r *http.Request) {
	if _, ok := f.may(w, r, protocol.CapApprove); !ok {
		return
	}
	var body struct {
		Pattern string `json:"pattern"`
	}
	if err := json.NewDecoder(r.Body).Decode(&body); err != nil || strings.TrimSpace(body.Pattern) == "" {
		f.fault("egress/revoke of %q: %v", body.Pattern, err)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	other := func(pattern string) bool { return pattern == body.Pattern }
	f.approvals.rules.User = slices.DeleteFunc(f.approvals.rules.User, other)
	f.approvals.rules.Denied = slices.DeleteFunc(f.approvals.rules.Denied, other)
	f.approvals.revoked = append(f.approvals.revoked, body.Pattern)
	w.WriteHeader(http.StatusNoContent)
}
