package link

import (
	"encoding/json"
	"path/filepath"
	"testing"

	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/protocol/jws"
	"github.com/fairlead/fairlead/sandbox-agent/internal/approval"
	"github.com/fairlead/fairlead/sandbox-agent/internal/feature"
)

var approve = []protocol.Capability{protocol.CapApprove}

// newApprovalRig is a rig whose sandbox asks for approvals, and knows what is
// revoked.
func newApprovalRig(t *testing.T) (*rig, *jws.RevocationSet) {
	t.Helper()
	r, revoked := newRig(t), jws.NewRevocationSet()
	approvals, err := approval.Open(approval.Options{Dir: filepath.Join(t.TempDir(), "approvals")})
	must(t, err)
	t.Cleanup(func() { approvals.Close() })
	r.Followed, r.approvals = []feature.Followed{approvals}, approvals // nothing was opened yet
	r.Grants = ending(revoked)
	return r, revoked
}

func (r *rig) ask(host string) *approval.Pending {
	r.t.Helper()
	p, err := r.approvals.Ask(approval.Request{Session: session, PTY: "pty_1", Kind: protocol.ApprovalEgress, Host: host, Port: 443})
	must(r.t, err)
	return p
}

func (r *rig) openApprovals(token string, since *protocol.Position) (*terminalEnd, protocol.ApprovalsOpened, error) {
	r.t.Helper()
	params, err := json.Marshal(protocol.ApprovalParams{SessionID: session, Since: since})
	must(r.t, err)
	stream, answer, err := r.open(protocol.LaneControl, protocol.Open{Kind: protocol.StreamApproval, Grant: token, Params: params})
	if err != nil {
		return nil, protocol.ApprovalsOpened{}, err
	}
	var opened protocol.ApprovalsOpened
	must(r.t, json.Unmarshal(answer.Result, &opened))
	return &terminalEnd{t: r.t, stream: stream, frames: protocol.NewFrameReader(stream)}, opened, nil
}

// TestApprovals: what is pending comes with OPENED, what happens then as events,
// and a relay that comes back misses nothing.
func TestApprovals(t *testing.T) {
	r, _ := newApprovalRig(t)
	token, _ := r.grant(alice, approve)
	first := r.ask("a.example")
	e, opened, err := r.openApprovals(token, nil)
	must(t, err)
	if a := opened.Pending; len(a) != 1 || a[0].ID != first.ID() || a[0].LeftMs <= 0 || opened.Offset != 1 || opened.Gap {
		t.Fatalf("%+v", opened)
	}
	second := r.ask("b.example")
	if m := next[protocol.ApprovalEvent](e); m.Offset != 1 || m.Approval.ID != second.ID() || m.Approval.LeftMs <= 0 {
		t.Errorf("%+v", m)
	}
	must(t, e.stream.Close())
	_, applied, err := r.approvals.Decide(protocol.Approval{
		ID: first.ID(), Revision: 1, Kind: protocol.ApprovalEgress, SessionID: session, Decision: protocol.AllowOnce, UserID: bob,
	})
	must(t, err)
	if !applied {
		t.Error("not applied")
	}
	again, reopened, err := r.openApprovals(token, &protocol.Position{Epoch: opened.Epoch, Offset: 2})
	must(t, err)
	if reopened.Gap || reopened.Offset != 2 || len(reopened.Pending) != 2 {
		t.Errorf("%+v", reopened)
	}
	if m := next[protocol.ApprovalEvent](again); m.Offset != 2 || m.Approval.ID != first.ID() || m.Approval.UserID != bob || m.Approval.LeftMs != 0 {
		t.Errorf("%+v", m)
	}
	r.approvals.SessionEnded(session)
	again.ended()
}

func TestApprovalsRefused(t *testing.T) {
	r, _ := newApprovalRig(t)
	grant := func(caps []protocol.Capability, change func(*jws.Grant)) string {
		token, _ := r.grant(alice, caps, change)
		return token
	}
	for _, tt := range []struct {
		what, grant string
		kind        protocol.Kind
	}{
		{"no grant", "", protocol.KindUnauthenticated},
		{"no token", "a.b.c", protocol.KindUnauthenticated},
		{"another sandbox", grant(approve, func(g *jws.Grant) { g.Sandbox = "sb_2" }), protocol.KindForbidden},
		{"another session", grant(approve, func(g *jws.Grant) { g.Session = "ses_2" }), protocol.KindForbidden},
		{"may view", grant(control, func(*jws.Grant) {}), protocol.KindForbidden},
		{"expired", grant(approve, func(g *jws.Grant) { g.IssuedAt -= 600; g.ExpiresAt -= 400 }), protocol.KindExpired},
	} {
		if _, _, err := r.openApprovals(tt.grant, nil); protocol.KindOf(err) != tt.kind || err == nil {
			t.Errorf("%s: %v, want %s", tt.what, err, tt.kind)
		}
	}
	whole := grant(approve, func(g *jws.Grant) { g.Session = "" })
	for _, params := range []string{`{"session_id":7}`, `{}`, `{"session_id":"../x"}`, `{"session_id":"ses_1","since":{"epoch":"x","offset":1}}`} {
		_, _, err := r.open(protocol.LaneControl, protocol.Open{Kind: protocol.StreamApproval, Grant: whole, Params: []byte(params)})
		wantKind(t, err, protocol.KindInvalid)
	}
	plain := newRig(t)
	token, _ := plain.grant(alice, approve)
	_, _, err := plain.openApprovals(token, nil)
	wantKind(t, err, protocol.KindUnsupported)
}

// TestApprovalsEnd: a stream ends with its grant, with what doesn't belong on it,
// and with the log.
func TestApprovalsEnd(t *testing.T) {
	r, revoked := newApprovalRig(t)
	open := func() (*terminalEnd, protocol.GrantID) {
		token, id := r.grant(alice, approve)
		e, _, err := r.openApprovals(token, nil)
		must(t, err)
		return e, id
	}
	void, id := open()
	var expiring *terminalEnd
	r.expiring(approve, func(token string) (err error) {
		expiring, _, err = r.openApprovals(token, nil)
		return err
	})
	talking, _ := open()
	staying, _ := open()
	revoked.Add(id)
	void.ended()
	talking.send(protocol.WantKeyframe{})
	talking.ended()
	expiring.ended()
	r.ask("a.example")
	if m := next[protocol.ApprovalEvent](staying); m.Offset != 0 {
		t.Errorf("%+v", m)
	}
	r.approvals.Close()
	staying.ended()
	token, _ := r.grant(alice, approve)
	_, _, err := r.openApprovals(token, nil)
	wantKind(t, err, protocol.KindUnavailable)
}
