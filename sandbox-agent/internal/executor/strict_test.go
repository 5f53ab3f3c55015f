package executor

import (
	"bytes"
	"encoding/json"
	"fmt"
	"log/slog"
	"maps"
	"math"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/fairlead/fairlead/protocol"
	auditlog "github.com/fairlead/fairlead/protocol/audit"
	"github.com/fairlead/fairlead/protocol/jws"
	"github.com/fairlead/fairlead/protocol/op"
	"github.com/fairlead/fairlead/protocol/op/optest"
	"github.com/fairlead/fairlead/sandbox-agent/internal/audit"
	"github.com/fairlead/fairlead/sandbox-agent/internal/feature"
	"github.com/fairlead/fairlead/sandbox-agent/internal/ledger"
)

// wholeOps is one good op of each kind that an agent knows.
var wholeOps = func() map[string]string {
	ops := maps.Clone(optest.Whole)
	ops[op.KindEnvApply] = envApply(op.EnvSealed{Names: []string{"A"}, Unset: []string{"B"}, ApplyNow: true}, protocol.EnvValues{Set: map[string]string{"A": "b"}})
	return ops
}()

// TestStrictOps: an op with a member that its kind doesn't have, or of another
// type, doesn't run.
func TestStrictOps(t *testing.T) {
	b := newBench(t)
	for _, spec := range op.Specs {
		kind := spec.Kind
		op, ours := wholeOps[kind]
		if !ours {
			t.Errorf("no test of %s", kind)
			continue
		}
		run := func(op string) string {
			c := b.command(op)
			c.Target.PTYID = "pty_1"
			return b.sign(c)
		}
		if c, _ := b.execute(run(op)); c.Status != protocol.StatusOK {
			t.Errorf("%s: %+v", op, c.Error)
		}
		for _, more := range []string{`"later":1`, `"Xsignal":"INT"`, `"target":{}`, `"grantId":"gr_1"`} {
			b.refuse(run(op[:len(op)-1]+","+more+"}"), "RequestError")
		}
		var members map[string]json.RawMessage
		must(t, json.Unmarshal([]byte(op), &members))
		for name := range members {
			if name == "kind" || name == "params" || name == "updatedInput" { // any object is one
				continue
			}
			members[name] = json.RawMessage(`{"x":[1]}`)
			bad, err := json.Marshal(members)
			must(t, err)
			b.refuse(run(string(bad)), "RequestError")
			must(t, json.Unmarshal([]byte(op), &members))
		}
	}
	for _, grants := range []string{`[]`, `null`, `["a b"]`, `[""]`, `["` + strings.Repeat(`gr_1","`, 1000) + `gr_1"]`} {
		b.refuse(b.sign(b.command(`{"kind":"grant.revoke","grants":`+grants+`}`)), "RequestError")
	}
	b.Operations = feature.Operations{}
	b.refuse(b.sign(b.command(wholeOps[op.KindCDPSend])), "UnsupportedError")
	b.refuse(b.sign(b.command(wholeOps[op.KindIntegrationsChanged])), "UnsupportedError")
	c := b.command(`{"kind":"agent.pause"}`)
	c.Target.PTYID = "pty_1"
	b.refuse(b.sign(c), "UnsupportedError")
	b.refuse(b.sign(b.command(`{"kind":"grant.revoke","grants":["gr_1"]}`)), "UnsupportedError")
}

