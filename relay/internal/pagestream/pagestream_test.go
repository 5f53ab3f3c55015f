package pagestream

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"go.uber.org/goleak"

	"github.com/fairlead/fairlead/deploy/program/lifetime"
	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/protocol/jws"
	"github.com/fairlead/fairlead/relay/internal/relaytest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(relaytest.Patient(m)) }

const user protocol.UserID = "usr_alice"

// grantOf returns a grant of user that carries caps, for five minutes.
func grantOf(caps ...protocol.Capability) *jws.Grant {
	return &jws.Grant{
		Subject: user, ID: protocol.NewGrantID(), PTYs: []string{jws.AllPTYs},
		Caps: append(caps, protocol.CapView), ExpiresAt: time.Now().Add(5 * time.Minute).Unix(),
	}
}

func newPages() *Pages {
	p, _ := newRevocable()
	return p
}

// newRevocable returns Pages and what their grants are revoked by.
func newRevocable() (*Pages, *jws.RevocationSet) {
	revoked := jws.NewRevocationSet()
	return New(lifetime.New(lifetime.Options{Revoked: revoked}), prometheus.NewRegistry()), revoked
}

// scope is that of a command for half a minute.
func scope() Scope { return Scope{Needs: protocol.CapMCP, Ends: time.Now().Add(30 * time.Second)} }

// offer gives user a command and returns its withdrawal.
func offer(t *testing.T, p *Pages, id protocol.CommandID) func() {
	t.Helper()
	offered, err := p.Offer(user, scope(), protocol.CommandEnvelope{CommandID: id})
	if err != nil {
		t.Fatal(err)
	}
	return offered.Withdraw
}

// A page is one that listens over a connection in memory.
type page struct {
	net.Conn
	lines  *bufio.Reader
	served chan error // what Serve returned
}

// connect opens a stream; after may be empty.
func connect(t *testing.T, p *Pages, grant *jws.Grant, after string) *page {
	t.Helper()
	return connectPage(t, p, Page{Grant: grant, After: after})
}

func connectPage(t *testing.T, p *Pages, of Page) *page {
	t.Helper()
	near, far := net.Pipe()
	v := &page{Conn: near, lines: bufio.NewReader(near), served: make(chan error, 1)}
	ctx, cancel := context.WithCancel(context.Background())
	w := &pipeWriter{conn: far, header: http.Header{}}
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, "/control/stream", nil)
	if err != nil {
		t.Fatal(err)
	}
	var serving sync.WaitGroup
	serving.Go(func() {
		v.served <- p.Serve(w, r, of)
		far.Close()
	})
	t.Cleanup(func() {
		near.Close()
		cancel()
		serving.Wait()
	})
	return v
}

// A pipeWriter answers on a connection, as a server without buffers.
type pipeWriter struct {
	conn   net.Conn
	header http.Header
}

func (w *pipeWriter) Header() http.Header                { return w.header }
func (w *pipeWriter) WriteHeader(int)                    {}
func (w *pipeWriter) Write(b []byte) (int, error)        { return w.conn.Write(b) }
func (w *pipeWriter) Flush()                             {}
func (w *pipeWriter) SetWriteDeadline(t time.Time) error { return w.conn.SetWriteDeadline(t) }

// event reads the next event and returns its id and data.
func (v *page) event(t *testing.T) (id, data string) {
	t.Helper()
	for {
		line, err := v.lines.ReadString('\n')
		if err != nil {
			t.Fatal(err)
		}
		line = strings.TrimSuffix(line, "\n")
		if s, ok := strings.CutPrefix(line, "id: "); ok {
			id = s
		}
		if s, ok := strings.CutPrefix(line, "data: "); ok {
			data = s
		}
		if line == "" && data != "" {
			return id, data
		}
	}
}

// expect reads the next event, which must be that of a command.
func (v *page) expect(t *testing.T, command string) (id string) {
	t.Helper()
	id, data := v.event(t)
	if !strings.Contains(data, `"`+command+`"`) {
		t.Fatalf("%s, want %s", data, command)
	}
	return id
}

func TestEveryPageOfTheUserGetsIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPages()
		defer p.Close()
		mcp := protocol.CapMCP
		early, second, narrow := connect(t, p, grantOf(mcp), ""), connect(t, p, grantOf(mcp), ""), connect(t, p, grantOf(), "")
		other := grantOf(mcp)
		other.Subject = "usr_bob"
		foreign := connect(t, p, other, "")
		skip(t, early, second, narrow, foreign)
		synctest.Wait()
		defer offer(t, p, "cmd_1")()
		early.expect(t, "cmd_1")
		second.expect(t, "cmd_1")
		connect(t, p, grantOf(mcp), "").expect(t, "cmd_1")
		for _, v := range []*page{narrow, foreign} { // what they get next is a heartbeat
			if line, err := v.lines.ReadString('\n'); line != ": \n" {
				t.Errorf("%q, %v", line, err)
			}
		}
	})
}

