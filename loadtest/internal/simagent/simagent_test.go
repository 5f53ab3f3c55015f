package simagent

import (
	"bufio"
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"io"
	"math/big"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/fairlead/fairlead/loadtest/internal/pattern"
	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/protocol/op"
)

// authority returns a certificate that can vouch for relays.
func authority(t *testing.T) string {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	must(t, err)
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour), IsCA: true, BasicConstraintsValid: true}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	must(t, err)
	return string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}))
}

func TestCommands(t *testing.T) {
	w := newWorld(t)
	session := protocol.CommandTarget{SessionID: testSession}
	create := w.command(session, map[string]any{"kind": op.KindPTYCreate})
	first, made := w.run(create)
	again, same := w.run(create)
	if first.Status != protocol.StatusOK || made.PTYID != same.PTYID || again.At != first.At {
		t.Errorf("the same command twice: %+v %+v, then %+v %+v", first, made, again, same)
	}
	on := protocol.CommandTarget{SessionID: testSession, PTYID: made.PTYID}
	for _, c := range []struct {
		name   string
		token  string
		status string
		err    string
	}{
		{"session", w.command(session, map[string]any{"kind": op.KindSessionCreate}), protocol.StatusOK, ""},
		{"resize", w.command(on, map[string]any{"kind": op.KindPTYResize, "cols": 90, "rows": 20}), protocol.StatusOK, ""},
		{"signal", w.command(on, map[string]any{"kind": op.KindPTYSignal, "signal": "INT"}), protocol.StatusOK, ""},
		{"taken id", w.command(on, map[string]any{"kind": op.KindPTYCreate}), protocol.StatusError, "RequestError"},
		{"another sandbox", w.command(protocol.CommandTarget{SandboxID: "sb_2", SessionID: testSession}, map[string]any{"kind": op.KindSessionCreate}), protocol.StatusError, "TargetError"},
		{"more members", w.command(session, map[string]any{"kind": op.KindPTYCreate, "more": 1}), protocol.StatusError, "RequestError"},
		{"recording", w.command(on, map[string]any{"kind": op.KindRecordStart}), protocol.StatusError, "UnsupportedError"},
		{"no terminal", w.command(protocol.CommandTarget{SessionID: testSession, PTYID: "pty_none"}, map[string]any{"kind": op.KindPTYClose}), protocol.StatusError, "TargetError"},
		{"nonsense", "a.b.c", protocol.StatusError, "AuthError"},
		{"close", w.command(on, map[string]any{"kind": op.KindPTYClose}), protocol.StatusOK, ""},
	} {
		cb, _ := w.run(c.token)
		if cb.Status != c.status || c.err != "" && (cb.Error == nil || cb.Error.Name != c.err) {
			t.Errorf("%s: %+v %+v", c.name, cb, cb.Error)
		}
	}
	if n := w.agent.fleet.Stats().Terminals; n != 0 {
		t.Errorf("%d terminals are left", n)
	}
}

func TestOutcomesAreRememberedWithinBounds(t *testing.T) {
	l := &ledger{known: make(map[protocol.CommandID]*record)}
	for range 3 * maxRemembered {
		if _, fresh := l.begin(protocol.NewCommandID()); !fresh {
			t.Fatal("a new command is known")
		}
	}
	if len(l.known) != maxRemembered || len(l.order) != maxRemembered {
		t.Errorf("%d outcomes in order of %d", len(l.known), len(l.order))
	}
}

