package chathub

import (
	"context"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/protocol/jws"
	"github.com/fairlead/fairlead/relay/internal/relaytest"
)

// still returns a hub and a socket of a set, without goroutines.
func still(tb testing.TB) (*hub, *Socket) {
	tb.Helper()
	set := NewSet(Options{Tunnels: &relaytest.Tunnels{}, Log: slog.New(slog.DiscardHandler), Metrics: NewMetrics(prometheus.NewRegistry())})
	grant := &jws.Grant{Subject: "usr_alice", ID: "gr_alice", ExpiresAt: time.Now().Add(time.Hour).Unix()}
	h := newHub(Key{"sb_test", testSession, convA}, set, grant, "token")
	return h, newSocket(set, &conn{changed: make(chan struct{}, 1)}, Guest{Grant: grant, Token: "token", Session: testSession}, 1)
}

func held(revision uint64, who protocol.UserID, grant protocol.GrantID) protocol.Lease {
	return protocol.Lease{Revision: revision, Term: revision, Holder: who, GrantID: grant, State: protocol.LeaseHeld}
}

// hears returns the hub's next message of type M; others are passed over.
func hears[M protocol.Message](w *world) M {
	w.t.Helper()
	deadline := time.After(patience)
	for {
		select {
		case m := <-w.agent.heard:
			if m, ok := m.(M); ok {
				return m
			}
		case <-deadline:
			w.t.Fatalf("no %T came", *new(M))
		}
	}
}

// control passes over all but the next control_state, and checks it.
func (x *client) control(state, controller string, requests ...string) message {
	x.t.Helper()
	m := x.until("control_state")
	if m.State != state || m.Controller != controller || !slices.Equal(m.Requests, requests) && len(m.Requests)+len(requests) > 0 {
		x.t.Fatalf("%s, want %s %s %q", m, state, controller, requests)
	}
	return m
}

// TestControl: who sends takes a free conversation; others ask, are granted, and
// give it back; its owner takes it.
func TestControl(t *testing.T) {
	w := newWorld(t)
	l := w.agent.has(convA, 1)
	x, y, z := w.join(alice), w.join(bob), w.join(carol)
	for _, c := range []*client{x, y, z} {
		c.s.Hello()
		c.follow(convA, 0)
		c.acked(convA, 1, false)
		c.control("free", "")
	}
	hears[protocol.Holder](w)
	w.agent.leases(l, held(2, "usr_bob", "gr_bob"), 0) // the agent took his message
	for _, c := range []*client{x, y, z} {
		c.control("held", "usr_bob")
	}
	if s, err := y.s.State(t.Context(), convA); err != nil || !s.Mine || s.Controller != "usr_bob" {
		t.Errorf("%+v, %v", s, err)
	}
	if s, err := x.s.State(t.Context(), convA); err != nil || s.Mine {
		t.Errorf("%+v, %v", s, err)
	}
	if err := x.s.RequestControl(t.Context(), convA); err != nil {
		t.Fatal(err)
	}
	for _, c := range []*client{x, y, z} {
		c.control("held", "usr_bob", "usr_alice")
	}
	if err := z.s.RequestControl(t.Context(), convA); err != nil {
		t.Fatal(err)
	}
	if m := z.until("protocol_error"); m.Code != "FORBIDDEN" || m.SessionID != convA {
		t.Errorf("%s", m)
	}
	x.s.GrantControl(t.Context(), convA, "usr_alice")
	if m := x.until("protocol_error"); m.Code != "NOT_CONTROLLER" || m.Text != "Only the controller can do this." {
		t.Errorf("%s", m)
	}
	y.s.GrantControl(t.Context(), convA, "usr_carol")
	if m := y.until("protocol_error"); m.Code != "FORBIDDEN" || m.Text != "That user's access does not include control." {
		t.Errorf("%s", m)
	}
	y.s.GrantControl(t.Context(), convA, "usr_alice")
	p := hears[protocol.LeaseProposal](w)
	if p.Next.Holder != "usr_alice" || p.Next.GrantID != "gr_alice" || p.ExpectRevision != 2 {
		t.Errorf("%+v", p)
	}
	w.agent.leases(l, held(3, "usr_alice", "gr_alice"), p.ID)
	for _, c := range []*client{x, y, z} {
		c.control("held", "usr_alice")
	}
	grace := held(4, "usr_alice", "gr_alice")
	grace.State, grace.MSLeft = protocol.LeaseGrace, 9000
	w.agent.leases(l, grace, 0)
	if m := y.control("grace", "usr_alice"); m.MSLeft <= 0 || m.MSLeft > 9000 {
		t.Errorf("%s", m)
	}
	w.agent.leases(l, held(5, "usr_bob", "gr_bob"), 0)
	y.control("held", "usr_bob")
	x.s.RevokeControl(t.Context(), convA) // alice owns the session
	if p := hears[protocol.LeaseProposal](w); p.Next.Holder != "usr_alice" || p.Next.Reason != protocol.ReasonOwner {
		t.Errorf("%+v", p)
	}
	x.leave()
	for m := hears[protocol.Holder](w); m != (protocol.Holder{User: "usr_alice"}); m = hears[protocol.Holder](w) {
	}
}