// skip reads what each stream begins with.
func skip(t *testing.T, pages ...*page) {
	t.Helper()
	for _, v := range pages {
		buf := make([]byte, len(opening))
		if _, err := io.ReadFull(v.lines, buf); err != nil || string(buf) != opening {
			t.Fatalf("%q, %v", buf, err)
		}
	}
}

func TestLastEventID(t *testing.T) {
	p := newPages()
	defer p.Close()
	var withdraw []func()
	for i := range 4 {
		withdraw = append(withdraw, offer(t, p, protocol.CommandID(fmt.Sprint("cmd_", i))))
	}
	first := connect(t, p, grantOf(protocol.CapMCP), "")
	ids := make([]string, 4)
	for i := range 4 {
		ids[i] = first.expect(t, fmt.Sprint("cmd_", i))
	}
	withdraw[2]() // answered
	epoch, _, _ := strings.Cut(ids[0], "-")
	for _, c := range []struct {
		after string
		next  string
	}{
		{ids[0], "cmd_1"}, {ids[1], "cmd_3"}, {ids[2], "cmd_3"}, // behind it
		{"", "cmd_0"}, {"x", "cmd_0"}, {"other-2", "cmd_0"}, {epoch + "-99", "cmd_0"}, {epoch + "--1", "cmd_0"}, {epoch, "cmd_0"},
	} {
		connect(t, p, grantOf(protocol.CapMCP), c.after).expect(t, c.next)
	}
	last := connect(t, p, grantOf(protocol.CapMCP), ids[3])
	skip(t, last)
	defer offer(t, p, "cmd_4")()
	last.expect(t, "cmd_4")
}

// An id of a box that is gone means nothing in the next one.
func TestANewEpoch(t *testing.T) {
	p := newPages()
	defer p.Close()
	withdraw := offer(t, p, "cmd_1")
	id := connect(t, p, grantOf(protocol.CapMCP), "").expect(t, "cmd_1")
	withdraw()
	p.mu.Lock()
	delete(p.boxes, user)
	p.mu.Unlock()
	defer offer(t, p, "cmd_2")()
	connect(t, p, grantOf(protocol.CapMCP), id).expect(t, "cmd_2")
}

func TestExpiredCommandsAreNotSent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPages()
		defer p.Close()
		defer offer(t, p, "cmd_1")()
		time.Sleep(30 * time.Second)
		defer offer(t, p, "cmd_2")()
		connect(t, p, grantOf(protocol.CapMCP), "").expect(t, "cmd_2")
	})
}

// How a stream ends, and that it is counted and leaves nothing behind.
func TestEnds(t *testing.T) {
	for reason, end := range map[string]func(p *Pages, revoked *jws.RevocationSet, v *page, grant *jws.Grant){
		endedLeft:    func(_ *Pages, _ *jws.RevocationSet, v *page, _ *jws.Grant) { v.Close() },
		endedSlow:    func(*Pages, *jws.RevocationSet, *page, *jws.Grant) { time.Sleep(heartbeat + writeTimeout) },
		endedRevoked: func(_ *Pages, revoked *jws.RevocationSet, _ *page, g *jws.Grant) { revoked.Add(g.ID) },
		endedClosing: func(p *Pages, _ *jws.RevocationSet, _ *page, _ *jws.Grant) { p.Close() },
		endedExpired: func(_ *Pages, _ *jws.RevocationSet, v *page, g *jws.Grant) {
			go io.Copy(io.Discard, v) // takes the heartbeats until the stream ends
			time.Sleep(time.Until(g.Expires()))
		},
	} {
		t.Run(reason, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p, revoked := newRevocable()
				grant := grantOf(protocol.CapMCP)
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				near, far := net.Pipe()
				defer near.Close()
				r, _ := http.NewRequestWithContext(ctx, http.MethodGet, "/control/stream", nil)
				served := make(chan error, 1)
				go func() { // received below
					served <- p.Serve(&pipeWriter{conn: far, header: http.Header{}}, r, Page{Grant: grant})
					far.Close()
				}()
				v := &page{Conn: near, lines: bufio.NewReader(near)}
				skip(t, v)
				synctest.Wait()
				if reason == endedLeft {
					cancel() // as the server does
				}
				end(p, revoked, v, grant)
				if err := <-served; err != nil {
					t.Error(err)
				}
				for _, other := range []string{endedLeft, endedSlow, endedExpired, endedRevoked, endedClosing} {
					if n := testutil.ToFloat64(p.ended.WithLabelValues(other)); (n == 1) != (reason == other) || n > 1 {
						t.Errorf("ended as %s, counted %v as %s", reason, n, other)
					}
				}
				if len(p.boxes) != 0 || p.streams != 0 || p.bytes != 0 {
					t.Errorf("left behind: %d boxes, %d streams, %d bytes", len(p.boxes), p.streams, p.bytes)
				}
			})
		})
	}
}

