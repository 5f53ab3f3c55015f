package link

import (
	"slices"
	"testing"

	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/protocol/jws"
	"github.com/fairlead/fairlead/protocol/op"
)

func TestTerminal(t *testing.T) {
	r := newRig(t)
	pty := r.pty()
	token, id := r.grant(alice, control)
	e := r.attach(pty, token)
	if o := e.opened; o.Creator != alice || o.Claimed || o.Lease.State != protocol.LeaseFree || o.Cols != protocol.DefaultCols {
		t.Errorf("opened %+v", o)
	}
	e.output("up")
	leased := e.propose(7, e.opened.Lease.Revision, alice, id)
	if leased.Refused != "" || leased.Lease.Holder != alice || leased.Lease.GrantID != id {
		t.Fatalf("leased %+v", leased)
	}
	e.send(protocol.Input{Term: leased.Lease.Term, Seq: 1, Client: "c1", Bytes: []byte("hello")})
	if ack := next[protocol.InputAck](e); ack.Seq != 1 || ack.Client != "c1" {
		t.Errorf("ack %+v", ack)
	}
	e.output("hello")
	e.send(protocol.Input{Term: leased.Lease.Term + 1, Seq: 2, Client: "c1", Bytes: []byte("x")})
	if refused := next[protocol.InputRefused](e); refused.Reason != protocol.RefusedStaleTerm {
		t.Errorf("refused %+v", refused)
	}
	e.send(protocol.Resize{Term: leased.Lease.Term, Cols: 100, Rows: 40})
	if m := next[protocol.Resized](e); m.Cols != 100 || m.Rows != 40 || m.Offset != 7 {
		t.Errorf("resized %+v", m)
	}
	e.send(protocol.Holder{User: alice, Sockets: 0})
	if m := next[protocol.Leased](e); m.Lease.State != protocol.LeaseGrace {
		t.Errorf("leased %+v", m)
	}
	must(t, r.Host.Signal(session, pty, "KILL"))
	if m := next[protocol.Exited](e); m.Signal != "SIGKILL" || m.Offset != 7 {
		t.Errorf("exited %+v", m)
	}
	e.ended()
	// The end can still be seen.
	late := r.attach(pty, token)
	if late.opened.Exited == nil {
		t.Errorf("opened late: %+v", late.opened)
	}
	late.output("uphello")
	late.ended()
}

func TestTerminalRefused(t *testing.T) {
	r := newRig(t)
	pty, other := r.pty(), r.pty()
	grant := func(caps []protocol.Capability, change func(*jws.Grant)) string {
		token, _ := r.grant(alice, caps, change)
		return token
	}
	for _, tt := range []struct {
		what  string
		pty   protocol.PTYID
		grant string
		kind  protocol.Kind
	}{
		{"no grant", pty, "", protocol.KindUnauthenticated},
		{"no token", pty, "a.b.c", protocol.KindUnauthenticated},
		{"another sandbox", pty, grant(control, func(g *jws.Grant) { g.Sandbox = "sb_2" }), protocol.KindForbidden},
		{"another session", pty, grant(control, func(g *jws.Grant) { g.Session = "ses_2" }), protocol.KindForbidden},
		{"another terminal", pty, grant(control, func(g *jws.Grant) { g.PTYs = []string{string(other)} }), protocol.KindForbidden},
		{"no terminal", pty, grant(control, func(g *jws.Grant) { g.PTYs = []string{} }), protocol.KindForbidden},
		{"no view", pty, grant([]protocol.Capability{protocol.CapControl}, func(*jws.Grant) {}), protocol.KindForbidden},
		{"expired", pty, grant(control, func(g *jws.Grant) { g.IssuedAt -= 600; g.ExpiresAt -= 400 }), protocol.KindExpired},
		{"unknown terminal", "pty_none", grant(control, func(*jws.Grant) {}), protocol.KindNotFound},
	} {
		t.Run(tt.what, func(t *testing.T) {
			_, err := r.openTerminal(tt.pty, tt.grant)
			wantKind(t, err, tt.kind)
		})
	}
	_, _, err := r.open(protocol.LaneTerminal0, protocol.Open{
		Kind: protocol.StreamTerminal, Grant: grant(view, func(*jws.Grant) {}), Params: []byte(`{"pty_id":7}`),
	})
	wantKind(t, err, protocol.KindInvalid)
	if len(r.watched) != 0 {
		t.Errorf("the tunnel is watched: %v", r.watched)
	}
}

