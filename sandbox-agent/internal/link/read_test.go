package link

import (
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/protocol/jws"
	"github.com/fairlead/fairlead/sandbox-agent/internal/arbiter"
)

// readLog opens a part of a terminal's log.
func (r *rig) readLog(params any, grant string) (*terminalEnd, protocol.ReadOpened, error) {
	r.t.Helper()
	raw, err := json.Marshal(params)
	must(r.t, err)
	stream, opened, err := r.open(protocol.LaneBulk, protocol.Open{Kind: protocol.StreamRead, Grant: grant, Params: raw})
	if err != nil {
		return nil, protocol.ReadOpened{}, err
	}
	var result protocol.ReadOpened
	must(r.t, json.Unmarshal(opened.Result, &result))
	return &terminalEnd{t: r.t, stream: stream, frames: protocol.NewFrameReader(stream)}, result, nil
}

func TestRead(t *testing.T) {
	r := newRig(t)
	pty := r.pty()
	token, id := r.grant(alice, control)
	e := r.attach(pty, token)
	e.output("up")
	leased := e.propose(7, e.opened.Lease.Revision, alice, id)
	e.send(protocol.Resize{Term: leased.Lease.Term, Cols: 100, Rows: 40})
	next[protocol.Resized](e)
	e.send(protocol.Input{Term: leased.Lease.Term, Seq: 1, Client: "c1", Bytes: []byte("hello")})
	e.output("hello")
	params := protocol.ReadParams{SessionID: session, PTYID: pty, Epoch: e.opened.Epoch, From: 1, To: 100}
	part, opened, err := r.readLog(params, token)
	must(t, err)
	if opened.From != 1 || opened.To != 7 || opened.Cols != protocol.DefaultCols {
		t.Errorf("%+v", opened)
	}
	if m := next[protocol.Data](part); m.Offset != 1 || string(m.Bytes) != "p" {
		t.Errorf("%d %q", m.Offset, m.Bytes)
	}
	if m := next[protocol.Resized](part); m.Offset != 2 || m.Cols != 100 {
		t.Errorf("%+v", m)
	}
	part.output("hello")
	part.ended()

	elsewhere, _ := r.grant(alice, view, func(g *jws.Grant) { g.PTYs = []string{"pty_2"} })
	blind, _ := r.grant(alice, []protocol.Capability{protocol.CapControl})
	for _, tt := range []struct {
		what   string
		grant  string
		params any
		kind   protocol.Kind
	}{
		{"no grant", "", params, protocol.KindUnauthenticated},
		{"another terminal's grant", elsewhere, params, protocol.KindForbidden},
		{"no view", blind, params, protocol.KindForbidden},
		{"no terminal", token, protocol.ReadParams{SessionID: session, PTYID: "pty_none"}, protocol.KindNotFound},
		{"another epoch", token, protocol.ReadParams{SessionID: session, PTYID: pty, Epoch: params.Epoch + 1}, protocol.KindNotFound},
		{"misformed", token, map[string]any{"from": "x"}, protocol.KindInvalid},
	} {
		_, _, err := r.readLog(tt.params, tt.grant)
		if t.Log(tt.what); err == nil {
			t.Error("it was served")
			continue
		}
		wantKind(t, err, tt.kind)
	}
}

func TestKeyframe(t *testing.T) {
	r := newRig(t)
	token, _ := r.grant(alice, view)
	e := r.attach(r.pty(), token)
	e.output("up")
	e.send(protocol.WantKeyframe{History: true})
	if m := next[protocol.Keyframe](e); m.Offset != 2 || !m.History || m.Left != 0 || len(m.Bytes) == 0 {
		t.Errorf("%+v", m)
	}
}

// TestPace: a relay's pace-setters outlive its stream unless it takes leave of
// them.
func TestPace(t *testing.T) {
	r := newRig(t)
	pty := r.pty()
	token, _ := r.grant(alice, view)
	e := r.attach(pty, token)
	e.output("up")
	e.send(protocol.Pace{ID: "a", Offset: 2})
	e.send(protocol.Pace{ID: "b", Offset: 1})
	e.send(protocol.Pace{ID: "b", Gone: true})
	e.send(protocol.GrantAdd{Grant: token}) // answered behind them
	next[protocol.Granted](e)
	late := r.attach(pty, token)
	if p := late.opened.Pacers; len(p) != 1 || p[0] != (protocol.Pacer{ID: "a", Offset: 2}) {
		t.Errorf("%+v", late.opened)
	}
	e.stream.CloseWrite()
	e.ended()
	if p := r.attach(pty, token).opened.Pacers; len(p) != 1 {
		t.Errorf("after the stream's end: %+v", p)
	}
	late.send(protocol.Pace{ID: "a", Offset: 2})
	late.send(protocol.Pace{ID: "a", Gone: true})
	late.send(protocol.GrantAdd{Grant: token})
	next[protocol.Granted](late)
	if p := r.attach(pty, token).opened.Pacers; len(p) != 0 {
		t.Errorf("after they are gone: %+v", p)
	}
}