func TestRefusedStreams(t *testing.T) {
	p := newPages()
	grant := grantOf()
	past := grantOf()
	past.ExpiresAt = time.Now().Unix() - 1
	if err := p.Serve(nil, nil, Page{Grant: past}); protocol.KindOf(err) != protocol.KindExpired {
		t.Errorf("an old grant: %v", err)
	}
	var streams []*stream
	for range maxStreamsPerUser {
		s, err := p.open(Page{Grant: grant})
		if err != nil {
			t.Fatal(err)
		}
		streams = append(streams, s)
	}
	if err := p.Serve(nil, nil, Page{Grant: grant}); protocol.KindOf(err) != protocol.KindTooMany {
		t.Errorf("one too many of a user: %v", err)
	}
	p.streams = maxStreams
	other := grantOf()
	other.Subject = "usr_bob"
	if err := p.Serve(nil, nil, Page{Grant: other}); protocol.KindOf(err) != protocol.KindTooMany || len(p.boxes) != 1 {
		t.Errorf("one too many in all: %v, %d boxes", err, len(p.boxes))
	}
	p.streams = len(streams)
	for _, s := range streams {
		p.drop(s)
	}
	p.Close()
	if err := p.Serve(nil, nil, Page{Grant: grant}); protocol.KindOf(err) != protocol.KindRestarting {
		t.Errorf("after Close: %v", err)
	}
	p, revoked := newRevocable()
	revoked.Add(grant.ID)
	s, err := p.open(Page{Grant: grant})
	if err != nil || *s.reason.Load() != endedRevoked {
		t.Errorf("revoked meanwhile: %v", err)
	}
}

func TestOffersAreBounded(t *testing.T) {
	p := newPages()
	var withdraw []func()
	for range protocol.MaxCommandsInFlight {
		withdraw = append(withdraw, offer(t, p, "cmd_1"))
	}
	if _, err := p.Offer(user, scope(), protocol.CommandEnvelope{}); protocol.KindOf(err) != protocol.KindTooMany {
		t.Errorf("one too many for a user: %v", err)
	}
	for _, f := range withdraw {
		f()
		f() // again does nothing
	}
	if p.bytes != 0 || len(p.boxes) != 0 {
		t.Errorf("%d bytes, %d boxes left", p.bytes, len(p.boxes))
	}
	p.bytes = maxWaitingBytes
	if _, err := p.Offer(user, scope(), protocol.CommandEnvelope{}); protocol.KindOf(err) != protocol.KindTooMany || len(p.boxes) != 0 {
		t.Errorf("too much in all: %v, %d boxes", err, len(p.boxes))
	}
}

func TestSessionsOfCommands(t *testing.T) {
	now := time.Now()
	narrow := grantOf(protocol.CapMCP)
	narrow.Session = "ses_1"
	for _, c := range []struct {
		scope Scope
		want  bool
	}{
		{Scope{Needs: protocol.CapMCP, Ends: now.Add(time.Second)}, true},
		{Scope{Needs: protocol.CapMCP, Session: "ses_1", Ends: now.Add(time.Second)}, true},
		{Scope{Needs: protocol.CapMCP, Session: "ses_2", Ends: now.Add(time.Second)}, false},
		{Scope{Needs: protocol.CapMCP, Ends: now}, false},
		{Scope{Needs: protocol.CapAdmin, Ends: now.Add(time.Second)}, false},
	} {
		if got := c.scope.covers(narrow, now); got != c.want {
			t.Errorf("%+v: %v", c.scope, got)
		}
	}
}

// FuzzLastEventID: no id leads beyond what there is.
func FuzzLastEventID(f *testing.F) {
	for _, id := range []string{"", "epoch-1", "epoch-5", "epoch-6", "epoch--1", "other-1", "epoch-18446744073709551616"} {
		f.Add(id)
	}
	b := &box{epoch: "epoch", counter: 5}
	f.Fuzz(func(t *testing.T, id string) {
		if n := b.position(id); n > b.counter || n > 0 && !strings.HasPrefix(id, "epoch-") {
			t.Errorf("%q: %d", id, n)
		}
	})
}