// TestOldClients: a client that never says chat.hello gets the seed's kinds only.
func TestOldClients(t *testing.T) {
	w := newWorld(t)
	l := w.agent.has(convA, 1)
	x, y := w.join(alice), w.join(bob)
	y.s.Hello()
	for _, c := range []*client{x, y} {
		c.follow(convA, 0)
		c.acked(convA, 1, false)
	}
	y.gets("control_state")
	if m := y.gets("presence"); m.Count != 2 || len(m.Viewers) != 2 || m.SessionID != convA {
		t.Errorf("%s", m)
	}
	if m := y.gets("run_state"); m.State != "idle" {
		t.Errorf("%s", m)
	}
	w.agent.leases(l, held(2, "usr_alice", "gr_alice"), 0)
	y.control("held", "usr_alice")
	w.agent.becomes(l, protocol.RunRunning, "cmd_1")
	w.agent.prints(l)
	if m := y.gets("run_state"); m.State != "running" || m.CommandID != "cmd_1" {
		t.Errorf("%s", m)
	}
	y.reads(convA, 2, 2)
	x.reads(convA, 2, 2) // nothing else before
	for _, in := range []protocol.PTYID{"pty_1", "", "pty_1"} {
		w.agent.goesOn(l, in)
		if m := y.gets("run_state"); m.State != "idle" || m.Terminal != string(in) {
			t.Errorf("%s", m)
		}
	}
	w.agent.prints(l)
	y.reads(convA, 3, 3)
	x.reads(convA, 3, 3)
	x.s.Hello()
	x.gets("control_state", "presence")
	if m := x.gets("run_state"); m.Terminal != "pty_1" {
		t.Errorf("%s", m)
	}
}

// TestPresence: those who know it are told of changes, at most once a second.
func TestPresence(t *testing.T) {
	h, socket := still(t)
	socket.hello.Store(true)
	h.ring.Opened(protocol.ChatOpened{Epoch: 1, FirstSeq: 1, From: 1, State: protocol.ChatState{Run: protocol.RunIdle}})
	f := newFollower(socket, h, 1, socket.grant.Load(), "token")
	f.admitted, h.members[1] = true, f
	f.spot.cursor.Begin(0, true)
	now, told := time.Now(), 0
	for i := range 100 { // within 4 s
		h.present.Add(protocol.UserID(rune('a'+i)), "", false)
		h.tick(now.Add(time.Duration(i) * 40 * time.Millisecond))
		for it, ok := socket.queue.pop(); ok; it, ok = socket.queue.pop() {
			if it.of == nil {
				told++
			}
		}
	}
	if told < 3 || told > 5 {
		t.Errorf("%d times within 4 s", told)
	}
	if wait := h.untilTick(now.Add(4 * time.Second)); wait > time.Second {
		t.Errorf("the next one is due in %v", wait)
	}
	frame := string(h.presenceFrame()) // names some, and counts all
	if n := strings.Count(frame, `"user_id"`); n != 50 || !strings.Contains(frame, `"count":100,`) {
		t.Errorf("%d people are named: %s", n, frame)
	}
}

// TestNews: all sockets of a session are told, whatever they follow.
func TestNews(t *testing.T) {
	w := newWorld(t)
	x, y := w.join(alice), w.join(carol)
	<-w.agent.newsIn
	w.agent.tells(`{"kind":"session_upserted","sessionId":"a"}`)
	w.agent.tells(`{"kind":"moved","origin":"https://evil.example"}`)
	w.agent.tells(`{"kind":"loading_progress","phase":"complete"}`)
	for _, c := range []*client{x, y} {
		c.gets("session_upserted", "loading_progress")
	}
	w.agent.mu.Lock()
	streams := w.agent.news
	w.agent.news = nil
	w.agent.mu.Unlock()
	if len(streams) != 1 {
		t.Errorf("%d streams for one session", len(streams))
	}
	streams[0].Close()
	<-w.agent.newsIn // it is opened again
	w.agent.tells(`{"kind":"session_upserted","sessionId":"b"}`)
	x.gets("session_upserted")
	if n := testutil.ToFloat64(w.set.metrics.Dropped.WithLabelValues(droppedNews)); n != 1 {
		t.Errorf("%v dropped", n)
	}
}