// TestLifetime is exact to the millisecond. Lives that a control plane can't
// sign are signed by hand.
func TestLifetime(t *testing.T) {
	b := newBench(t)
	const skew, ttl = int64(60_000), int64(30_000)
	for _, tt := range []struct {
		what     string
		issuedAt int64 // after now
		ttl      string
		name     string // empty: it runs
	}{
		{"59.999 s ahead", skew - 1, "30000", ""},
		{"60 s ahead", skew, "30000", ""},
		{"60.001 s ahead", skew + 1, "30000", "AuthError"},
		{"an hour ahead", 3_600_000, "30000", "AuthError"},
		{"1 ms before the end", -ttl - skew + 1, "30000", ""},
		{"at the end", -ttl - skew, "30000", ""},
		{"1 ms after the end", -ttl - skew - 1, "30000", "ExpiredError"},
		{"an hour ago", -3_600_000, "30000", "ExpiredError"},
		{"shortest", 0, "1", ""},
		{"longest", 0, "600000", ""},
		{"too long", 0, "600001", "RequestError"},
		{"24 h", 0, "86400000", "RequestError"},
		{"0", 0, "0", "RequestError"},
		{"negative", 0, "-1", "RequestError"},
		{"least", 0, fmt.Sprint(int64(math.MinInt64)), "RequestError"},
		{"greatest", 0, fmt.Sprint(int64(math.MaxInt64)), "RequestError"},
		{"overflow", 0, "9223372036854775808", "RequestError"},
		{"wraps to 1", 0, "18446744073709551617", "RequestError"},
		{"fraction", 0, "1.5", "RequestError"},
		{"exponent", 0, "1e400", "RequestError"},
		{"text", 0, `"30000"`, "RequestError"},
		{"missing", 0, "null", "RequestError"},
	} {
		t.Run(tt.what, func(t *testing.T) {
			b.t = t
			c := b.command(`{"kind":"session.create"}`)
			c.IssuedAt += tt.issuedAt
			c.TTLMs = ttl
			payload, err := json.Marshal(c)
			must(t, err)
			token := b.signRaw(strings.Replace(string(payload), `"ttlMs":30000`, `"ttlMs":`+tt.ttl, 1))
			if tt.name != "" {
				b.refuse(token, tt.name)
				return
			}
			if c, _ := b.execute(token); c.Status != protocol.StatusOK {
				t.Errorf("%+v", c.Error)
			}
		})
	}
	for _, at := range []string{"9223372036854775807", "-9223372036854775808", "9223372036854775808", "0"} {
		c := b.command(`{"kind":"session.create"}`)
		payload, err := json.Marshal(c)
		must(t, err)
		token := b.signRaw(strings.Replace(string(payload), fmt.Sprintf(`"issuedAt":%d`, c.IssuedAt), `"issuedAt":`+at, 1))
		if c, _ := b.execute(token); c.Status == protocol.StatusOK {
			t.Errorf("issuedAt %s ran", at)
		}
	}
}

// TestSigned: every outcome of a verified command is signed, stored as it was
// signed, and not as another sandbox's.
func TestSigned(t *testing.T) {
	b := newBench(t)
	device, err := jws.GenerateDeviceKey()
	must(t, err)
	b.Device = device
	certificate, err := b.signer.SignCertificate(jws.Certificate{
		Subject: sandbox, ID: "crt_1", IssuedAt: start.Unix(), ExpiresAt: start.Unix() + 3600, JWK: device.PublicJWK(),
	})
	must(t, err)
	certified, err := b.Keys.Certificate(t.Context(), certificate)
	must(t, err)
	key, err := certified.PublicKey()
	must(t, err)
	check := func(r protocol.Result) {
		t.Helper()
		if !jws.VerifyDevice(key, protocol.CallbackTranscript(sandbox, r.Callback), r.Signature) {
			t.Errorf("%s isn't signed", r.Callback)
		}
		if jws.VerifyDevice(key, protocol.CallbackTranscript("sb_2", r.Callback), r.Signature) {
			t.Error("signed for any sandbox")
		}
		frame, err := protocol.Append(nil, r)
		must(t, err)
		if !bytes.Contains(frame, r.Callback) {
			t.Errorf("the wire changes %s", r.Callback)
		}
	}
	heard := &outcomes{t: t}
	b.Callbacks = heard
	c := b.command(`{"kind":"pty.create","command":"echo <&> é\u2028"}`)
	token := b.sign(c)
	_, first := b.execute(token)
	check(first)
	must(t, b.Ledger.Close())
	b.open()
	_, again := b.execute(token)
	if string(again.Callback) != string(first.Callback) || string(again.Signature) != string(first.Signature) {
		t.Errorf("%s, want %s", again.Callback, first.Callback)
	}
	check(b.Execute(t.Context(), b.sign(b.command(`{"kind":"moon.land"}`))))
	if len(heard.list) != 1 || string(heard.list[0].Signature) != string(first.Signature) {
		t.Errorf("heard %d outcomes", len(heard.list))
	}
	if r := b.Execute(t.Context(), "a.b.c"); r.Signature != nil {
		t.Error("signed what can't be verified")
	}
}

