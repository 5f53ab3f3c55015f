package link

import (
	"bufio"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"

	"github.com/fairlead/fairlead/deploy/program/telemetry"
	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/protocol/jws"
	"github.com/fairlead/fairlead/tunnel"
)

func readResult(t *testing.T, stream *tunnel.Stream) protocol.Result {
	t.Helper()
	frame, err := protocol.ReadFrame(stream)
	must(t, err)
	m, err := protocol.Decode(frame)
	must(t, err)
	result, ok := m.(protocol.Result)
	if !ok {
		t.Fatalf("%s for a RESULT", m.FrameType())
	}
	return result
}

func TestCommand(t *testing.T) {
	r := newRig(t)
	r.Arrive = always(func(_ context.Context, token string) protocol.Result {
		return protocol.Result{Callback: []byte(`{"ran":"` + token + `"}`), Kind: protocol.KindNotFound}
	})
	stream, _, err := r.open(protocol.LaneControl, protocol.Open{Kind: protocol.StreamCommand, Command: "a.b.c"})
	must(t, err)
	if got := readResult(t, stream); string(got.Callback) != `{"ran":"a.b.c"}` || got.Kind != protocol.KindNotFound {
		t.Errorf("%s %s", got.Callback, got.Kind)
	}
	if _, err := stream.Read(make([]byte, 1)); err != io.EOF {
		t.Errorf("after the result: %v", err)
	}
}

// TestTraceparentIsAHint: a command runs whatever stands beside it, and what is a
// traceparent reaches it.
func TestTraceparentIsAHint(t *testing.T) {
	const good = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
	r := newRig(t)
	r.Arrive = always(func(ctx context.Context, _ string) protocol.Result {
		return protocol.Result{Callback: []byte(`{"of":"` + telemetry.Inject(ctx) + `"}`)}
	})
	for text, want := range map[string]string{
		"": "", good: good, "00-x": "", good + "-00": "", strings.Repeat("a", protocol.MaxFramePayload/2): "",
	} {
		stream, _, err := r.open(protocol.LaneControl, protocol.Open{Kind: protocol.StreamCommand, Command: "a.b.c", Traceparent: text})
		must(t, err)
		if got := readResult(t, stream); string(got.Callback) != `{"of":"`+want+`"}` {
			t.Errorf("beside %.80q: %s", text, got.Callback)
		}
	}
}

// TestCommandOutlivesItsTunnel: the next tunnel doesn't wait for a command of
// the last one, the agent's end does.
func TestCommandOutlivesItsTunnel(t *testing.T) {
	r := newRig(t)
	running, proceed := make(chan struct{}), make(chan struct{})
	finished := false
	r.Arrive = always(func(context.Context, string) protocol.Result {
		close(running)
		<-proceed
		finished = true
		return protocol.Result{Callback: []byte(`{}`)}
	})
	_, _, err := r.open(protocol.LaneControl, protocol.Open{Kind: protocol.StreamCommand, Command: "a.b.c"})
	must(t, err)
	<-running
	r.relay.Close()
	<-r.served
	close(proceed)
	r.Wait()
	if !finished {
		t.Error("the command was cut short")
	}
}

func TestKindThatNoRelayOpens(t *testing.T) {
	r := newRig(t)
	_, _, err := r.open(protocol.LaneControl, protocol.Open{Kind: protocol.StreamConnect})
	wantKind(t, err, protocol.KindUnsupported)
}