// TestStream has a viewer type an order, and checks what the terminal writes.
func TestStream(t *testing.T) {
	w := newWorld(t)
	v := w.view(w.terminal(), nil)
	if o := v.opened; o.Creator != alice || o.Cols != 100 || o.Rows != 30 || o.Lease.State != protocol.LeaseFree || o.Claimed {
		t.Errorf("opened %+v", o)
	}
	if got := v.output(7); string(got) != "ready\r\n" {
		t.Errorf("began with %q", got)
	}
	lease := v.control()
	spec := pattern.Spec{Seed: 3, Chunk: 500, Rate: 5000, Start: time.Now(), Chunks: 200}
	order := protocol.Input{Term: lease.Term, Seq: 1, Client: "c", Bytes: []byte(spec.Order() + "\r")}
	v.say(order)
	v.say(order) // again, as after a lost tunnel
	checker := pattern.NewChecker(spec, nil)
	for acks := 0; acks < 2 || !checker.Done(); {
		m, err := v.next()
		must(t, err)
		switch m := m.(type) {
		case protocol.Data:
			checker.Write(m.Bytes, time.Now())
		case protocol.InputAck:
			if acks++; m.Seq != 1 || m.Client != "c" {
				t.Errorf("acknowledged %+v", m)
			}
		}
	}
	if r := checker.Finish(); !r.SumOK || r.Chunks != 200 {
		t.Errorf("%+v", r)
	}
	v.say(protocol.Input{Term: lease.Term + 1, Seq: 2, Client: "c", Bytes: []byte("clock\r")})
	if m, out := await[protocol.InputRefused](v); m.Reason != protocol.RefusedStaleTerm || len(out) > 0 {
		t.Errorf("input of another term: %+v, and output %q", m, out)
	}
}

// TestResume takes a terminal up where another tunnel left it, and reads a part
// of its log.
func TestResume(t *testing.T) {
	w := newWorld(t)
	pty := w.terminal()
	v := w.view(pty, nil)
	lease := v.control()
	spec := pattern.Spec{Seed: 3, Chunk: 64, Rate: 2000, Start: time.Now(), Chunks: 400}
	v.say(protocol.Input{Term: lease.Term, Seq: 1, Client: "c", Bytes: []byte(spec.Order() + "\r")})
	checker := pattern.NewChecker(spec, nil)
	at := v.opened.Offset
	for at < 64*100 {
		data, _ := await[protocol.Data](v)
		checker.Write(data.Bytes, time.Now())
		at = data.Offset + uint64(len(data.Bytes))
	}
	w.relay.Close()
	w.connect()
	v = w.view(pty, &protocol.Position{Epoch: v.opened.Epoch, Offset: at})
	if v.opened.Offset != at || v.opened.Gap || v.opened.Lease.Holder != alice {
		t.Fatalf("opened %+v, want it at %d", v.opened, at)
	}
	for !checker.Done() {
		data, _ := await[protocol.Data](v)
		checker.Write(data.Bytes, time.Now())
	}
	if r := checker.Finish(); !r.SumOK || r.Chunks != 400 {
		t.Errorf("%+v", r)
	}
	params, err := json.Marshal(protocol.ReadParams{SessionID: testSession, PTYID: pty, Epoch: v.opened.Epoch, From: 7, To: 7 + 64*400})
	must(t, err)
	stream, opened, err := w.relay.Open(w.ctx, protocol.LaneBulk, protocol.Open{Kind: protocol.StreamRead, Grant: w.grant(bob), Params: params})
	must(t, err)
	defer stream.Close()
	var part protocol.ReadOpened
	must(t, json.Unmarshal(opened.Result, &part))
	r := &viewer{w: w, stream: stream, frames: protocol.NewFrameReader(stream)}
	r.opened.Offset = part.From
	checker = pattern.NewChecker(spec, nil)
	checker.Write(r.output(int(part.To-part.From)), time.Now())
	if report := checker.Finish(); !report.SumOK || part.Cols != 100 {
		t.Errorf("read %+v of %+v", report, part)
	}
	if _, err := r.next(); err == nil {
		t.Error("the part doesn't end")
	}
}

func TestKeyframeShowsTheEnd(t *testing.T) {
	w := newWorld(t)
	v := w.view(w.terminal(), nil)
	v.output(7)
	lease := v.control()
	for seq, history := range []bool{true, false, true} {
		v.say(protocol.Input{Term: lease.Term, Seq: uint64(seq + 1), Client: "c", Bytes: []byte("clock\r")})
		v.output(10)
		v.say(protocol.WantKeyframe{History: history})
		m, _ := await[protocol.Keyframe](v)
		if !bytes.HasPrefix(m.Bytes, []byte(fresh+"ready\r\nclock")) || m.History != history || m.Left != 0 {
			t.Errorf("keyframe %+v", m)
		}
	}
}

