package sandboxapi

import (
	"bufio"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/protocol/jws"
	"github.com/fairlead/fairlead/relay/internal/relaytest"
	"github.com/fairlead/fairlead/tunnel"
	"github.com/fairlead/fairlead/tunnel/tunneltest"
)

// A source is one approval stream, as the sandbox sees it.
type source struct {
	t      *testing.T
	params protocol.ApprovalParams
	stream *tunnel.Stream
	left   chan struct{} // closed when the relay has left
}

// answerFollows has the sandbox answer approval streams, as opened says, and
// returns those that were opened.
func (w *world) answerFollows(opened func(protocol.ApprovalParams) (protocol.ApprovalsOpened, error)) <-chan *source {
	sources := make(chan *source, 16)
	w.follow = func(in *tunnel.Incoming) {
		var params protocol.ApprovalParams
		if err := json.Unmarshal(in.Open.Params, &params); err != nil {
			w.t.Error(err)
		}
		if in.Lane != protocol.LaneControl {
			w.t.Errorf("on lane %s", in.Lane)
		}
		result, err := opened(params)
		if err != nil {
			in.Refuse(err)
			return
		}
		body, err := json.Marshal(result)
		if err != nil {
			w.t.Error(err)
		}
		stream, err := in.Accept(protocol.Opened{Result: body})
		if err != nil {
			return
		}
		defer stream.Close()
		s := &source{w.t, params, stream, make(chan struct{})}
		defer close(s.left)
		sources <- s
		stream.Read(make([]byte, 1)) // until the relay leaves
	}
	return sources
}

func (s *source) say(offset uint64, id string, state protocol.ApprovalState) {
	s.t.Helper()
	event := protocol.ApprovalEvent{Offset: offset, Approval: protocol.Approval{ID: id, Revision: 1, State: state}}
	if err := protocol.Write(s.stream, event); err != nil {
		s.t.Error(err)
	}
}

// A page follows approvals.
type page struct {
	t      *testing.T
	resp   *http.Response
	events *bufio.Scanner
}

// page opens the stream of events.
func (w *world) page(server *httptest.Server, token, query string, header ...string) *page {
	w.t.Helper()
	r, err := http.NewRequestWithContext(w.t.Context(), "GET", server.URL+"/sessions/ses_1/approvals/events"+query, nil)
	if err != nil {
		w.t.Fatal(err)
	}
	r.Header.Set("Authorization", "Bearer "+token)
	for i := 0; i < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	resp, err := server.Client().Do(r)
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() { resp.Body.Close() })
	return &page{w.t, resp, bufio.NewScanner(resp.Body)}
}

// next returns the next event's name, id and data; empty at the end.
func (p *page) next() (name, id, data string) {
	p.t.Helper()
	for p.events.Scan() {
		line := p.events.Text()
		field, value, _ := strings.Cut(line, ": ")
		switch {
		case field == "event":
			name = value
		case field == "id":
			id = value
		case field == "data":
			data = value
		case line == "" && name != "":
			return name, id, data
		}
	}
	return "", "", ""
}

func (p *page) expect(name, id string, parts ...string) {
	p.t.Helper()
	gotName, gotID, data := p.next()
	if gotName != name || gotID != id {
		p.t.Fatalf("%s with id %q: %s; want %s with %q", gotName, gotID, data, name, id)
	}
	for _, part := range parts {
		if !strings.Contains(data, part) {
			p.t.Errorf("%s lacks %s", data, part)
		}
	}
}

const epoch = "0000000000000009"

func openedAt(p protocol.ApprovalParams) (protocol.ApprovalsOpened, error) {
	o := protocol.ApprovalsOpened{Epoch: 9, Offset: 5}
	if p.Since != nil {
		o.Offset = p.Since.Offset
	}
	return o, nil
}

func (w *world) serve() *httptest.Server {
	server := httptest.NewServer(w.mux)
	w.t.Cleanup(server.Close)
	w.t.Cleanup(server.Client().CloseIdleConnections)
	return server
}