// outcomes are what callbacks were told.
type outcomes struct {
	t    *testing.T
	list []protocol.Result
}

func (o *outcomes) Callback(c *jws.Command, r protocol.Result) {
	if c.Target.SandboxID != sandbox {
		o.t.Error("not the command")
	}
	o.list = append(o.list, r)
}

// TestRejects: each is counted by its kind, logged once in a while, and the log
// has nothing of the token.
func TestRejects(t *testing.T) {
	b := newBench(t)
	var log bytes.Buffer
	var mu sync.Mutex
	b.Log = slog.New(slog.NewTextHandler(lockedWriter{&mu, &log}, nil))
	tokens := []string{flip(b.sign(b.command(`{"kind":"session.create"}`))), b.sign(b.command(`{"kind":"moon.land","secret":"hunter2"}`))}
	for range 50 {
		for _, token := range tokens {
			b.execute(token)
		}
	}
	counts := b.Rejects()
	if counts[protocol.KindUnauthenticated] != 50 || counts[protocol.KindUnsupported] != 50 || len(counts) != 2 {
		t.Errorf("counted %v", counts)
	}
	text := log.String()
	if lines := strings.Count(text, "\n"); lines != 2 {
		t.Errorf("%d lines:\n%s", lines, text)
	}
	for _, want := range []string{"name=AuthError", "reason=unauthenticated", "name=UnsupportedError", "reason=unsupported", "id=cmd_"} {
		if !strings.Contains(text, want) {
			t.Errorf("the log lacks %s:\n%s", want, text)
		}
	}
	for _, token := range tokens {
		for part := range strings.SplitSeq(token, ".") {
			if strings.Contains(text, part) || strings.Contains(text, "hunter2") {
				t.Errorf("the log shows the token:\n%s", text)
			}
		}
	}
}

type lockedWriter struct {
	mu *sync.Mutex
	w  *bytes.Buffer
}

func (l lockedWriter) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.w.Write(p)
}

// withAudit gives b an audit log, and returns its directory.
func (b *bench) withAudit() string {
	b.t.Helper()
	device, err := jws.GenerateDeviceKey()
	must(b.t, err)
	dir := filepath.Join(b.t.TempDir(), "audit")
	b.Device = device
	b.Audit, err = audit.Open(audit.Options{Dir: dir, Sandbox: sandbox, Device: device, Now: b.clock})
	must(b.t, err)
	b.t.Cleanup(func() { b.Audit.Close() })
	return dir
}

// recorded closes the audit log and returns its commands.
func (b *bench) recorded(dir string) []auditlog.Command {
	b.t.Helper()
	must(b.t, b.Audit.Close())
	data, err := os.ReadFile(filepath.Join(dir, auditlog.FileName(1)))
	must(b.t, err)
	v := auditlog.NewVerifier(auditlog.Expect{Sandbox: sandbox, First: 1})
	must(b.t, v.File(bytes.NewReader(data)))
	_, err = v.Report()
	must(b.t, err)
	var commands []auditlog.Command
	for text := range bytes.Lines(data) {
		var r auditlog.Record
		must(b.t, json.Unmarshal(text, &r))
		if r.Command != nil {
			commands = append(commands, *r.Command)
		}
	}
	return commands
}

