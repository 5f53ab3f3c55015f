package e2e

import (
	"bytes"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/coder/websocket"

	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/protocol/jws"
	"github.com/fairlead/fairlead/protocol/op"
)

var (
	herdPeople  = flag.Int("herd.people", 20, "how many people watch a terminal whose tunnel is lost")
	herdSockets = flag.Int("herd.sockets", 10, "how many sockets each has, and a grant for each")
	herdPadding = flag.Int("herd.padding", 6000, "bytes that each grant is longer than it need be, so that few are as heavy as many")
	herdGap     = flag.Duration("herd.gap", slowdown*2*time.Second, "how long a viewer may be without output once the tunnel is back")
	herdEcho    = flag.Duration("herd.echo", slowdown*time.Second, "how long a key may take then")
)

// mint signs grants as a control plane never would: any number of them, for
// anybody.
func mint(t *testing.T, s *Stack, signer *jws.Signer, user protocol.UserID, name string, caps ...protocol.Capability) (*jws.Grant, string) {
	t.Helper()
	now := time.Now()
	g := jws.Grant{
		Subject: user, Name: name, Sandbox: s.Ready.Sandboxes[0].ID, Session: s.Ready.SessionID, PTYs: []string{jws.AllPTYs},
		Caps: append(caps, protocol.CapView), IssuedAt: now.Unix(), ExpiresAt: now.Add(protocol.MaxGrantTTL - time.Second).Unix(),
		ID: protocol.NewGrantID(),
	}
	token, err := signer.SignGrant(g)
	must(t, err)
	return &g, token
}

// revokeThrough has the sandbox hear that grants are void, and the relay through
// which it hears that, but nobody else.
func revokeThrough(ctx context.Context, t *testing.T, s *Stack, relay int, signer *jws.Signer, ids ...protocol.GrantID) {
	t.Helper()
	op, err := json.Marshal(struct {
		Kind string `json:"kind"`
		op.GrantRevoke
	}{op.KindGrantRevoke, op.GrantRevoke{Grants: ids}})
	must(t, err)
	c := jws.Command{
		Audience: jws.AudienceAgent, CommandID: protocol.NewCommandID(), TraceID: protocol.NewTraceID(),
		IssuedAt: time.Now().UnixMilli(), TTLMs: 30_000,
		Target: protocol.CommandTarget{SandboxID: s.Ready.Sandboxes[0].ID}, Op: op,
	}
	token, err := signer.SignCommand(c)
	must(t, err)
	status, body, err := Call(ctx, http.MethodPost, s.Ready.Relays[relay].URL+"/control/commands?wait=1", "", protocol.CommandEnvelope{
		Type: protocol.EnvelopeType, CommandID: c.CommandID, TraceID: c.TraceID, IssuedAt: c.IssuedAt, TTLMs: c.TTLMs, Target: c.Target, JWS: token,
	})
	must(t, err)
	var callback protocol.ExecutionCallback
	if json.Unmarshal(body, &callback) != nil || status != http.StatusOK || callback.Status != protocol.StatusOK {
		t.Fatalf("grant.revoke: %d %s", status, body)
	}
}

// dialGrant opens a socket by a grant.
func dialGrant(ctx context.Context, t *testing.T, s *Stack, grant string, pty protocol.PTYID) *Terminal {
	t.Helper()
	user := User{Base: s.Ready.Relays[0].URL}
	ticket, err := user.Ticket(ctx, grant, s.Ready.SessionID, pty)
	must(t, err)
	term, err := Dial(ctx, ticket, user.Base)
	must(t, err)
	t.Cleanup(term.Close)
	return term
}