// TestStreamBound: a relay can't make the agent serve without limit.
func TestStreamBound(t *testing.T) {
	r := newRig(t)
	proceed := make(chan struct{})
	r.Arrive = always(func(context.Context, string) protocol.Result {
		<-proceed
		return protocol.Result{Callback: []byte(`{}`)}
	})
	defer close(proceed)
	open := func(lane protocol.Lane) error {
		_, _, err := r.open(lane, protocol.Open{Kind: protocol.StreamCommand, Command: "a.b.c"})
		return err
	}
	var opening sync.WaitGroup
	for range 8 {
		opening.Go(func() {
			for i := range maxStreams / 8 {
				if err := open([]protocol.Lane{protocol.LaneControl, protocol.LaneTerminal0}[i%2]); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	opening.Wait()
	wantKind(t, open(protocol.LaneControl), protocol.KindTooMany)
}

// get asks for a path over a stream of its own and returns the answer and its
// body.
func (r *rig) get(path, grant string) (*http.Response, []byte) {
	r.t.Helper()
	return r.request("GET "+path+" HTTP/1.1\r\nHost: sandbox\r\nConnection: keep-alive\r\n\r\n", grant)
}

// request sends text twice on one stream, for it serves one request after the
// other, and returns the last answer.
func (r *rig) request(text, grant string) (resp *http.Response, body []byte) {
	r.t.Helper()
	stream, _, err := r.open(protocol.LaneControl, protocol.Open{Kind: protocol.StreamHTTP, Grant: grant})
	must(r.t, err)
	defer stream.Close()
	reader := bufio.NewReader(stream)
	for range 2 {
		_, err = io.WriteString(stream, text)
		must(r.t, err)
		resp, err = http.ReadResponse(reader, nil)
		must(r.t, err)
		body, err = io.ReadAll(resp.Body)
		must(r.t, err)
	}
	return resp, body
}

func TestListPTYs(t *testing.T) {
	r := newRig(t)
	a, b := r.pty(), r.pty()
	grant := func(change func(*jws.Grant)) string {
		token, _ := r.grant(alice, view, change)
		return token
	}
	list := func(path, grant string) (ids []protocol.PTYID) {
		resp, body := r.get(path, grant)
		var got protocol.PTYList
		must(t, json.Unmarshal(body, &got))
		if resp.StatusCode != http.StatusOK || got.Revision != "rev1" || resp.Header.Get("X-Content-Type-Options") != "nosniff" {
			t.Errorf("%d %v %s", resp.StatusCode, resp.Header, body)
		}
		for _, info := range got.PTYs {
			ids = append(ids, info.ID)
		}
		return ids
	}
	if ids := list("/sessions/ses_1/ptys", grant(func(*jws.Grant) {})); len(ids) != 2 {
		t.Errorf("a grant for all lists %v", ids)
	}
	if ids := list("/sessions/ses_1/ptys", grant(func(g *jws.Grant) { g.PTYs = []string{string(b)} })); len(ids) != 1 || ids[0] != b {
		t.Errorf("a grant for %s lists %v, beside %s", b, ids, a)
	}
	if ids := list("/sessions/ses_2/ptys", grant(func(g *jws.Grant) { g.Session = "" })); len(ids) != 0 {
		t.Errorf("another session lists %v", ids)
	}
	for _, tt := range []struct {
		path, grant string
		status      int
	}{
		{"/sessions/ses_2/ptys", grant(func(*jws.Grant) {}), http.StatusForbidden},
		{"/sessions/ses_1/ptys", grant(func(g *jws.Grant) { g.Caps = []protocol.Capability{protocol.CapChat} }), http.StatusForbidden},
		{"/sessions/ses_1/secrets", grant(func(*jws.Grant) {}), http.StatusNotFound},
	} {
		if resp, body := r.get(tt.path, tt.grant); resp.StatusCode != tt.status {
			t.Errorf("%s: %d %s", tt.path, resp.StatusCode, body)
		}
	}
}

func TestHTTPRefused(t *testing.T) {
	r := newRig(t)
	elsewhere, _ := r.grant(alice, view, func(g *jws.Grant) { g.Sandbox = "sb_2" })
	expired, _ := r.grant(alice, view, func(g *jws.Grant) { g.IssuedAt -= 600; g.ExpiresAt -= 400 })
	for grant, kind := range map[string]protocol.Kind{
		"": protocol.KindUnauthenticated, elsewhere: protocol.KindForbidden, expired: protocol.KindExpired,
	} {
		_, _, err := r.open(protocol.LaneControl, protocol.Open{Kind: protocol.StreamHTTP, Grant: grant})
		wantKind(t, err, kind)
	}
}

// TestIdleHTTP: a stream without a request ends with its tunnel, and so does
// everything that served it.
func TestIdleHTTP(t *testing.T) {
	r := newRig(t)
	token, _ := r.grant(alice, view)
	for range 20 {
		_, _, err := r.open(protocol.LaneControl, protocol.Open{Kind: protocol.StreamHTTP, Grant: token})
		must(t, err)
	}
	r.relay.Close()
	<-r.served
}
