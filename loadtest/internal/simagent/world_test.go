package simagent

import (
	"context"
	"encoding/json"
	"errors"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/fairlead/fairlead/loadtest/internal/enrol"
	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/protocol/jws"
	"github.com/fairlead/fairlead/protocol/op"
	"github.com/fairlead/fairlead/tunnel"
	"github.com/fairlead/fairlead/tunnel/tunneltest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const (
	testSandbox protocol.SandboxID = "sb_1"
	testSession protocol.SessionID = "ses_1"
	alice       protocol.UserID    = "usr_alice"
	bob         protocol.UserID    = "usr_bob"
)

// A world is a simulated agent with the relay's end of its tunnel, and the keys
// of the control plane.
type world struct {
	t      *testing.T
	ctx    context.Context
	signer *jws.Signer
	device *jws.DeviceKey
	agent  *agent
	relay  *tunnel.Session
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func newWorld(t *testing.T) *world {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	t.Cleanup(cancel)
	signer, err := jws.GenerateSigner()
	must(t, err)
	device, err := jws.GenerateDeviceKey()
	must(t, err)
	jwks, err := jws.MarshalKeySet(signer)
	must(t, err)
	f, err := New(Config{
		Identities: []enrol.Identity{{Device: device, Enrolment: &protocol.Enrolment{
			SandboxID: testSandbox, Certificate: "a.b.c", JWKS: jwks, Relays: []string{"relay.test:1"}, RelayCAPEM: authority(t),
		}}},
	})
	must(t, err)
	w := &world{t: t, ctx: ctx, signer: signer, device: device, agent: f.agents[0]}
	w.connect()
	t.Cleanup(w.agent.closeAll)
	return w
}

// connect gives the agent a tunnel; the end of an earlier one is for the
// caller.
func (w *world) connect() {
	near, far := tunneltest.Pair(w.t)
	w.relay = far
	over := make(chan struct{})
	ctx, cancel := context.WithCancel(w.ctx)
	go func() {
		defer close(over)
		w.agent.Serve(ctx, "", near)
	}()
	w.t.Cleanup(func() { cancel(); <-over })
}

func (w *world) grant(user protocol.UserID, caps ...protocol.Capability) string {
	w.t.Helper()
	now := time.Now()
	token, err := w.signer.SignGrant(jws.Grant{
		Subject: user, Name: string(user), Dashboard: "dash_1", Sandbox: testSandbox, Session: testSession,
		PTYs: []string{jws.AllPTYs}, Caps: append(caps, protocol.CapView),
		IssuedAt: now.Unix(), ExpiresAt: now.Add(5 * time.Minute).Unix(), ID: protocol.GrantID("gr_" + string(user)),
	})
	must(w.t, err)
	return token
}

// command signs an operation.
func (w *world) command(target protocol.CommandTarget, op any) string {
	w.t.Helper()
	body, err := json.Marshal(op)
	must(w.t, err)
	if target.SandboxID == "" {
		target.SandboxID = testSandbox
	}
	token, err := w.signer.SignCommand(jws.Command{
		Audience: jws.AudienceAgent, CommandID: protocol.NewCommandID(), TraceID: protocol.NewTraceID(),
		IssuedAt: time.Now().UnixMilli(), TTLMs: 30000, Target: target, Op: body,
	})
	must(w.t, err)
	return token
}

// run has the agent run a command and returns its outcome, which must be
// signed.
func (w *world) run(token string) (protocol.ExecutionCallback, protocol.OpResult) {
	w.t.Helper()
	stream, _, err := w.relay.Open(w.ctx, protocol.LaneControl, protocol.Open{Kind: protocol.StreamCommand, Command: token})
	must(w.t, err)
	defer stream.Close()
	frame, err := protocol.NewFrameReader(stream).Next()
	must(w.t, err)
	m, err := protocol.Decode(frame)
	must(w.t, err)
	result := m.(protocol.Result)
	var cb protocol.ExecutionCallback
	must(w.t, json.Unmarshal(result.Callback, &cb))
	if cb.CommandID != "" {
		key, err := (&jws.Certificate{JWK: w.device.PublicJWK()}).PublicKey()
		must(w.t, err)
		if !jws.VerifyDevice(key, protocol.CallbackTranscript(testSandbox, result.Callback), result.Signature) {
			w.t.Error("the outcome is not signed by the sandbox")
		}
	}
	var op protocol.OpResult
	if cb.Status == protocol.StatusOK {
		must(w.t, json.Unmarshal(cb.Result, &op))
	}
	return cb, op
}

// terminal opens a terminal that alice created.
func (w *world) terminal() protocol.PTYID {
	w.t.Helper()
	cb, result := w.run(w.command(protocol.CommandTarget{SessionID: testSession}, map[string]any{
		"kind": op.KindPTYCreate, "creatorId": alice, "cols": 100, "rows": 30,
	}))
	if cb.Status != protocol.StatusOK || result.PTYID == "" {
		w.t.Fatalf("pty.create: %+v %+v", cb, cb.Error)
	}
	return result.PTYID
}

// A viewer is the relay's end of a terminal stream.
type viewer struct {
	w      *world
	stream *tunnel.Stream
	frames *protocol.FrameReader
	opened protocol.TerminalOpened
}

func (w *world) attach(pty protocol.PTYID, since *protocol.Position, token string) (*viewer, error) {
	w.t.Helper()
	params, err := json.Marshal(protocol.TerminalParams{SessionID: testSession, PTYID: pty, Since: since})
	must(w.t, err)
	stream, opened, err := w.relay.Open(w.ctx, protocol.TerminalLane(pty), protocol.Open{Kind: protocol.StreamTerminal, Grant: token, Params: params})
	if err != nil {
		return nil, err
	}
	w.t.Cleanup(func() { stream.Close() })
	v := &viewer{w: w, stream: stream, frames: protocol.NewFrameReader(stream)}
	must(w.t, json.Unmarshal(opened.Result, &v.opened))
	return v, nil
}

// view is attach for alice, which must succeed.
func (w *world) view(pty protocol.PTYID, since *protocol.Position) *viewer {
	w.t.Helper()
	v, err := w.attach(pty, since, w.grant(alice, protocol.CapControl))
	must(w.t, err)
	return v
}

func (v *viewer) say(m protocol.Message) {
	v.w.t.Helper()
	must(v.w.t, protocol.Write(v.stream, m))
}

var errOver = errors.New("the stream is over")

// next returns the next message.
func (v *viewer) next() (protocol.Message, error) {
	frame, err := v.frames.Next()
	if err != nil {
		return nil, errors.Join(errOver, err)
	}
	return protocol.Decode(frame)
}

// await returns the first message of type M, and the output before it.
func await[M protocol.Message](v *viewer) (M, []byte) {
	v.w.t.Helper()
	var out []byte
	for {
		m, err := v.next()
		must(v.w.t, err)
		if m, ok := m.(M); ok {
			return m, out
		}
		if data, ok := m.(protocol.Data); ok {
			out = append(out, data.Bytes...)
		}
	}
}

// output returns the next n bytes of output.
func (v *viewer) output(n int) []byte {
	v.w.t.Helper()
	var out []byte
	for len(out) < n {
		data, _ := await[protocol.Data](v)
		if data.Offset != v.opened.Offset {
			v.w.t.Fatalf("output at %d, want it at %d", data.Offset, v.opened.Offset)
		}
		v.opened.Offset += uint64(len(data.Bytes))
		out = append(out, data.Bytes...)
	}
	return out
}

// control takes the lease for alice.
func (v *viewer) control() protocol.Lease {
	v.w.t.Helper()
	v.say(protocol.Holder{User: alice, Sockets: 1})
	v.say(protocol.LeaseProposal{ID: 7, ExpectRevision: v.opened.Lease.Revision, Next: protocol.LeaseNext{Holder: alice, GrantID: "gr_usr_alice"}})
	leased, _ := await[protocol.Leased](v)
	if leased.ID != 7 || leased.Refused != "" || leased.Lease.Holder != alice {
		v.w.t.Fatalf("leased %+v", leased)
	}
	return leased.Lease
}