// TestGrants: a socket ends with its grant, and goes on under a newer one.
func TestGrants(t *testing.T) {
	w := newWorld(t)
	l := w.agent.has(convA, 0)
	x, y, z := w.join(alice), w.join(bob), w.join(carol)
	for _, c := range []*client{x, y, z} {
		c.follow(convA, 0)
		c.acked(convA, 0, false)
	}
	newer, token := w.authority.Grant(func(g *jws.Grant) { bob(g); g.ID = "gr_bob2" })
	if err := y.s.Renew(newer, token); err != nil {
		t.Fatal(err)
	}
	for _, wrong := range []func(*jws.Grant){
		carol,
		func(g *jws.Grant) { bob(g); g.Sandbox = "sb_other" },
		func(g *jws.Grant) { bob(g); g.Session = "ses_other" },
		func(g *jws.Grant) { bob(g); g.Caps = g.Caps[1:] },
	} {
		grant, token := w.authority.Grant(wrong)
		if err := y.s.Renew(grant, token); protocol.KindOf(err) != protocol.KindForbidden {
			t.Errorf("%v", err)
		}
	}
	w.authority.Revoked.Add("gr_alice", "gr_bob")
	if m := x.gets(closed); m.Close != 4401 {
		t.Errorf("%s", m)
	}
	w.agent.prints(l)
	y.reads(convA, 1, 1)
	z.reads(convA, 1, 1)
	w.authority.Ahead.Store(int64(time.Hour))
	for _, c := range []*client{y, z} {
		if m := c.gets(closed); m.Close != 4401 {
			t.Errorf("%s", m)
		}
	}
	for why, n := range map[string]float64{cutRevoked: 1, cutExpired: 2} {
		w.becomesTrue(func() bool { // it is counted just after the close
			return testutil.ToFloat64(w.set.metrics.SocketsCut.WithLabelValues(why)) == n
		})
	}
}

// TestRefusedGrants: whom the agent refuses doesn't follow, others do.
func TestRefusedGrants(t *testing.T) {
	w := newWorld(t)
	l := w.agent.has(convA, 1)
	w.agent.opens = func(o protocol.Open) error {
		if g, err := w.authority.Keys.Grant(t.Context(), o.Grant); err != nil || g.Subject == "usr_alice" {
			return protocol.Fault(protocol.KindForbidden, err)
		}
		return nil
	}
	w.agent.takes = func(m protocol.GrantAdd) *protocol.Granted {
		g, err := w.authority.Keys.Grant(t.Context(), m.Grant)
		if err != nil || g.Subject == "usr_carol" {
			return &protocol.Granted{Handle: m.Handle, GrantID: "gr_carol", Refused: "no"}
		}
		return &protocol.Granted{Handle: m.Handle}
	}
	x, y, z := w.join(alice), w.join(bob), w.join(carol)
	x.follow(convA, 0)
	if m := x.gets("protocol_error"); m.Code != "FORBIDDEN" || m.SessionID != "" { // seed 002's client would end a run
		t.Errorf("%s", m)
	}
	if _, err := x.s.State(t.Context(), convA); protocol.KindOf(err) != protocol.KindForbidden {
		t.Errorf("%v", err)
	}
	y.follow(convA, 0)
	y.acked(convA, 1, false)
	z.s.Hello()
	z.follow(convA, 0)
	if m := z.gets("protocol_error"); m.Code != "FORBIDDEN" || m.SessionID != convA {
		t.Errorf("%s", m)
	}
	w.agent.prints(l)
	y.reads(convA, 2, 2)
	if n := len(z.s.followers()) + len(x.s.followers()); n != 0 {
		t.Errorf("%d followers are left", n)
	}
}

// TestIdle: a hub that nobody has joined ends after a while, and its person and
// sandbox don't have it any more.
func TestIdle(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorldWithout(t)
		x := w.join(alice)
		x.follow(convA, 0)
		x.leave()
		time.Sleep(idleTime - time.Second)
		synctest.Wait()
		w.set.mu.Lock()
		if len(w.set.hubs) != 1 || len(w.set.people) != 0 {
			t.Errorf("%d hubs, %d people", len(w.set.hubs), len(w.set.people))
		}
		w.set.mu.Unlock()
		time.Sleep(2 * time.Second)
		synctest.Wait()
		w.set.mu.Lock()
		defer w.set.mu.Unlock()
		if len(w.set.hubs)+len(w.set.sandboxes)+len(w.set.news)+len(w.set.sockets) != 0 {
			t.Errorf("%d hubs, %d sandboxes, %d news", len(w.set.hubs), len(w.set.sandboxes), len(w.set.news))
		}
	})
}

// TestPing: a socket is pinged, and dead if it doesn't answer.
func TestPing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorldWithout(t)
		x := w.join(alice)
		time.Sleep(pingInterval + time.Second)
		x.conn.mu.Lock()
		x.conn.heard = time.Now()
		pings := x.conn.pings
		x.conn.mu.Unlock()
		if pings != 1 {
			t.Errorf("%d pings", pings)
		}
		time.Sleep(pingInterval)
		select {
		case <-x.served:
			t.Error("it is dead though it answers")
		default:
		}
		time.Sleep(pingInterval)
		<-x.served
	})
}

// TestClosedSet: nothing opens any more.
func TestClosedSet(t *testing.T) {
	w := newWorld(t)
	x := w.join(alice)
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	w.set.Close(ctx)
	if m := x.gets(closed); m.Close != 1012 {
		t.Errorf("%s", m)
	}
	grant, token := w.authority.Grant(alice)
	if _, err := w.set.Socket(x.conn, Guest{Grant: grant, Token: token, Session: testSession}); protocol.KindOf(err) != protocol.KindRestarting {
		t.Errorf("%v", err)
	}
	if _, err := x.s.State(t.Context(), convA); err == nil {
		t.Error("a state")
	}
}