// TestFound02TheSandboxRefuses: a grant that the sandbox alone knows to be void
// shows nothing of a terminal that others watch; not at first, and not when the
// stream to the sandbox is a new one.
func TestFound02TheSandboxRefuses(t *testing.T) {
	ctx := within(t)
	s := own(t, "--relays", "2") // the other one tells the sandbox what this one doesn't know
	signer, err := s.Signer()
	must(t, err)
	await(t, "the sandbox at the other relay", func() bool {
		_, health, err := Call(ctx, http.MethodGet, s.Ready.Relays[1].AdminURL+"/healthz", "", nil)
		return err == nil && bytes.Contains(health, []byte(`"standby"`))
	})
	pty := newPTY(t, s, `printf 'a secret\n'; stty -echo; exec cat`)
	alice := attach(t, s, "alice", pty)
	must(t, alice.Expect(ctx, "a secret"))
	void, grant := mint(t, s, signer, "usr_mallory", "Mallory")
	revokeThrough(ctx, t, s, 1, signer, void.ID)
	mallory := dialGrant(ctx, t, s, grant, pty)
	code, err := mallory.ExpectClose(ctx)
	if err != nil || code != 4403 {
		t.Errorf("closed with %d, %v", code, err)
	}
	if out, messages := mallory.Output(), mallory.Messages(); len(out)+len(messages) > 0 {
		t.Errorf("was shown %q and told %v", out, messages)
	}

	// One who watches already, and whose grant is void before the tunnel is back.
	_, grant = mint(t, s, signer, "usr_trent", "Trent")
	trent := dialGrant(ctx, t, s, grant, pty)
	must(t, trent.Expect(ctx, "a secret"))
	later, grant := mint(t, s, signer, "usr_oscar", "Oscar")
	oscar := dialGrant(ctx, t, s, grant, pty)
	must(t, oscar.Expect(ctx, "a secret"))
	revokeThrough(ctx, t, s, 1, signer, later.ID)
	began := time.Now()
	if code, err = oscar.ExpectClose(ctx); err != nil || code != 4403 {
		t.Errorf("closed with %d, %v", code, err)
	}
	if took := time.Since(began); took > slowdown*time.Second {
		t.Errorf("closed after %v", took)
	}
	must(t, alice.Type(ctx, "still here\n"))
	must(t, trent.Expect(ctx, "still here"))
	if bytes.Contains(oscar.Output(), []byte("still here")) {
		t.Error("was shown what came after the refusal")
	}
}

// TestFound10SocketsOfOnePerson: 256 sockets, each by a grant of its own, are as
// many as one person may have. The owner of the terminal comes in all the same,
// and of two grants with the same rights one may be revoked without the other's
// viewers noticing.
func TestFound10SocketsOfOnePerson(t *testing.T) {
	ctx := within(t)
	s := own(t)
	signer, err := s.Signer()
	must(t, err)
	pty := newPTY(t, s, "stty -echo; printf up; exec cat")
	const most = 256
	var crowd []*Terminal
	var grants []*jws.Grant
	for range most {
		g, grant := mint(t, s, signer, "usr_mallory", "Mallory")
		crowd, grants = append(crowd, dialGrant(ctx, t, s, grant, pty)), append(grants, g)
	}
	for _, term := range crowd {
		must(t, term.Expect(ctx, "up"))
	}
	_, grant := mint(t, s, signer, "usr_mallory", "Mallory")
	if code, err := dialGrant(ctx, t, s, grant, pty).ExpectClose(ctx); err != nil || code != 4429 {
		t.Errorf("one more: closed with %d, %v", code, err)
	}
	if n := metric(ctx, t, s, "fairlead_sockets_over_person_limit_total"); n != 1 {
		t.Errorf("%v are counted", n)
	}
	alice := attach(t, s, "alice", pty)
	must(t, alice.Expect(ctx, "up"))
	for _, g := range grants[:3] { // those that may stand for the others
		revokeThrough(ctx, t, s, 0, signer, g.ID)
	}
	_, err = alice.ExpectMessage(ctx, protocol.ServerControlState, func(m Message) bool { return m["controller"] == m["you"] })
	must(t, err)
	must(t, alice.Type(ctx, "goes on\n"))
	ended := 0
	for i, term := range crowd {
		if err := term.Expect(ctx, "goes on"); err != nil && i < 3 {
			ended++ // its own grant stood for all
		} else if err != nil {
			t.Errorf("socket %d: %v", i, err)
		}
		for _, m := range term.Messages() {
			if m.Type() == protocol.ServerWaiting {
				t.Errorf("socket %d: %v", i, m)
			}
		}
	}
	t.Logf("of %d sockets %d ended with their grant", most, ended)
}

// A herdViewer reads a socket, and notes how long nothing came.
type herdViewer struct {
	conn   *websocket.Conn
	timed  *atomic.Pointer[time.Time] // when it began to matter; nil: not yet
	ended  chan struct{}
	mu     sync.Mutex
	frames int
	last   time.Time
	gap    time.Duration // the longest since it matters
	err    error
}

func (v *herdViewer) read(ctx context.Context) {
	defer close(v.ended)
	for {
		kind, _, err := v.conn.Read(ctx)
		v.mu.Lock()
		now := time.Now()
		if from := v.timed.Load(); from != nil && (err != nil || kind == websocket.MessageBinary) {
			since := v.last
			if since.Before(*from) {
				since = *from
			}
			v.gap = max(v.gap, now.Sub(since))
		}
		if kind == websocket.MessageBinary && err == nil {
			v.frames++
			v.last = now
		}
		v.err = err
		v.mu.Unlock()
		if err != nil {
			return
		}
	}
}

