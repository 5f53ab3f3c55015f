// Package relaytest makes what tests of the relay need: a control plane's key,
// grants and commands signed by it, and sandboxes that answer.
package relaytest

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/fairlead/fairlead/deploy/program/lifetime"
	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/protocol/jws"
	"github.com/fairlead/fairlead/tunnel"
)

// Names in grants and commands, unless a test changes them.
const (
	Sandbox protocol.SandboxID = "sb_test" // as in tunneltest.Hello
	Session protocol.SessionID = "ses_1"
	PTY     protocol.PTYID     = "pty_1"
	User    protocol.UserID    = "usr_alice"
)

// An Authority signs as the control plane does.
type Authority struct {
	tb     testing.TB
	Signer *jws.Signer
	JWKS   []byte
	Keys   *jws.Keys

	Revoked *jws.RevocationSet // Keys refuses what it contains
	Grants  *lifetime.Grants   // end with Revoked, by a clock that Ahead shifts
	Ahead   atomic.Int64       // nanoseconds
}

// NewAuthority makes a fresh key.
func NewAuthority(tb testing.TB) *Authority {
	tb.Helper()
	a := &Authority{tb: tb, Revoked: jws.NewRevocationSet()}
	a.Grants = lifetime.New(lifetime.Options{
		Revoked: a.Revoked, Now: func() time.Time { return time.Now().Add(time.Duration(a.Ahead.Load())) },
	})
	var err error
	if a.Signer, err = jws.GenerateSigner(); err != nil {
		tb.Fatal(err)
	}
	if a.JWKS, err = jws.MarshalKeySet(a.Signer); err != nil {
		tb.Fatal(err)
	}
	set, err := jws.ParseKeySet(a.JWKS)
	if err != nil {
		tb.Fatal(err)
	}
	a.Keys = jws.NewKeys(set, jws.KeysOptions{Revoked: a.Revoked})
	return a
}

// Revocations returns a signed list of these grants.
func (a *Authority) Revocations(number uint64, grants ...protocol.GrantID) string {
	a.tb.Helper()
	r := jws.Revocations{Number: number, IssuedAt: time.Now().Unix()}
	for _, id := range grants {
		r.Grants = append(r.Grants, jws.RevokedGrant{ID: id, ExpiresAt: time.Now().Add(time.Hour).Unix()})
	}
	list, err := a.Signer.SignRevocations(r)
	if err != nil {
		a.tb.Fatal(err)
	}
	return list
}

// Grant returns a grant of User for everything, valid for five minutes, after
// change (may be nil), and its signed form.
func (a *Authority) Grant(change func(*jws.Grant)) (*jws.Grant, string) {
	a.tb.Helper()
	now := time.Now()
	g := jws.Grant{
		Subject: User, Name: "Alice", Dashboard: "dash_1", Sandbox: Sandbox, PTYs: []string{jws.AllPTYs},
		Caps:     []protocol.Capability{protocol.CapView, protocol.CapControl, protocol.CapShell},
		IssuedAt: now.Unix(), ExpiresAt: now.Add(5 * time.Minute).Unix(), ID: protocol.NewGrantID(),
	}
	if change != nil {
		change(&g)
	}
	token, err := a.Signer.SignGrant(g)
	if err != nil {
		a.tb.Fatal(err)
	}
	return &g, token
}

// Command returns the envelope of a pty.create for Session, after change (may
// be nil).
func (a *Authority) Command(change func(*jws.Command)) protocol.CommandEnvelope {
	a.tb.Helper()
	c := jws.Command{
		Audience: jws.AudienceAgent, CommandID: protocol.NewCommandID(), TraceID: protocol.NewTraceID(),
		IssuedAt: time.Now().UnixMilli(), TTLMs: 30_000,
		Target: protocol.CommandTarget{SandboxID: Sandbox, SessionID: Session},
		Op:     json.RawMessage(`{"kind":"pty.create"}`),
	}
	if change != nil {
		change(&c)
	}
	token, err := a.Signer.SignCommand(c)
	if err != nil {
		a.tb.Fatal(err)
	}
	return protocol.CommandEnvelope{
		Type: protocol.EnvelopeType, CommandID: c.CommandID, TraceID: c.TraceID,
		IssuedAt: c.IssuedAt, TTLMs: c.TTLMs, Target: c.Target, JWS: token,
	}
}