// TestLostStream: only a tunnel's end leaves output waiting for the next one.
func TestLostStream(t *testing.T) {
	for _, tt := range []struct {
		err  error
		lost bool
	}{
		{nil, false}, {io.EOF, false}, {arbiter.ErrNoGrant, false},
		{io.ErrUnexpectedEOF, true}, {errors.New("tunnel: connection lost"), true},
	} {
		if got := lost(tt.err); got != tt.lost {
			t.Errorf("%v: lost %v", tt.err, got)
		}
	}
	r := newRig(t)
	pty := r.pty()
	token, _ := r.grant(alice, view)
	e := r.attach(pty, token)
	e.output("up")
	e.send(protocol.Pace{ID: "a", Offset: 2})
	e.send(protocol.GrantAdd{Grant: token})
	next[protocol.Granted](e)
	r.relay.Close()
	<-r.served
	term, err := r.Host.Get(session, pty)
	must(t, err)
	attachment, opened, err := term.Attach(protocol.TerminalParams{})
	must(t, err)
	defer attachment.Close()
	if len(opened.Pacers) != 1 {
		t.Errorf("after a lost tunnel: %+v", opened)
	}
}

func TestRecordings(t *testing.T) {
	r := newRig(t)
	pty, other := r.pty(), r.pty()
	id, err := r.Host.StartRecording(session, pty)
	must(t, err)
	grant := func(change func(*jws.Grant)) string {
		token, _ := r.grant(alice, view, change)
		return token
	}
	all := grant(func(*jws.Grant) {})
	blind := grant(func(g *jws.Grant) { g.PTYs = []string{string(other)} })
	list := func(grant string) protocol.RecordingList {
		resp, body := r.get("/sessions/ses_1/recordings", grant)
		if resp.StatusCode != http.StatusOK {
			t.Errorf("%d %s", resp.StatusCode, body)
		}
		var got protocol.RecordingList
		must(t, json.Unmarshal(body, &got))
		return got
	}
	if l := list(all).Recordings; len(l) != 1 || l[0].ID != id || l[0].PTYID != pty || l[0].EndedAt != 0 {
		t.Errorf("%+v", l)
	}
	if l := list(blind).Recordings; len(l) != 0 {
		t.Errorf("a grant for another terminal lists %+v", l)
	}
	read := func() string {
		resp, body := r.get("/sessions/ses_1/recordings/"+id, all)
		h := resp.Header
		if resp.StatusCode != http.StatusOK || h.Get("Content-Type") != "application/x-asciicast" ||
			h.Get("X-Content-Type-Options") != "nosniff" || h.Get("Content-Disposition") != `attachment; filename="`+id+`.cast"` {
			t.Errorf("%d %v", resp.StatusCode, h)
		}
		return string(body)
	}
	if body := read(); !strings.HasPrefix(body, `{"version":2,`) || !strings.HasSuffix(body, "\n") {
		t.Errorf("while it runs: %q", body)
	}
	r.attach(pty, all).output("up") // it is in the recording, too
	must(t, r.Host.Close(session, pty))
	if body := read(); strings.Count(body, "\n") < 2 {
		t.Errorf("%q", body)
	}
	resp, body := r.request("GET /sessions/ses_1/recordings/"+id+" HTTP/1.1\r\nHost: sandbox\r\nRange: bytes=2-8\r\n\r\n", all)
	if resp.StatusCode != http.StatusPartialContent || string(body) != "version" {
		t.Errorf("a range: %d %q", resp.StatusCode, body)
	}
	for _, tt := range []struct {
		path, grant string
		status      int
	}{
		{"/sessions/ses_1/recordings/" + id, blind, http.StatusForbidden},
		{"/sessions/ses_2/recordings/" + id, all, http.StatusForbidden},
		{"/sessions/ses_2/recordings", all, http.StatusForbidden},
		{"/sessions/ses_2/recordings/" + id, grant(func(g *jws.Grant) { g.Session = "" }), http.StatusNotFound},
		{"/sessions/ses_1/recordings/rec_none", all, http.StatusNotFound},
		{"/sessions/ses_1/recordings/..%2fses_1%2f" + id, all, http.StatusNotFound},
	} {
		if resp, body := r.get(tt.path, tt.grant); resp.StatusCode != tt.status {
			t.Errorf("%s: %d %s", tt.path, resp.StatusCode, body)
		}
	}
}
