package executor

import (
	"context"
	"crypto/elliptic"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"math/big"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/protocol/jws"
	"github.com/fairlead/fairlead/protocol/op"
	"github.com/fairlead/fairlead/sandbox-agent/internal/approval"
	"github.com/fairlead/fairlead/sandbox-agent/internal/browser"
	"github.com/fairlead/fairlead/sandbox-agent/internal/egress"
	"github.com/fairlead/fairlead/sandbox-agent/internal/environment"
	"github.com/fairlead/fairlead/sandbox-agent/internal/feature"
	"github.com/fairlead/fairlead/sandbox-agent/internal/integration"
	"github.com/fairlead/fairlead/sandbox-agent/internal/ledger"
	"github.com/fairlead/fairlead/sandbox-agent/internal/terminal"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const (
	sandbox = protocol.SandboxID("sb_1")
	session = protocol.SessionID("ses_1")
)

// start is the time at which every test begins.
var start = time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)

// A fakeTerminals notes what is asked of it.
type fakeTerminals struct {
	create func(context.Context) error // nil: succeed

	mu    sync.Mutex
	calls []string // guarded by mu
}

func (f *fakeTerminals) note(words ...string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.calls = append(f.calls, strings.Join(words, " "))
}

func (f *fakeTerminals) called() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.calls
}

func (f *fakeTerminals) Create(ctx context.Context, s protocol.SessionID, id protocol.PTYID, body op.PTYCreate) (protocol.PTYInfo, error) {
	f.note("create", string(s), string(id), body.Command)
	if f.create != nil {
		if err := f.create(ctx); err != nil {
			return protocol.PTYInfo{}, err
		}
	}
	if id == "" {
		id = "pty_made"
	}
	return protocol.PTYInfo{ID: id}, nil
}

func (f *fakeTerminals) Close(s protocol.SessionID, id protocol.PTYID) error {
	f.note("close", string(s), string(id))
	if id == "pty_none" {
		return protocol.Errorf(protocol.KindNotFound, "no such terminal")
	}
	return nil
}

func (f *fakeTerminals) Signal(s protocol.SessionID, id protocol.PTYID, signal string) error {
	f.note("signal", string(s), string(id), signal)
	if signal == "SEGV" {
		return protocol.Errorf(protocol.KindInvalid, "unknown signal")
	}
	return nil
}

func (f *fakeTerminals) StartRecording(s protocol.SessionID, id protocol.PTYID) (string, error) {
	f.note("start recording", string(s), string(id))
	if id == "pty_recorded" {
		return "", protocol.Errorf(protocol.KindConflict, "the terminal is being recorded")
	}
	return "rec_1", nil
}

func (f *fakeTerminals) StopRecording(s protocol.SessionID, id protocol.PTYID) (string, error) {
	f.note("stop recording", string(s), string(id))
	return "rec_1", nil
}

func (f *fakeTerminals) Resize(s protocol.SessionID, id protocol.PTYID, cols, rows int) error {
	f.note("resize", string(s), string(id), fmt.Sprint(cols), fmt.Sprint(rows))
	return nil
}

func (f *fakeTerminals) agent(verb string, state protocol.AgentState, s protocol.SessionID, id protocol.PTYID, more ...string) (protocol.AgentReport, error) {
	f.note(append([]string{verb, string(s), string(id)}, more...)...)
	if id == "pty_none" {
		return protocol.AgentReport{}, protocol.Errorf(protocol.KindNotFound, "no such terminal")
	}
	return protocol.AgentReport{State: state}, nil
}

func (f *fakeTerminals) StartAgent(_ context.Context, s protocol.SessionID, id protocol.PTYID, body op.AgentStart) (protocol.AgentReport, error) {
	return f.agent("start agent", protocol.AgentRunning, s, id, body.Name, body.Command, strings.Join(body.Args, ","))
}

func (f *fakeTerminals) PauseAgent(s protocol.SessionID, id protocol.PTYID) (protocol.AgentReport, error) {
	return f.agent("pause agent", protocol.AgentPaused, s, id)
}

func (f *fakeTerminals) ResumeAgent(s protocol.SessionID, id protocol.PTYID) (protocol.AgentReport, error) {
	return f.agent("resume agent", protocol.AgentRunning, s, id)
}

func (f *fakeTerminals) StopAgent(_ context.Context, s protocol.SessionID, id protocol.PTYID) (protocol.AgentReport, error) {
	return f.agent("stop agent", protocol.AgentStopped, s, id)
}