// A page learns what waits and what changes, is told when the sandbox is away,
// and misses nothing when it is back.
func TestFollowApprovals(t *testing.T) {
	w := newWorld(t)
	sources := w.answerFollows(openedAt)
	_, token := w.authority.Grant(everything)
	server := w.serve()
	p := w.page(server, token, "")
	h := p.resp.Header
	if p.resp.StatusCode != http.StatusOK || h.Get("Content-Type") != "text/event-stream" || h.Get("Content-Security-Policy") != "sandbox" || h.Get("Cache-Control") != "no-store" {
		t.Fatalf("%d %v", p.resp.StatusCode, h)
	}
	p.expect("opened", epoch+":5", `"pending":[]`)
	s := <-sources
	if s.params.SessionID != "ses_1" || s.params.Since != nil {
		t.Errorf("%+v", s.params)
	}
	s.say(5, "apr_1", protocol.ApprovalPending)
	p.expect("approval", epoch+":6", `"id":"apr_1"`, `"state":"pending"`, `"offset":5`)
	s.say(6, "apr_1", protocol.ApprovalExpired)
	p.expect("approval", epoch+":7", `"state":"expired"`)

	lost, _ := w.tunnels.Session("")
	lost.Close()
	p.expect("waiting", "", `"reason":"sandbox_offline"`)
	w.connect()
	p.expect("opened", epoch+":7")
	s = <-sources
	if s.params.Since == nil || *s.params.Since != (protocol.Position{Epoch: 9, Offset: 7}) {
		t.Errorf("reopened with %+v", s.params)
	}
	s.stream.Close() // by the sandbox, whose tunnel stays
	p.expect("opened", epoch+":7")
	s = <-sources
	s.say(7, "apr_2", protocol.ApprovalPending)
	p.expect("approval", epoch+":8", "apr_2")

	w.follow = func(in *tunnel.Incoming) { in.Refuse(protocol.Errorf(protocol.KindForbidden, "no more")) }
	s.stream.Close()
	if name, _, data := p.next(); name != "" {
		t.Errorf("after a refusal: %s %s", name, data)
	}
}

// connect gives the sandbox another tunnel.
func (w *world) connect() {
	agent, relay := tunneltest.Pair(w.t)
	relaytest.Answer(w.t, agent, w.answer)
	w.tunnels.Connect(relay)
}

// TestFollowTunnelEndsLate: that the sandbox is away is told also where the stream
// ends first, and its tunnel a moment later.
func TestFollowTunnelEndsLate(t *testing.T) {
	w := newWorld(t)
	sources := w.answerFollows(openedAt)
	_, token := w.authority.Grant(everything)
	p := w.page(w.serve(), token, "")
	p.expect("opened", epoch+":5")
	s := <-sources
	lost, _ := w.tunnels.Session("")
	w.tunnels.Connect(nil)
	s.stream.CloseWrite()
	<-s.left
	lost.Close()
	p.expect("waiting", "", `"reason":"sandbox_offline"`)
	w.connect()
	p.expect("opened", epoch+":5")
}

// A page goes on where it says that it stands.
func TestFollowSince(t *testing.T) {
	w := newWorld(t)
	sources := w.answerFollows(openedAt)
	_, token := w.authority.Grant(everything)
	server := w.serve()
	for query, header := range map[string]string{"?since=" + epoch + ":3": "", "?since=" + epoch + ":2": epoch + ":3", "": epoch + ":3"} {
		var p *page
		if header == "" {
			p = w.page(server, token, query)
		} else {
			p = w.page(server, token, query, "Last-Event-ID", header)
		}
		p.expect("opened", epoch+":3")
		if s := <-sources; s.params.Since == nil || s.params.Since.Offset != 3 || s.params.Since.Epoch != 9 {
			t.Errorf("%s: %+v", query, s.params)
		}
	}
	for _, since := range []string{"x", "9:3", epoch + ":-1"} {
		if p := w.page(server, token, "?since="+since); p.resp.StatusCode != http.StatusBadRequest {
			t.Errorf("%s: %d", since, p.resp.StatusCode)
		}
	}
}