func TestControl(t *testing.T) {
	w := newWorld(t)
	v := w.view(w.terminal(), nil)
	v.say(protocol.LeaseProposal{ID: 1, Next: protocol.LeaseNext{Holder: bob, GrantID: "gr_usr_bob"}})
	if m, _ := await[protocol.Leased](v); m.Refused == "" {
		t.Errorf("somebody without a grant holds the lease: %+v", m)
	}
	v.say(protocol.GrantAdd{Grant: w.grant(bob)})
	if m, _ := await[protocol.Granted](v); m.GrantID != "gr_usr_bob" || m.Refused != "" {
		t.Errorf("granted %+v", m)
	}
	v.say(protocol.LeaseProposal{ID: 2, Next: protocol.LeaseNext{Holder: bob, GrantID: "gr_usr_bob"}})
	if m, _ := await[protocol.Leased](v); m.Refused == "" {
		t.Errorf("somebody who may only watch holds the lease: %+v", m)
	}
	lease := v.control()
	v.say(protocol.Holder{User: alice, Sockets: 0})
	if m, _ := await[protocol.Leased](v); m.Lease.State != protocol.LeaseGrace || m.ID != 0 {
		t.Errorf("the holder is gone: %+v", m)
	}
	v.say(protocol.Holder{User: alice, Sockets: 1})
	if m, _ := await[protocol.Leased](v); m.Lease.State != protocol.LeaseHeld || m.Lease.Term != lease.Term {
		t.Errorf("the holder is back: %+v", m)
	}
	v.say(protocol.Resize{Term: lease.Term, Cols: 70, Rows: 21})
	if m, _ := await[protocol.Resized](v); m.Cols != 70 || m.Rows != 21 {
		t.Errorf("resized %+v", m)
	}
	v.say(protocol.GrantAdd{Grant: "a.b.c"})
	if m, _ := await[protocol.Granted](v); m.Refused == "" {
		t.Error("a grant that nobody signed is taken")
	}
	began := time.Now()
	v.say(protocol.GrantDrop{GrantID: "gr_usr_alice"})
	v.say(protocol.GrantDrop{GrantID: "gr_usr_bob"})
	for {
		if _, err := v.next(); err != nil {
			if took := time.Since(began); took < bareFor/2 {
				t.Errorf("the stream ended after %v, before another grant could come", took)
			}
			return
		}
	}
}

// TestPaceSetterHoldsBack floods a terminal that waits for one viewer.
func TestPaceSetterHoldsBack(t *testing.T) {
	w := newWorld(t)
	v := w.view(w.terminal(), nil)
	v.output(7)
	lease := v.control()
	v.say(protocol.Pace{ID: "exact", Offset: 7})
	spec := pattern.Spec{Seed: 3, Chunk: 10000, Start: time.Now(), Chunks: 300}
	v.say(protocol.Input{Term: lease.Term, Seq: 1, Client: "c", Bytes: []byte(spec.Order() + "\r")})
	await[protocol.InputAck](v)
	const most = protocol.MaxPaceLag + 64<<10
	term := w.agent.list(testSession)[0]
	checker := pattern.NewChecker(spec, nil)
	at, told, slow := uint64(7), time.Now(), false
	for !checker.Done() {
		data, _ := await[protocol.Data](v)
		checker.Write(data.Bytes, time.Now())
		slow = slow || time.Since(told) > protocol.SlowAfter/4 // held up itself: it isn't waited for any more
		term.mu.Lock()
		if lag := term.log.Head() - at; lag > most && !slow {
			t.Fatalf("the terminal is %d bytes ahead of its pace-setter", lag)
		}
		term.mu.Unlock()
		if to := data.Offset + uint64(len(data.Bytes)); to-at > protocol.PaceBytes {
			at, told = to, time.Now()
			v.say(protocol.Pace{ID: "exact", Offset: at})
		}
	}
	if r := checker.Finish(); !r.SumOK {
		t.Errorf("%+v", r)
	}
}