func (f *fakeTerminals) Share(s protocol.SessionID, id protocol.PTYID, with protocol.Share) error {
	f.note("share", string(s), string(id), string(with))
	if id == "pty_none" {
		return protocol.Errorf(protocol.KindNotFound, "no such terminal")
	}
	return nil
}

func (f *fakeTerminals) SessionEnded(s protocol.SessionID) error {
	f.note("end session", string(s))
	return nil
}

func (f *fakeTerminals) Revoke(grants []protocol.GrantID) error {
	f.note("revoke", fmt.Sprint(grants))
	return nil
}

// A bench is an executor under test: a real ledger, keys and clock of the
// test's own.
type bench struct {
	*Executor
	t         testing.TB
	signer    *jws.Signer
	terminals *fakeTerminals
	services  *fakeServices
	dir       string // of the ledger
	openEnv   func(box []byte) (protocol.EnvValues, error)

	mu  sync.Mutex
	now time.Time // guarded by mu
}

func newBench(t testing.TB) *bench {
	t.Helper()
	signer, err := jws.GenerateSigner()
	must(t, err)
	b := &bench{t: t, signer: signer, terminals: &fakeTerminals{}, openEnv: openFake, dir: filepath.Join(t.TempDir(), "ledger"), now: start}
	jwks, err := jws.MarshalKeySet(signer)
	must(t, err)
	keys, err := jws.ParseKeySet(jwks)
	must(t, err)
	b.Executor = &Executor{
		Sandbox: sandbox, Keys: jws.NewKeys(keys, jws.KeysOptions{Now: b.clock}),
		Now: b.clock, Log: slog.New(slog.DiscardHandler),
	}
	b.services = &fakeServices{fakeTerminals: b.terminals}
	sandbox := feature.Sandbox{Sessions: b.terminals, Grants: b.terminals}
	decisions := approval.Decisions{Approvals: fakeApprovals{b.services}, Egress: fakeEgress{b.services}, Broker: fakeBroker{b.services}}
	b.Operations = feature.Operations{}.Add(
		sandbox.Operations(), egress.Operations(fakeEgress{b.services}), terminal.Operations(b.terminals), environment.Operations(b.services, b), decisions.Operations(),
		browser.Operations(fakeBrowser{b.services}, nil), b.services.chats(), b.services.noted(),
		integration.Operations(func(s protocol.SessionID, pty protocol.PTYID) {
			b.terminals.note("integrations", string(s), string(pty))
		}),
	)
	b.open()
	t.Cleanup(func() { b.Ledger.Close() })
	return b
}

// open opens the ledger, as an agent does that starts.
func (b *bench) open() {
	b.t.Helper()
	var err error
	b.Ledger, err = ledger.Open(b.dir, b.clock)
	must(b.t, err)
}

// Open implements [environment.Seal].
func (b *bench) Open(box []byte) (protocol.EnvValues, error) { return b.openEnv(box) }

func (b *bench) clock() time.Time {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.now
}

func (b *bench) advance(d time.Duration) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.now = b.now.Add(d)
}

// command returns a command that is valid now.
func (b *bench) command(op string) jws.Command {
	return jws.Command{
		Issuer: jws.Issuer, Audience: jws.AudienceAgent,
		CommandID: protocol.NewCommandID(), TraceID: "tr_1",
		IssuedAt: b.clock().UnixMilli(), TTLMs: 30_000,
		Target: protocol.CommandTarget{SandboxID: sandbox, SessionID: session},
		Op:     json.RawMessage(op),
	}
}

func (b *bench) sign(c jws.Command) string {
	b.t.Helper()
	token, err := b.signer.SignCommand(c)
	must(b.t, err)
	return token
}

// execute runs token and returns the callback, whose form it checks. One that
// says that nothing was tried must say that it failed.
func (b *bench) execute(token string) (protocol.ExecutionCallback, protocol.Result) {
	b.t.Helper()
	result := b.Execute(b.t.Context(), token)
	var c protocol.ExecutionCallback
	must(b.t, json.Unmarshal(result.Callback, &c))
	if c.Type != protocol.CallbackType || c.At == 0 || c.Telemetry == nil || (c.Error != nil) != (c.Status == protocol.StatusError) ||
		c.Telemetry.Attempt != 1 && c.Status != protocol.StatusError {
		b.t.Errorf("callback %s", result.Callback)
	}
	return c, result
}