// TestLeaseNeedsControl: a proposal without a right to it is answered with the
// lease as it stands.
func TestLeaseNeedsControl(t *testing.T) {
	r := newRig(t)
	pty := r.pty()
	viewer, viewerID := r.grant(bob, view)
	e := r.attach(pty, viewer)
	controller, controllerID := r.grant(alice, control)
	elsewhere, elsewhereID := r.grant(alice, control, func(g *jws.Grant) { g.PTYs = []string{"pty_2"} })
	if m := e.add(elsewhere); m.Refused == "" || m.GrantID != elsewhereID {
		t.Errorf("granted %+v", m)
	}
	refused := func(what string, holder protocol.UserID, grant protocol.GrantID) {
		t.Helper()
		m := e.propose(1, 0, holder, grant)
		if m.Refused == "" || m.Lease != e.opened.Lease {
			t.Errorf("%s: %+v, want the lease %+v", what, m, e.opened.Lease)
		}
	}
	refused("a viewer", bob, viewerID)
	refused("a grant that is not here", alice, controllerID)
	refused("a grant for another terminal", alice, elsewhereID)
	if m := e.add(controller); m.Refused != "" || m.GrantID != controllerID {
		t.Errorf("granted %+v", m)
	}
	refused("another's grant", bob, controllerID)
	e.send(protocol.GrantDrop{GrantID: controllerID})
	refused("a grant that was dropped", alice, controllerID)
	e.add(controller)
	held := e.propose(2, 0, alice, controllerID)
	if held.Refused != "" || held.Lease.Holder != alice {
		t.Fatalf("leased %+v", held)
	}
	// The agent answers with what stands, not with what the relay expects.
	if m := e.propose(3, 0, bob, viewerID); m.Refused == "" || m.Lease.Holder != alice {
		t.Errorf("leased %+v", m)
	}
	// Giving control back needs no grant.
	if m := e.propose(4, held.Lease.Revision, "", ""); m.Refused != "" || m.Lease.State != protocol.LeaseFree {
		t.Errorf("leased %+v", m)
	}
}

func TestGrantsOfAStream(t *testing.T) {
	r := newRig(t)
	first, _ := r.grant(alice, view)
	e := r.attach(r.pty(), first)
	for _, tt := range []struct {
		what   string
		change func(*jws.Grant)
	}{
		{"another sandbox", func(g *jws.Grant) { g.Sandbox = "sb_2" }},
		{"another session", func(g *jws.Grant) { g.Session = "ses_2" }},
		{"no view", func(g *jws.Grant) { g.Caps = []protocol.Capability{protocol.CapChat} }},
		{"expired", func(g *jws.Grant) { g.IssuedAt -= 600; g.ExpiresAt -= 400 }},
	} {
		token, _ := r.grant(bob, view, tt.change)
		if m := e.add(token); m.Refused == "" {
			t.Errorf("%s: %+v", tt.what, m)
		}
	}
	if m := e.add("a.b.c"); m.Refused == "" || m.GrantID != "" {
		t.Errorf("granted %+v", m)
	}
	second, secondID := r.grant(bob, view, func(g *jws.Grant) { g.ExpiresAt += 60 })
	if m := e.add(second); m.Refused != "" || m.GrantID != secondID {
		t.Errorf("granted %+v", m)
	}
}

// TestEndOfTheLastGrant: a stream that nobody may view any more is closed.
func TestEndOfTheLastGrant(t *testing.T) {
	for what, end := range map[string]func(*rig, *terminalEnd, protocol.GrantID){
		"expires":    func(*rig, *terminalEnd, protocol.GrantID) {},
		"is dropped": func(_ *rig, e *terminalEnd, id protocol.GrantID) { e.send(protocol.GrantDrop{GrantID: id}) },
		"is revoked": func(r *rig, _ *terminalEnd, id protocol.GrantID) { r.Host.RevokeGrants(id) },
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			r := newRig(t)
			pty := r.pty()
			token, id := r.grant(alice, view)
			e := (*terminalEnd)(nil)
			if what == "expires" {
				r.expiring(view, func(token string) (err error) {
					e, err = r.openTerminal(pty, token)
					return err
				})
			} else {
				e = r.attach(pty, token)
			}
			end(r, e, id)
			e.ended()
			if what == "is revoked" {
				_, err := r.openTerminal(r.pty(), token)
				wantKind(t, err, protocol.KindUnauthenticated)
			}
		})
	}
}