// Sign signs payload as it is, valid or not, as a command.
func (a *Authority) Sign(payload []byte) string {
	a.tb.Helper()
	private, err := a.Signer.MarshalPrivate()
	if err != nil {
		a.tb.Fatal(err)
	}
	var key struct{ D string }
	if err := json.Unmarshal(private, &key); err != nil {
		a.tb.Fatal(err)
	}
	b64 := base64.RawURLEncoding
	d, err := b64.DecodeString(key.D)
	if err != nil {
		a.tb.Fatal(err)
	}
	signer, err := ecdsa.ParseRawPrivateKey(elliptic.P256(), d)
	if err != nil {
		a.tb.Fatal(err)
	}
	header := `{"alg":"ES256","kid":"` + a.Signer.Kid() + `","typ":"` + jws.TypeCommand + `"}`
	input := b64.EncodeToString([]byte(header)) + "." + b64.EncodeToString(payload)
	sum := sha256.Sum256([]byte(input))
	r, s, err := ecdsa.Sign(rand.Reader, signer, sum[:])
	if err != nil {
		a.tb.Fatal(err)
	}
	signature := make([]byte, 64)
	r.FillBytes(signature[:32])
	s.FillBytes(signature[32:])
	return input + "." + b64.EncodeToString(signature)
}

// Answer runs handle for each stream that the peer of session opens. At the
// test's end it closes session and waits for them.
func Answer(tb testing.TB, session *tunnel.Session, handle func(*tunnel.Incoming)) {
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup // the cleanup waits for it
	running.Go(func() {
		for {
			in, err := session.Accept(ctx)
			if err != nil {
				return
			}
			running.Go(func() { handle(in) })
		}
	})
	tb.Cleanup(func() {
		cancel()
		session.Close()
		running.Wait()
	})
}

// OK returns the RESULT of a successful command.
func OK(command protocol.CommandID, result any) protocol.Result {
	body, err := json.Marshal(result)
	if err != nil {
		panic(err) // results are plain structs
	}
	callback, err := json.Marshal(protocol.ExecutionCallback{
		Type: protocol.CallbackType, CommandID: command, Status: protocol.StatusOK, Result: body,
	})
	if err != nil {
		panic(err)
	}
	return protocol.Result{Callback: callback}
}

// Tunnels holds the tunnel of one sandbox, as package fleet would.
type Tunnels struct {
	mu      sync.Mutex
	session *tunnel.Session
	changed chan struct{}
}

// Connect replaces the sandbox's tunnel; nil takes it away.
func (t *Tunnels) Connect(session *tunnel.Session) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.session = session
	if t.changed != nil {
		close(t.changed)
		t.changed = nil
	}
}

// Session implements the method of fleet.Fleet.
func (t *Tunnels) Session(protocol.SandboxID) (*tunnel.Session, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.session == nil {
		return nil, protocol.Errorf(protocol.KindUnavailable, "the sandbox is not connected")
	}
	return t.session, nil
}

// Wait implements the method of fleet.Fleet.
func (t *Tunnels) Wait(ctx context.Context, _ protocol.SandboxID) (*tunnel.Session, error) {
	for {
		t.mu.Lock()
		session := t.session
		if t.changed == nil {
			t.changed = make(chan struct{})
		}
		changed := t.changed
		t.mu.Unlock()
		if session != nil {
			select {
			case <-session.Done():
			default:
				return session, nil
			}
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return nil, protocol.Errorf(protocol.KindUnavailable, "the sandbox is not connected")
		}
	}
}
