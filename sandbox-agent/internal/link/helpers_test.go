package link

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/fairlead/fairlead/deploy/program/lifetime"
	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/protocol/jws"
	"github.com/fairlead/fairlead/protocol/op"
	"github.com/fairlead/fairlead/sandbox-agent/internal/approval"
	"github.com/fairlead/fairlead/sandbox-agent/internal/recording"
	"github.com/fairlead/fairlead/sandbox-agent/internal/terminal"
	"github.com/fairlead/fairlead/tunnel"
	"github.com/fairlead/fairlead/tunnel/tunneltest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const (
	sandbox = protocol.SandboxID("sb_1")
	session = protocol.SessionID("ses_1")
	alice   = protocol.UserID("usr_alice")
	bob     = protocol.UserID("usr_bob")

	// patience is how long tests wait for what must come.
	patience = time.Minute
)

// A rig is a Link that serves a tunnel in memory, with real terminals.
type rig struct {
	*Link
	t      *testing.T
	signer *jws.Signer
	agent  *tunnel.Session
	relay  *tunnel.Session
	served chan struct{} // closed when Serve has returned

	approvals *approval.Log // nil: none

	mu      sync.Mutex
	watched []bool // guarded by mu: what the tunnel was told
}

func newRig(t *testing.T, configure ...func(*Link)) *rig {
	t.Helper()
	signer, err := jws.GenerateSigner()
	must(t, err)
	jwks, err := jws.MarshalKeySet(signer)
	must(t, err)
	keys, err := jws.ParseKeySet(jwks)
	must(t, err)
	dir := t.TempDir()
	recordings, err := recording.Open(recording.Options{Dir: filepath.Join(dir, "recordings")})
	must(t, err)
	host, err := terminal.NewHost(terminal.Config{
		Workspace: filepath.Join(dir, "workspace"), Homes: filepath.Join(dir, "homes"),
		Isolation: terminal.IsolationNone, Shell: "/bin/sh", Recordings: recordings,
	})
	must(t, err)
	r := &rig{t: t, signer: signer, served: make(chan struct{})}
	r.Link = &Link{
		Sandbox: sandbox, Keys: jws.NewKeys(keys, jws.KeysOptions{}), Host: host, Recordings: recordings,
		Arrive:   always(func(context.Context, string) protocol.Result { return protocol.Result{Callback: []byte(`{}`)} }),
		Revision: "rev1", Log: slog.New(slog.DiscardHandler), Grants: ending(nil),
	}
	for _, f := range configure {
		f(r.Link)
	}
	r.agent, r.relay = tunneltest.Pair(t)
	go func() { // the test's end waits for it
		defer close(r.served)
		r.serve(context.Background(), r.agent, r.noteWatched)
	}()
	t.Cleanup(func() {
		r.relay.Close()
		<-r.served
		r.Wait()
		host.Shutdown(context.Background())
	})
	return r
}

func (r *rig) noteWatched(watched bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.watched = append(r.watched, watched)
}

// grant signs a grant of user's for every terminal of the session, which
// change may change.
func (r *rig) grant(user protocol.UserID, caps []protocol.Capability, change ...func(*jws.Grant)) (string, protocol.GrantID) {
	r.t.Helper()
	now := time.Now()
	g := jws.Grant{
		Issuer: jws.Issuer, Audience: jws.AudienceFairlead, Subject: user, Dashboard: "dash_1",
		Sandbox: sandbox, Session: session, PTYs: []string{jws.AllPTYs}, Caps: caps,
		IssuedAt: now.Unix(), ExpiresAt: now.Add(5 * time.Minute).Unix(), ID: protocol.NewGrantID(),
	}
	for _, f := range change {
		f(&g)
	}
	token, err := r.signer.SignGrant(g)
	must(r.t, err)
	return token, g.ID
}

// ending returns what ends streams with their grants, as an agent has it.
func ending(revoked *jws.RevocationSet) *lifetime.Grants {
	return lifetime.New(lifetime.Options{Revoked: revoked, Skew: jws.Skew})
}

// expiring has use a grant that ends within a second, skew included. Where
// the machine is so slow that it is over before use is done with it, use gets
// another one, of a longer life.
func (r *rig) expiring(caps []protocol.Capability, use func(token string) error) (ends time.Time) {
	r.t.Helper()
	for life := time.Second; ; life *= 2 {
		token, _ := r.grant(alice, caps, func(g *jws.Grant) {
			ends = time.Now().Add(life).Truncate(time.Second)
			g.IssuedAt, g.ExpiresAt = ends.Add(-jws.Skew).Unix()-300, ends.Add(-jws.Skew).Unix()
		})
		err := use(token)
		if err == nil {
			return ends
		}
		if life > patience || time.Now().Before(ends) {
			r.t.Fatal(err)
		}
	}
}