// herd has people watch a terminal by sockets with a grant each.
func herd(ctx context.Context, t *testing.T, s *Stack, pty protocol.PTYID, timed *atomic.Pointer[time.Time]) []*herdViewer {
	t.Helper()
	signer, err := s.Signer()
	must(t, err)
	base := s.Ready.Relays[0].URL
	viewers := make([]*herdViewer, *herdPeople**herdSockets)
	places := make(chan int)
	var dialing sync.WaitGroup
	for range 8 {
		dialing.Go(func() { // herd waits below
			for i := range places {
				user := protocol.UserID(fmt.Sprint("usr_herd", i%*herdPeople))
				_, grant := mint(t, s, signer, user, strings.Repeat("n", *herdPadding))
				ticket, err := User{Base: base}.Ticket(ctx, grant, s.Ready.SessionID, pty)
				if err == nil {
					v := &herdViewer{timed: timed, ended: make(chan struct{})}
					if v.conn, err = DialRaw(ctx, ticket, base); err == nil {
						viewers[i] = v
						go v.read(ctx) // the cleanup waits for it
						t.Cleanup(func() { v.conn.CloseNow(); <-v.ended })
					}
				}
				if err != nil {
					t.Errorf("viewer %d: %v", i, err)
				}
			}
		})
	}
	for i := range viewers {
		places <- i
	}
	close(places)
	dialing.Wait()
	if t.Failed() {
		t.FailNow()
	}
	return viewers
}

// TestFound11AHerdComesBack: a terminal is watched by people with many sockets
// and a grant for each, and its tunnel is lost. When that is back, keys arrive,
// and everybody is shown on.
func TestFound11AHerdComesBack(t *testing.T) {
	ctx := within(t)
	s := own(t)
	pty := newPTY(t, s, `stty -echo; while :; do printf .; sleep 0.1; done & exec sed -u 's/.*/got:&:/'`)
	alice := attach(t, s, "alice", pty)
	must(t, alice.Expect(ctx, "."))
	var timed atomic.Pointer[time.Time]
	viewers := herd(ctx, t, s, pty, &timed)
	must(t, alice.Type(ctx, "before\n"))
	must(t, alice.Expect(ctx, "got:before:"))
	for i, v := range viewers {
		await(t, fmt.Sprintf("the first output of viewer %d", i), func() bool {
			v.mu.Lock()
			defer v.mu.Unlock()
			return v.frames > 0 || v.err != nil
		})
	}

	agent := s.Ready.Sandboxes[0].PID
	must(t, syscall.Kill(agent, syscall.SIGSTOP))
	t.Cleanup(func() { syscall.Kill(agent, syscall.SIGCONT) })
	_, err := alice.ExpectMessage(ctx, protocol.ServerWaiting, nil)
	must(t, err)
	must(t, syscall.Kill(agent, syscall.SIGCONT))
	stopped := time.Now()
	must(t, alice.Await(ctx, "the stream", func(_ []byte, messages []Message, _ error) bool {
		return messages[len(messages)-1].Type() != protocol.ServerWaiting
	}))
	open := time.Now()
	timed.Store(&open)
	t.Logf("the stream is open %v after the agent went on", open.Sub(stopped).Round(time.Millisecond))
	pause(ctx, 3*time.Second)
	typed := time.Now()
	must(t, alice.Type(ctx, "after\n"))
	if err := alice.Expect(ctx, "got:after:"); err != nil {
		t.Fatal(err)
	}
	echo := time.Since(typed)
	pause(ctx, time.Second)
	var longest time.Duration
	for i, v := range viewers {
		v.mu.Lock()
		longest = max(longest, v.gap, time.Since(v.last))
		if v.err != nil {
			t.Errorf("viewer %d ended: %v", i, v.err)
		}
		v.mu.Unlock()
	}
	t.Logf("%d people with %d sockets each: a key typed 3 s later echoes within %v; nobody is without output for longer than %v",
		*herdPeople, *herdSockets, echo.Round(time.Millisecond), longest.Round(time.Millisecond))
	if echo > *herdEcho {
		t.Errorf("the key took %v", echo)
	}
	if longest > *herdGap {
		t.Errorf("a viewer was without output for %v", longest)
	}
	if n := metric(ctx, t, s, "fairlead_terminal_streams_lost_total"); n != 1 {
		t.Errorf("the stream was lost %v times", n)
	}
}