// Who may not follow is told before anything is sent.
func TestFollowRefuses(t *testing.T) {
	w := newWorld(t)
	sources := w.answerFollows(openedAt)
	grant, token := w.authority.Grant(everything)
	_, viewer := w.authority.Grant(nil)
	server := w.serve()
	status := func(token string) int { return w.page(server, token, "").resp.StatusCode }
	if got := status(viewer); got != http.StatusForbidden {
		t.Errorf("without approve: %d", got)
	}
	for range maxFollowsPerPerson - 1 {
		if got := status(token); got != http.StatusOK {
			t.Fatalf("%d", got)
		}
		<-sources
	}
	_, another := w.authority.Grant(everything)
	if got := status(another); got != http.StatusOK {
		t.Errorf("the last: %d", got)
	}
	<-sources
	if got := status(token); got != http.StatusTooManyRequests {
		t.Errorf("one too many: %d", got)
	}
	if got := status(another); got != http.StatusTooManyRequests {
		t.Errorf("one too many under another grant: %d", got)
	}
	somebody := func(g *jws.Grant) { everything(g); g.Subject = "usr_somebody" }
	_, other := w.authority.Grant(somebody)
	p := w.page(server, other, "")
	p.expect("opened", epoch+":5")
	<-sources
	w.authority.Revoked.Add(grant.ID)
	if got := status(token); got != http.StatusUnauthorized {
		t.Errorf("under a void grant: %d", got)
	}
	w.follow = func(in *tunnel.Incoming) { in.Refuse(protocol.Errorf(protocol.KindNotFound, "no such session")) }
	_, third := w.authority.Grant(somebody)
	if got := status(third); got != http.StatusNotFound {
		t.Errorf("refused by the sandbox: %d", got)
	}
	w.tunnels.Connect(nil)
	if got := status(third); got != http.StatusServiceUnavailable {
		t.Errorf("the sandbox is away: %d", got)
	}
}

// The stream ends with its grant, and with the relay.
func TestFollowEnds(t *testing.T) {
	w := newWorld(t)
	w.answerFollows(openedAt)
	server := w.serve()
	ended := func(p *page) {
		t.Helper()
		began := time.Now()
		if _, err := io.Copy(io.Discard, p.resp.Body); time.Since(began) > 30*time.Second {
			t.Errorf("%v after %s", err, time.Since(began))
		}
	}
	grant, token := w.authority.Grant(everything)
	p := w.page(server, token, "")
	p.expect("opened", epoch+":5")
	w.authority.Revoked.Add(grant.ID)
	ended(p)
	grant, token = w.authority.Grant(everything)
	p = w.page(server, token, "")
	p.expect("opened", epoch+":5")
	w.authority.Ahead.Store(int64(time.Until(grant.Expires())))
	ended(p)
	w.authority.Ahead.Store(0)
	_, token = w.authority.Grant(everything)
	p = w.page(server, token, "")
	p.expect("opened", epoch+":5")
	lost, _ := w.tunnels.Session("")
	lost.Close()
	p.expect("waiting", "")
	w.api.Requests.Drain() // also one that waits
	ended(p)
}

// Silence is filled with comments.
func TestHeartbeat(t *testing.T) {
	rw := httptest.NewRecorder()
	e := newEventWriter(rw)
	e.beat()
	e.last = e.last.Add(-heartbeat)
	e.beat()
	e.beat()
	if got := rw.Body.String(); got != followOpening+": \n\n" || e.err == nil && !rw.Flushed {
		t.Errorf("%q %v", got, e.err)
	}
	if heartbeat > 15*time.Second {
		t.Errorf("every %s", heartbeat)
	}
}