// TestRevokedController: what is revoked while its stream stays open, for
// others, doesn't control any more.
func TestRevokedController(t *testing.T) {
	r := newRig(t)
	viewer, _ := r.grant(bob, view)
	e := r.attach(r.pty(), viewer)
	e.output("up")
	token, id := r.grant(alice, control)
	e.add(token)
	held := e.propose(1, e.opened.Lease.Revision, alice, id)
	if held.Refused != "" {
		t.Fatalf("leased %+v", held)
	}
	e.send(protocol.Input{Term: held.Lease.Term, Seq: 1, Client: "c1", Bytes: []byte("text")})
	next[protocol.InputAck](e)
	r.Host.RevokeGrants(id)
	if m := next[protocol.Leased](e); m.Lease.State != protocol.LeaseFree {
		t.Fatalf("leased %+v", m)
	}
	e.send(protocol.Input{Term: held.Lease.Term, Seq: 2, Client: "c1", Bytes: []byte("\r")})
	if m := next[protocol.InputRefused](e); m.Reason != protocol.RefusedNotController {
		t.Errorf("refused %+v", m)
	}
	if m := e.add(token); m.Refused == "" {
		t.Errorf("granted %+v", m)
	}
	if m := e.propose(2, held.Lease.Revision+1, alice, id); m.Refused == "" {
		t.Errorf("leased %+v", m)
	}
}

// TestAgentInFront: a coding agent takes the terminal, whatever the relay says.
func TestAgentInFront(t *testing.T) {
	r := newRig(t)
	pty := r.pty()
	token, id := r.grant(alice, control)
	e := r.attach(pty, token)
	e.output("up")
	held := e.propose(1, e.opened.Lease.Revision, alice, id)
	_, err := r.Host.StartAgent(t.Context(), session, pty, op.AgentStart{Name: "robot", Command: "stty raw -echo; printf hi; cat"})
	must(t, err)
	if m := next[protocol.AgentReport](e); m.State != protocol.AgentRunning || m.Name != "robot" {
		t.Errorf("agent %+v", m)
	}
	if m := next[protocol.Leased](e); m.Lease.Holder != protocol.AgentHolder || m.Lease.Term != held.Lease.Term+1 {
		t.Errorf("leased %+v", m)
	}
	for _, term := range []uint64{held.Lease.Term, held.Lease.Term + 1} {
		e.send(protocol.Input{Term: term, Seq: term, Client: "c1", Bytes: []byte("x")})
		if m := next[protocol.InputRefused](e); m.Reason != protocol.RefusedAgentRunning {
			t.Errorf("refused %+v", m)
		}
	}
	if m := e.propose(2, held.Lease.Revision+1, alice, id); m.Refused != string(protocol.RefusedAgentRunning) {
		t.Errorf("leased %+v", m)
	}
	if late := r.attach(pty, token); late.opened.Agent == nil || late.opened.Agent.State != protocol.AgentRunning {
		t.Errorf("opened %+v", late.opened)
	}
	_, err = r.Host.StopAgent(t.Context(), session, pty)
	must(t, err)
	if m := next[protocol.AgentReport](e); m.State != protocol.AgentStopped {
		t.Errorf("agent %+v", m)
	}
	if m := next[protocol.Leased](e); m.Lease.Holder != alice || m.Lease.Term != held.Lease.Term+2 {
		t.Errorf("leased %+v", m)
	}
}

// TestUnexpectedFrames: a relay that doesn't speak the protocol loses the
// stream and nothing else.
func TestUnexpectedFrames(t *testing.T) {
	r := newRig(t)
	token, _ := r.grant(alice, view)
	pty := r.pty()
	for _, m := range []protocol.Message{
		protocol.Ping{ID: 1}, protocol.Data{Bytes: []byte("x")}, protocol.Opened{}, protocol.Leased{Lease: protocol.Lease{State: protocol.LeaseFree}},
	} {
		e := r.attach(pty, token)
		e.send(m)
		e.ended()
	}
	e := r.attach(pty, token)
	_, err := e.stream.Write([]byte{0x7f, 0, 0, 0, 0, 0, 0, 0})
	must(t, err)
	e.ended()
	r.attach(pty, token)
}

// TestWatched: the tunnel is watched while a terminal stream is open, and a
// moment longer.
func TestWatched(t *testing.T) {
	r := newRig(t)
	token, _ := r.grant(alice, view)
	a, b := r.pty(), r.pty()
	first, second := r.attach(a, token), r.attach(b, token)
	must(t, r.Host.Close(session, a))
	first.ended()
	must(t, r.Host.Close(session, b))
	second.ended()
	third := r.attach(r.pty(), token)
	third.stream.Close()
	r.relay.Close()
	<-r.served
	if want := []bool{true}; !slices.Equal(r.watched, want) {
		t.Errorf("the tunnel was told %v, want %v", r.watched, want)
	}
}