// TestAudited: what ran is recorded once, what didn't is not, and nothing of an
// op's content is.
func TestAudited(t *testing.T) {
	b := newBench(t)
	dir := b.withAudit()
	c := b.command(`{"kind":"pty.create","command":"cat /secret/hunter2"}`)
	c.UserID, c.GrantID = "usr_1", "gr_1"
	token := b.sign(c)
	for range 3 {
		b.execute(token)
	}
	failing := b.command(`{"kind":"pty.close"}`)
	failing.Target.PTYID = "pty_none"
	b.execute(b.sign(failing))
	b.refuse(b.sign(b.command(`{"kind":"moon.land"}`)), "UnsupportedError")
	b.refuse(flip(token), "AuthError")
	got := b.recorded(dir)
	want := []auditlog.Command{
		{ID: c.CommandID, Trace: "tr_1", Op: "pty.create", Session: session, User: "usr_1", Grant: "gr_1", Status: protocol.StatusOK},
		{ID: failing.CommandID, Trace: "tr_1", Op: "pty.close", Session: session, PTY: "pty_none", Status: protocol.StatusError, Error: "TargetError"},
	}
	if fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("recorded %+v", got)
	}
}

// TestAuditFails: nothing runs that can't be recorded, and its record in the
// ledger isn't made either, so that it may run later.
func TestAuditFails(t *testing.T) {
	b := newBench(t)
	b.withAudit()
	must(t, b.Audit.Close())
	token := b.sign(b.command(`{"kind":"pty.create"}`))
	b.refuse(token, "InternalError")
	b.withAudit()
	if c, _ := b.execute(token); c.Status != protocol.StatusOK {
		t.Errorf("%+v", c.Error)
	}
}

// TestLostAudited: a command whose outcome a crash took is in the audit log,
// once.
func TestLostAudited(t *testing.T) {
	b := newBench(t)
	_, err := b.Ledger.Begin("cmd_lost", digestOf("x.y.z"), start.Add(time.Minute))
	must(t, err)
	dir := b.withAudit()
	for range 3 {
		b.open()
		must(t, b.NoteLost(t.Context()))
	}
	if got := b.recorded(dir); len(got) != 1 || got[0] != (auditlog.Command{ID: "cmd_lost", Status: protocol.StatusUnknown}) {
		t.Errorf("recorded %+v", got)
	}
}

// TestForgotten: what came too late ran at no time that the ledger remembers, and
// later than that nobody can say so.
func TestForgotten(t *testing.T) {
	b := newBench(t)
	ran := b.sign(b.command(`{"kind":"session.create"}`))
	never := b.sign(b.command(`{"kind":"session.create"}`))
	b.execute(ran)
	b.advance(30*time.Second + ledger.Retention)
	if c, result := b.execute(never); errorName(c) != "ExpiredError" || c.Telemetry.Attempt != 0 {
		t.Errorf("%s", result.Callback)
	}
	b.advance(time.Millisecond)
	must(t, b.Ledger.Close())
	b.open() // which forgets
	for _, token := range []string{ran, never} {
		if c, result := b.execute(token); errorName(c) != "ExpiredError" || c.Telemetry.Attempt != 1 {
			t.Errorf("%s", result.Callback)
		}
	}
}

// TestFound25ClockCorrected: the clock jumps an hour ahead, the agent starts
// again, the clock is corrected. What ran before is still valid by it, and
// doesn't run again, nor does what the ledger can't tell from it; what is signed
// then does.
func TestFound25ClockCorrected(t *testing.T) {
	b := newBench(t)
	ran := b.sign(b.command(`{"kind":"session.create"}`))
	never := b.sign(b.command(`{"kind":"session.create"}`))
	if c, result := b.execute(ran); c.Status != protocol.StatusOK {
		t.Fatalf("%s", result.Callback)
	}
	b.advance(time.Hour)
	must(t, b.Ledger.Close())
	b.open()
	b.advance(-time.Hour)
	for range 2 {
		for _, token := range []string{ran, never} {
			b.refuse(token, "ExpiredError")
			if c, result := b.execute(token); c.Telemetry.Attempt != 1 {
				t.Errorf("it can't be said that it never ran: %s", result.Callback)
			}
		}
		must(t, b.Ledger.Close())
		b.open()
	}
	b.advance(time.Millisecond)
	if c, result := b.execute(b.sign(b.command(`{"kind":"session.create"}`))); c.Status != protocol.StatusOK {
		t.Errorf("refused with a clock that is right: %s", result.Callback)
	}
}