func TestEnds(t *testing.T) {
	w := newWorld(t)
	quits, closed, killed := w.terminal(), w.terminal(), w.terminal()
	v := w.view(quits, nil)
	lease := v.control()
	v.say(protocol.Input{Term: lease.Term, Seq: 1, Client: "c", Bytes: []byte("quit\r")})
	if m, _ := await[protocol.Exited](v); m.Code != 0 || m.Offset != 7 {
		t.Errorf("quit: %+v", m)
	}
	if late := w.view(quits, nil); late.opened.Exited == nil {
		t.Errorf("opened %+v after the end", late.opened)
	}
	for pty, op := range map[protocol.PTYID]map[string]any{
		closed: {"kind": op.KindPTYClose}, killed: {"kind": op.KindPTYSignal, "signal": "KILL"},
	} {
		v := w.view(pty, nil)
		w.run(w.command(protocol.CommandTarget{SessionID: testSession, PTYID: pty}, op))
		if m, _ := await[protocol.Exited](v); m.Code != -1 || !strings.HasPrefix(m.Signal, "SIG") {
			t.Errorf("%v: %+v", op, m)
		}
		if _, err := v.next(); err == nil {
			t.Errorf("%v: something follows the end", op)
		}
	}
}

func TestRefusedStreams(t *testing.T) {
	w := newWorld(t)
	pty := w.terminal()
	if _, err := w.attach("pty_none", nil, w.grant(alice)); protocol.KindOf(err) != protocol.KindNotFound {
		t.Errorf("no such terminal: %v", err)
	}
	if _, err := w.attach(pty, nil, "a.b.c"); protocol.KindOf(err) != protocol.KindUnauthenticated {
		t.Errorf("no grant: %v", err)
	}
	w.run(w.command(protocol.CommandTarget{}, map[string]any{"kind": op.KindGrantRevoke, "grants": []string{"gr_usr_bob"}}))
	if _, err := w.attach(pty, nil, w.grant(bob)); protocol.KindOf(err) != protocol.KindUnauthenticated {
		t.Errorf("a revoked grant: %v", err)
	}
	_, _, err := w.relay.Open(w.ctx, protocol.LaneControl, protocol.Open{Kind: protocol.StreamApproval, Grant: w.grant(alice)})
	if protocol.KindOf(err) != protocol.KindUnsupported {
		t.Errorf("approvals: %v", err)
	}
}

func TestHTTPListsTerminalsAndNothingElse(t *testing.T) {
	w := newWorld(t)
	pty := w.terminal()
	stream, _, err := w.relay.Open(w.ctx, protocol.LaneBulk, protocol.Open{Kind: protocol.StreamHTTP, Grant: w.grant(alice)})
	must(t, err)
	defer stream.Close()
	answers := bufio.NewReader(stream)
	for _, c := range []struct {
		path   string
		status int
		want   string
	}{
		{"/sessions/ses_1/ptys", http.StatusOK, string(pty)},
		{"/sessions/ses_2/ptys", http.StatusNotImplemented, "UnsupportedError"},
		{"/sessions/ses_1/files", http.StatusNotImplemented, "UnsupportedError"},
	} {
		req, err := http.NewRequestWithContext(w.ctx, http.MethodGet, "http://sandbox"+c.path, nil)
		must(t, err)
		must(t, req.Write(stream))
		resp, err := http.ReadResponse(answers, req)
		must(t, err)
		body, err := io.ReadAll(resp.Body)
		resp.Body.Close()
		if must(t, err); resp.StatusCode != c.status || !strings.Contains(string(body), c.want) {
			t.Errorf("%s: %d %s", c.path, resp.StatusCode, body)
		}
	}
}