var (
	view    = []protocol.Capability{protocol.CapView}
	control = []protocol.Capability{protocol.CapView, protocol.CapControl}
)

// pty starts a terminal that prints "up" and then repeats what is typed.
func (r *rig) pty() protocol.PTYID {
	r.t.Helper()
	info, err := r.Host.Create(r.t.Context(), session, "", op.PTYCreate{Command: "stty raw -echo; printf up; cat", CreatorID: alice})
	must(r.t, err)
	return info.ID
}

// open opens a stream as the relay.
func (r *rig) open(lane protocol.Lane, o protocol.Open) (*tunnel.Stream, protocol.Opened, error) {
	r.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	stream, opened, err := r.relay.Open(ctx, lane, o)
	if err == nil {
		r.t.Cleanup(func() { stream.Close() })
		must(r.t, stream.SetDeadline(time.Now().Add(patience)))
	}
	return stream, opened, err
}

func (r *rig) openTerminal(pty protocol.PTYID, grant string) (*terminalEnd, error) {
	r.t.Helper()
	params, err := json.Marshal(protocol.TerminalParams{SessionID: session, PTYID: pty})
	must(r.t, err)
	stream, opened, err := r.open(protocol.LaneTerminal0, protocol.Open{Kind: protocol.StreamTerminal, Grant: grant, Params: params})
	if err != nil {
		return nil, err
	}
	end := &terminalEnd{t: r.t, stream: stream, frames: protocol.NewFrameReader(stream)}
	must(r.t, json.Unmarshal(opened.Result, &end.opened))
	return end, nil
}

// A terminalEnd is the relay's end of a terminal stream.
type terminalEnd struct {
	t      *testing.T
	stream *tunnel.Stream
	frames *protocol.FrameReader
	opened protocol.TerminalOpened
}

// attach opens a terminal stream, which must succeed.
func (r *rig) attach(pty protocol.PTYID, grant string) *terminalEnd {
	r.t.Helper()
	end, err := r.openTerminal(pty, grant)
	must(r.t, err)
	return end
}

func (e *terminalEnd) send(m protocol.Message) {
	e.t.Helper()
	must(e.t, protocol.Write(e.stream, m))
}

// next returns the next message of type M and skips others.
func next[M protocol.Message](e *terminalEnd) M {
	e.t.Helper()
	for {
		frame, err := e.frames.Next()
		must(e.t, err)
		m, err := protocol.Decode(frame)
		must(e.t, err)
		if m, ok := m.(M); ok {
			return m
		}
	}
}

// output reads as much output as text is long, which must be text.
func (e *terminalEnd) output(text string) {
	e.t.Helper()
	var got []byte
	for len(got) < len(text) {
		got = append(got, next[protocol.Data](e).Bytes...)
	}
	if string(got) != text {
		e.t.Errorf("output %q, want %q", got, text)
	}
}

// ended waits for the end of the stream.
func (e *terminalEnd) ended() {
	e.t.Helper()
	for {
		switch _, err := e.frames.Next(); {
		case errors.Is(err, io.EOF):
			return
		case err != nil:
			e.t.Fatalf("the stream ended with %v", err)
		}
	}
}

// propose asks for a change of the lease and returns the answer.
func (e *terminalEnd) propose(id, revision uint64, holder protocol.UserID, grant protocol.GrantID) protocol.Leased {
	e.t.Helper()
	e.send(protocol.LeaseProposal{ID: id, ExpectRevision: revision, Next: protocol.LeaseNext{Holder: holder, GrantID: grant}})
	for {
		if m := next[protocol.Leased](e); m.ID == id {
			return m
		}
	}
}

// add presents a grant and returns the answer.
func (e *terminalEnd) add(token string) protocol.Granted {
	e.t.Helper()
	e.send(protocol.GrantAdd{Grant: token})
	return next[protocol.Granted](e)
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func wantKind(t testing.TB, err error, kind protocol.Kind) {
	t.Helper()
	if err == nil || protocol.KindOf(err) != kind {
		t.Errorf("error %v; want kind %s", err, kind)
	}
}

// always runs every command by execute.
func always(execute Execute) func() Execute { return func() Execute { return execute } }