// refuse runs token, which must fail by name, and nothing must run.
func (b *bench) refuse(token, name string) {
	b.t.Helper()
	before := len(b.terminals.called())
	c, result := b.execute(token)
	if c.Error == nil || c.Error.Name != name || result.Kind.Name() != name {
		b.t.Errorf("%s, kind %s; want %s", result.Callback, result.Kind, name)
	}
	if c.Telemetry.Attempt != 0 && name != "ExpiredError" { // of which TestForgotten tells
		b.t.Errorf("attempt %d of what never ran: %s", c.Telemetry.Attempt, result.Callback)
	}
	if after := b.terminals.called(); len(after) != before {
		b.t.Errorf("ran %q", after[before:])
	}
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func TestRefusedBeforeItRuns(t *testing.T) {
	b := newBench(t)
	create := `{"kind":"pty.create"}`
	with := func(change func(*jws.Command)) string {
		c := b.command(create)
		change(&c)
		return b.sign(c)
	}
	good := b.sign(b.command(create))
	stranger, err := jws.GenerateSigner()
	must(t, err)
	foreign, err := stranger.SignCommand(b.command(create))
	must(t, err)
	grant, err := b.signer.SignGrant(jws.Grant{
		Issuer: jws.Issuer, Audience: jws.AudienceFairlead, Subject: "usr_1", Sandbox: sandbox,
		PTYs: []string{jws.AllPTYs}, Caps: []protocol.Capability{protocol.CapShell},
		IssuedAt: start.Unix(), ExpiresAt: start.Unix() + 60, ID: "gr_1",
	})
	must(t, err)
	for _, tt := range []struct{ what, token, name string }{
		{"broken signature", flip(good), "AuthError"},
		{"no token", "", "AuthError"},
		{"unknown key", foreign, "AuthError"},
		{"a grant", grant, "AuthError"},
		{"another audience", with(func(c *jws.Command) { c.Audience = jws.AudienceExtension }), "AuthError"},
		{"from the future", with(func(c *jws.Command) { c.IssuedAt += 61_000 }), "AuthError"},
		{"expired", with(func(c *jws.Command) { c.IssuedAt -= 30_000 + 60_001 }), "ExpiredError"},
		{"another sandbox", with(func(c *jws.Command) { c.Target.SandboxID = "sb_2" }), "TargetError"},
		{"no sandbox", with(func(c *jws.Command) { c.Target.SandboxID = "" }), "TargetError"},
		{"no session", with(func(c *jws.Command) { c.Target.SessionID = "" }), "TargetError"},
		{"no terminal", with(func(c *jws.Command) { c.Op = json.RawMessage(`{"kind":"pty.close"}`) }), "TargetError"},
		{"no terminal to record", with(func(c *jws.Command) { c.Op = json.RawMessage(`{"kind":"record.start"}`) }), "TargetError"},
		{"unknown operation", with(func(c *jws.Command) { c.Op = json.RawMessage(`{"kind":"moon.land"}`) }), "UnsupportedError"},
		{"misformed operation", with(func(c *jws.Command) { c.Op = json.RawMessage(`{"kind":"pty.create","cols":"80"}`) }), "RequestError"},
		{"misformed signal", with(func(c *jws.Command) {
			c.Target.PTYID, c.Op = "pty_1", json.RawMessage(`{"kind":"pty.signal","signal":9}`)
		}), "RequestError"},
	} {
		t.Run(tt.what, func(t *testing.T) {
			b.t = t
			b.refuse(tt.token, tt.name)
		})
	}
}

// flip changes one bit of a token's signature.
func flip(token string) string {
	at := len(token) - 10
	other := byte('A')
	if token[at] == other {
		other = 'B'
	}
	return token[:at] + string(other) + token[at+1:]
}

func TestOperations(t *testing.T) {
	b := newBench(t)
	for _, tt := range []struct {
		pty     protocol.PTYID
		op      string
		call    string // of the terminals
		result  string
		failure string // error name
	}{
		{"", `{"kind":"session.create"}`, "", `{"kind":"session.create","sessionId":"ses_1"}`, ""},
		{"", `{"kind":"session.create","egress":true}`, "egress ses_1 true", `{"kind":"session.create","sessionId":"ses_1"}`, ""},
		{"", `{"kind":"pty.create","command":"top"}`, "create ses_1  top", `{"kind":"pty.create","sessionId":"ses_1","ptyId":"pty_made"}`, ""},
		{"pty_1", `{"kind":"pty.create"}`, "create ses_1 pty_1 ", `{"kind":"pty.create","sessionId":"ses_1","ptyId":"pty_1"}`, ""},
		{"pty_1", `{"kind":"pty.signal","signal":"INT"}`, "signal ses_1 pty_1 INT", `{"kind":"pty.signal","sessionId":"ses_1","ptyId":"pty_1"}`, ""},
		{"pty_1", `{"kind":"pty.signal","signal":"SEGV"}`, "signal ses_1 pty_1 SEGV", "", "RequestError"},
		{"pty_1", `{"kind":"pty.close"}`, "close ses_1 pty_1", `{"kind":"pty.close","sessionId":"ses_1","ptyId":"pty_1"}`, ""},
		{"pty_1", `{"kind":"record.start"}`, "start recording ses_1 pty_1", `{"kind":"record.start","sessionId":"ses_1","ptyId":"pty_1","recordingId":"rec_1"}`, ""},
		{"pty_recorded", `{"kind":"record.start"}`, "start recording ses_1 pty_recorded", "", "RequestError"},
		{"pty_1", `{"kind":"record.stop"}`, "stop recording ses_1 pty_1", `{"kind":"record.stop","sessionId":"ses_1","ptyId":"pty_1","recordingId":"rec_1"}`, ""},
		{"pty_none", `{"kind":"pty.close"}`, "close ses_1 pty_none", "", "TargetError"},
		{"pty_1", `{"kind":"pty.resize","cols":80,"rows":24}`, "resize ses_1 pty_1 80 24", `{"kind":"pty.resize","sessionId":"ses_1","ptyId":"pty_1"}`, ""},
		{"pty_1", `{"kind":"agent.start","name":"claude","command":"claude","args":["-c"]}`, "start agent ses_1 pty_1 claude claude -c", `{"kind":"agent.start","sessionId":"ses_1","ptyId":"pty_1","agentState":"running"}`, ""},
		{"pty_1", `{"kind":"agent.pause"}`, "pause agent ses_1 pty_1", `{"kind":"agent.pause","sessionId":"ses_1","ptyId":"pty_1","agentState":"paused"}`, ""},
		{"pty_1", `{"kind":"agent.resume"}`, "resume agent ses_1 pty_1", `{"kind":"agent.resume","sessionId":"ses_1","ptyId":"pty_1","agentState":"running"}`, ""},
		{"pty_1", `{"kind":"agent.stop"}`, "stop agent ses_1 pty_1", `{"kind":"agent.stop","sessionId":"ses_1","ptyId":"pty_1","agentState":"stopped"}`, ""},
		{"pty_1", `{"kind":"terminal.share","with":"pty_2"}`, "share ses_1 pty_1 pty_2", `{"kind":"terminal.share","sessionId":"ses_1","ptyId":"pty_1","with":"pty_2"}`, ""},
		{"pty_none", `{"kind":"terminal.share","with":"none"}`, "share ses_1 pty_none none", "", "TargetError"},
		{"pty_none", `{"kind":"agent.stop"}`, "stop agent ses_1 pty_none", "", "TargetError"},
		{"", `{"kind":"grant.revoke","grants":["gr_1","gr_2"]}`, "revoke [gr_1 gr_2]", `{"kind":"grant.revoke","sessionId":"ses_1"}`, ""},
		{"", `{"kind":"session.delete"}`, "end session ses_1", `{"kind":"session.delete","sessionId":"ses_1"}`, ""},
	} {
		before := len(b.terminals.called())
		command := b.command(tt.op)
		command.Target.PTYID = tt.pty
		c, _ := b.execute(b.sign(command))
		if string(c.Result) != tt.result || c.CommandID != command.CommandID || c.TraceID != "tr_1" {
			t.Errorf("%s: %+v, result %s", tt.op, c, c.Result)
		}
		if name := errorName(c); name != tt.failure {
			t.Errorf("%s: error %q, want %q", tt.op, name, tt.failure)
		}
		if calls := strings.Join(b.terminals.called()[before:], ", "); calls != tt.call {
			t.Errorf("%s called %q, want %q", tt.op, calls, tt.call)
		}
	}
}

func errorName(c protocol.ExecutionCallback) string {
	if c.Error == nil {
		return ""
	}
	return c.Error.Name
}

// TestFailuresOfTheTerminals: the kinds of the terminals' errors come out as their names, and a
// fault shows nothing of its cause.
func TestFailuresOfTheTerminals(t *testing.T) {
	b := newBench(t)
	for _, tt := range []struct {
		err  error
		want protocol.ErrorBody
	}{
		{protocol.Errorf(protocol.KindTooMany, "256 terminals run already"), protocol.ErrorBody{Message: "256 terminals run already", Name: "LimitError"}},
		{protocol.Errorf(protocol.KindConflict, "terminal exists"), protocol.ErrorBody{Message: "terminal exists", Name: "RequestError"}},
		{errors.New("open /secret/path: no such file"), protocol.ErrorBody{Message: "internal error", Name: "InternalError"}},
	} {
		b.terminals.create = func(context.Context) error { return tt.err }
		c, _ := b.execute(b.sign(b.command(`{"kind":"pty.create"}`)))
		if c.Error == nil || *c.Error != tt.want {
			t.Errorf("%v came out as %+v", tt.err, c.Error)
		}
		if c.Telemetry.Attempt != 1 {
			t.Errorf("attempt %d of what ran", c.Telemetry.Attempt)
		}
	}
}

// TestReplay: the same command gives the same answer, also in an agent that
// was started again, and after its time.
func TestReplay(t *testing.T) {
	b := newBench(t)
	ok := b.sign(b.command(`{"kind":"pty.create"}`))
	b.terminals.create = func(context.Context) error { return nil }
	_, first := b.execute(ok)
	b.terminals.create = func(context.Context) error { return protocol.Errorf(protocol.KindTooMany, "full") }
	failing := b.sign(b.command(`{"kind":"pty.create"}`))
	_, failed := b.execute(failing)
	again := func(when string) {
		t.Helper()
		for token, want := range map[string]protocol.Result{ok: first, failing: failed} {
			if _, got := b.execute(token); string(got.Callback) != string(want.Callback) || got.Kind != want.Kind {
				t.Errorf("%s: %s, want %s", when, got.Callback, want.Callback)
			}
		}
	}
	again("at once")
	b.advance(2 * time.Minute)
	again("after it expired")
	must(t, b.Ledger.Close())
	b.open()
	again("in the next agent")
	if calls := b.terminals.called(); len(calls) != 2 {
		t.Errorf("ran %q", calls)
	}
	b.advance(time.Hour)
	b.refuse(b.sign(func() jws.Command {
		c := b.command(`{"kind":"pty.create"}`)
		c.IssuedAt = start.UnixMilli()
		return c
	}()), "ExpiredError")
}

// TestOtherCommandUnderTheSameID: an id names one command, forever.
func TestOtherCommandUnderTheSameID(t *testing.T) {
	b := newBench(t)
	command := b.command(`{"kind":"pty.create"}`)
	b.execute(b.sign(command))
	command.Op = json.RawMessage(`{"kind":"session.delete"}`)
	b.refuse(b.sign(command), "RequestError")
	b.advance(2 * time.Minute)
	b.refuse(b.sign(command), "ExpiredError") // and tells nothing of the other
}

// TestAnotherSignature: ECDSA has two signatures for one payload, and both are
// the same command.
func TestAnotherSignature(t *testing.T) {
	b := newBench(t)
	token := b.sign(b.command(`{"kind":"pty.create"}`))
	head, tail := token[:strings.LastIndexByte(token, '.')+1], token[strings.LastIndexByte(token, '.')+1:]
	signature, err := base64.RawURLEncoding.DecodeString(tail)
	must(t, err)
	s := new(big.Int).SetBytes(signature[32:])
	s.Sub(elliptic.P256().Params().N, s).FillBytes(signature[32:])
	twin := head + base64.RawURLEncoding.EncodeToString(signature)
	_, first := b.execute(token)
	c, second := b.execute(twin)
	if c.Status != protocol.StatusOK || string(second.Callback) != string(first.Callback) {
		t.Errorf("%s, want %s", second.Callback, first.Callback)
	}
	if calls := b.terminals.called(); len(calls) != 1 {
		t.Errorf("ran %q", calls)
	}
}

// TestDuplicateWaits: whoever comes while the command runs gets its outcome.
func TestDuplicateWaits(t *testing.T) {
	b := newBench(t)
	token := b.sign(b.command(`{"kind":"pty.create"}`))
	running, proceed := make(chan struct{}), make(chan struct{})
	b.terminals.create = func(context.Context) error {
		close(running)
		<-proceed
		return nil
	}
	first := make(chan protocol.Result, 1)
	go func() { first <- b.Execute(t.Context(), token) }() // received below
	<-running

	impatient, cancel := context.WithCancel(t.Context())
	cancel()
	var c protocol.ExecutionCallback
	must(t, json.Unmarshal(b.Execute(impatient, token).Callback, &c))
	if c.Status != protocol.StatusUnknown { // it still runs
		t.Errorf("gave up with %+v", c)
	}
	second := make(chan protocol.Result, 1)
	go func() { second <- b.Execute(t.Context(), token) }() // received below
	select {
	case r := <-second:
		t.Fatalf("did not wait: %s", r.Callback)
	default:
	}
	close(proceed)
	if a, b := <-first, <-second; string(a.Callback) != string(b.Callback) {
		t.Errorf("%s and %s", a.Callback, b.Callback)
	}
}

// TestFinishedWithoutItsCaller: what has begun is not cut short by the end of
// the tunnel that it came through.
func TestFinishedWithoutItsCaller(t *testing.T) {
	b := newBench(t)
	ctx, cancel := context.WithCancel(t.Context())
	b.terminals.create = func(ctx context.Context) error {
		cancel()
		return ctx.Err()
	}
	var c protocol.ExecutionCallback
	must(t, json.Unmarshal(b.Execute(ctx, b.sign(b.command(`{"kind":"pty.create"}`))).Callback, &c))
	if c.Status != protocol.StatusOK {
		t.Errorf("%+v", c.Error)
	}
}

// TestParallel: of a hundred at once, one runs.
func TestParallel(t *testing.T) {
	b := newBench(t)
	token := b.sign(b.command(`{"kind":"pty.create"}`))
	results := make([]string, 100)
	var all sync.WaitGroup
	for i := range results {
		all.Go(func() { results[i] = string(b.Execute(t.Context(), token).Callback) })
	}
	all.Wait()
	for _, r := range results {
		if r != results[0] {
			t.Fatalf("%s and %s", results[0], r)
		}
	}
	if calls := b.terminals.called(); len(calls) != 1 {
		t.Errorf("ran %d times", len(calls))
	}
}

// TestLedgerFails: nothing runs that can't be written down first.
func TestLedgerFails(t *testing.T) {
	b := newBench(t)
	must(t, b.Ledger.Close())
	b.refuse(b.sign(b.command(`{"kind":"pty.create"}`)), "InternalError")
}

// TestCrash: a command whose outcome a crash took is unknown, and isn't run
// again.
func TestCrash(t *testing.T) {
	b := newBench(t)
	token := b.sign(b.command(`{"kind":"pty.create"}`))
	copied := filepath.Join(t.TempDir(), "ledger")
	b.terminals.create = func(context.Context) error {
		return os.CopyFS(copied, os.DirFS(b.dir)) // what a crash at this moment would leave
	}
	c, _ := b.execute(token)
	if c.Status != protocol.StatusOK {
		t.Fatalf("%+v", c)
	}
	must(t, b.Ledger.Close())
	b.dir = copied
	b.open()
	for _, when := range []time.Duration{0, 2 * time.Minute} {
		b.advance(when)
		c, result := b.execute(token)
		if c.Status != protocol.StatusUnknown || result.Kind != protocol.KindUnavailable {
			t.Errorf("%v later: %s", when, result.Callback)
		}
	}
	b.Memory = remembering{}
	if c, _ := b.execute(token); c.Status != protocol.StatusOK || c.Telemetry.Attempt != attemptRan || !strings.Contains(string(c.Result), "pty_remembered") {
		t.Errorf("a feature knows that it was done: %+v", c)
	}
	b.Memory = remembering{protocol.Fault(protocol.KindUnavailable, nil)}
	if c, _ := b.execute(token); c.Status != protocol.StatusError || c.Telemetry.Attempt != attemptNone {
		t.Errorf("a feature knows that it was not done: %+v", c)
	}
	if calls := b.terminals.called(); len(calls) != 1 {
		t.Errorf("ran %q", calls)
	}
}

// remembering knows that a pty.create was done, or with an error that it wasn't.
type remembering struct{ err error }

func (r remembering) Remember(command *jws.Command, body op.Body) (result protocol.OpResult, err error, known bool) {
	_, known = body.(*op.PTYCreate)
	return protocol.OpResult{Kind: command.Kind(), PTYID: "pty_remembered"}, r.err, known
}
