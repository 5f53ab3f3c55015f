package executor

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/protocol/envseal"
	"github.com/fairlead/fairlead/protocol/jws"
	"github.com/fairlead/fairlead/protocol/op"
	"github.com/fairlead/fairlead/sandbox-agent/internal/approval"
	"github.com/fairlead/fairlead/sandbox-agent/internal/audit"
	"github.com/fairlead/fairlead/sandbox-agent/internal/egress"
	"github.com/fairlead/fairlead/sandbox-agent/internal/feature"
	"github.com/fairlead/fairlead/sandbox-agent/internal/hostname"
)

// fakeServices are services of a sandbox that note what is asked of them.
type fakeServices struct {
	*fakeTerminals
	err      error             // of what makes rules and sets variables
	standing protocol.Approval // what Decide returns unless it is zero; then what was asked for
	port     int               // of the approval
}

func (f *fakeServices) ApplyEnv(_ context.Context, s protocol.SessionID, pty protocol.PTYID, values protocol.EnvValues, unset []string, now bool) error {
	f.note("env", string(s), string(pty), fmt.Sprint(len(values.Set), len(values.Secrets), len(values.ApprovedDomains), unset, now))
	return f.err
}

// chats are the operations on conversations.
func (f *fakeServices) chats() feature.Operations {
	return feature.Operations{
		op.KindChatCreate: feature.Do(func(_ context.Context, c *jws.Command, body *op.ChatCreate) (protocol.OpResult, error) {
			f.note("chat", body.Provider)
			return feature.Done(c), f.err
		}),
		op.KindChatSend: feature.Do(func(_ context.Context, c *jws.Command, body *op.ChatSend) (protocol.OpResult, error) {
			f.note("send", body.Message.Content)
			return feature.Done(c), f.err
		}),
		op.KindChatAbort: feature.Do(func(_ context.Context, c *jws.Command, body *op.ChatAbort) (protocol.OpResult, error) {
			f.note("abort", string(body.Conversation))
			return feature.Done(c), f.err
		}),
	}
}

// noted are operations that are noted alone.
func (f *fakeServices) noted() feature.Operations {
	all := feature.Operations{}
	for _, kind := range []string{
		op.KindSidebarSend, op.KindSidebarStop, op.KindSidebarClear, op.KindSidebarDismiss, op.KindSidebarSwitch, op.KindSidebarNew, op.KindPanelTab,
		op.KindSyncPair, op.KindSyncAccept, op.KindSyncUnpair, op.KindSyncPolicy,
	} {
		all[kind] = feature.Do(func(_ context.Context, c *jws.Command, body op.Body) (protocol.OpResult, error) {
			f.note(kind, string(c.Target.SessionID))
			return feature.Done(c), f.err
		})
	}
	return all
}

type fakeBroker struct{ *fakeServices }

func (f fakeBroker) Decide(s protocol.SessionID, secret, domain string, d protocol.Decision) error {
	f.note("domain", string(s), secret, domain, string(d))
	return f.err
}

type fakeApprovals struct{ *fakeServices }

func (f fakeApprovals) Decide(a protocol.Approval) (protocol.Approval, bool, error) {
	f.note("decide", string(a.SessionID), a.ID, fmt.Sprint(a.Revision), string(a.Kind), string(a.Decision), string(a.UserID), string(a.GrantID))
	if a.ID == "apr_none" {
		return protocol.Approval{}, false, protocol.Errorf(protocol.KindNotFound, "no such approval")
	}
	if f.standing.ID != "" {
		return f.standing, false, nil
	}
	a.Revision++
	a.State, a.Host, a.Port = protocol.ApprovalDecided, "a.example", f.port
	if a.Kind == protocol.ApprovalBroker {
		a.Secret = "TOKEN"
	}
	return a, true, nil
}

func (f fakeApprovals) DecideTool(a protocol.Approval, with approval.Reply) (protocol.Approval, bool, error) {
	f.note("tool", a.Remember, string(with.UpdatedInput), with.Message)
	return f.Decide(a)
}

func (f fakeApprovals) List(protocol.SessionID) protocol.ApprovalList { return protocol.ApprovalList{} }

type fakeEgress struct{ *fakeServices }

func (f fakeEgress) Verdict(protocol.SessionID, hostname.Host) (allowed, known bool) {
	return false, false
}

func (f fakeEgress) SetEnabled(s protocol.SessionID, on *bool) error {
	f.note("egress", string(s), fmt.Sprint(*on))
	return f.err
}

func (f fakeEgress) Decide(s protocol.SessionID, pattern string, d protocol.Decision) error {
	f.note("rule", string(s), pattern, string(d))
	return f.err
}

func (f fakeEgress) Revoke(s protocol.SessionID, pattern string) error {
	f.note("no rule", string(s), pattern)
	return f.err
}

// openFake opens a box that is no box.
func openFake(box []byte) (values protocol.EnvValues, err error) {
	return values, json.Unmarshal(box, &values)
}

// envApply is an env.apply in a box that openFake opens.
func envApply(c op.EnvSealed, values protocol.EnvValues) string {
	var err error
	if c.Sealed, err = json.Marshal(values); err != nil {
		panic(err)
	}
	return envOp(c)
}

func envOp(c op.EnvSealed) string {
	raw, err := json.Marshal(op.Op{Kind: op.KindEnvApply, Body: &c})
	if err != nil {
		panic(err)
	}
	return string(raw)
}

// decideAs runs op as a user's command and returns the callback and what was called.
func (b *bench) decideAs(op string) (protocol.ExecutionCallback, string) {
	b.t.Helper()
	before := len(b.terminals.called())
	c := b.command(op)
	c.UserID, c.GrantID = "usr_1", "gr_1"
	callback, _ := b.execute(b.sign(c))
	return callback, strings.Join(b.terminals.called()[before:], ", ")
}

func TestDecisions(t *testing.T) {
	b := newBench(t)
	for _, tt := range []struct{ op, calls, failure string }{
		{`{"kind":"egress.decide","approvalId":"apr_1","revision":1,"decision":"allow_once"}`, "decide ses_1 apr_1 1 egress allow_once usr_1 gr_1", ""},
		{`{"kind":"egress.decide","approvalId":"apr_1","revision":1,"decision":"deny"}`, "decide ses_1 apr_1 1 egress deny usr_1 gr_1", ""},
		{`{"kind":"egress.decide","approvalId":"apr_1","revision":1,"decision":"allow_always"}`,
			"decide ses_1 apr_1 1 egress allow_always usr_1 gr_1, rule ses_1 a.example allow_always", ""},
		{`{"kind":"egress.decide","approvalId":"apr_1","revision":3,"decision":"deny_always"}`,
			"decide ses_1 apr_1 3 egress deny_always usr_1 gr_1, rule ses_1 a.example deny_always", ""},
		{`{"kind":"egress.decide","approvalId":"apr_none","revision":1,"decision":"allow_always"}`, "decide ses_1 apr_none 1 egress allow_always usr_1 gr_1", "TargetError"},
		{`{"kind":"egress.decide","pattern":"*.example.com","decision":"allow_always"}`, "rule ses_1 *.example.com allow_always", ""},
		{`{"kind":"egress.revoke","pattern":"*.example.com"}`, "no rule ses_1 *.example.com", ""},
		{`{"kind":"broker.decide","approvalId":"apr_1","revision":1,"decision":"allow_always"}`,
			"decide ses_1 apr_1 1 broker allow_always usr_1 gr_1, domain ses_1 TOKEN a.example allow_always", ""},
		{`{"kind":"broker.decide","approvalId":"apr_1","revision":1,"decision":"deny"}`, "decide ses_1 apr_1 1 broker deny usr_1 gr_1, domain ses_1 TOKEN a.example deny", ""},
		{`{"kind":"broker.decide","approvalId":"apr_1","revision":1,"decision":"allow_once"}`,
			"decide ses_1 apr_1 1 broker allow_once usr_1 gr_1, domain ses_1 TOKEN a.example allow_once", ""},
		{`{"kind":"broker.decide","secret":"TOKEN","domain":"a.example","decision":"deny_always"}`, "domain ses_1 TOKEN a.example deny_always", ""},
		{`{"kind":"tool.decide","approval":"apr_1","revision":1,"decision":"allow_once","updatedInput":{"a":1},"remember":"Bash(ls:*)"}`,
			`tool Bash(ls:*) {"a":1} , decide ses_1 apr_1 1 tool allow_once usr_1 gr_1`, ""},
		{`{"kind":"tool.decide","approval":"apr_1","revision":2,"decision":"deny","message":"no"}`,
			"tool   no, decide ses_1 apr_1 2 tool deny usr_1 gr_1", ""},
		{`{"kind":"tool.decide","approval":"apr_1","revision":1,"decision":"allow_always"}`,
			"tool   , decide ses_1 apr_1 1 tool allow_always usr_1 gr_1", ""},
		{`{"kind":"tool.decide","approval":"apr_none","revision":1,"decision":"deny"}`,
			"tool   , decide ses_1 apr_none 1 tool deny usr_1 gr_1", "TargetError"},

		{`{"kind":"tool.decide","approval":"apr_1","decision":"deny"}`, "", "RequestError"},
		{`{"kind":"tool.decide","approval":"apr_1","revision":1,"decision":"deny_always"}`, "", "RequestError"},
		{`{"kind":"tool.decide","approval":"apr_1","revision":1,"decision":"deny","remember":"Bash"}`, "", "RequestError"},
		{`{"kind":"tool.decide","approval":"apr_1","revision":1,"decision":"allow_once","message":"why"}`, "", "RequestError"},
		{`{"kind":"egress.decide","decision":"allow_once"}`, "", "RequestError"},
		{`{"kind":"egress.decide","approvalId":"apr_1","decision":"allow_once"}`, "", "RequestError"},
		{`{"kind":"egress.decide","approvalId":"a b","revision":1,"decision":"allow_once"}`, "", "RequestError"},
		{`{"kind":"egress.decide","approvalId":"apr_1","revision":1,"decision":"maybe"}`, "", "RequestError"},
		{`{"kind":"egress.decide","approvalId":"apr_1","revision":1,"pattern":"a.example","decision":"allow_always"}`, "", "RequestError"},
		{`{"kind":"egress.decide","pattern":"a.example","decision":"allow_once"}`, "", "RequestError"},
		{`{"kind":"egress.revoke","pattern":""}`, "", "RequestError"},
		{`{"kind":"broker.decide","secret":"TOKEN","decision":"allow_always"}`, "", "RequestError"},
		{`{"kind":"broker.decide","domain":"a.example","decision":"allow_always"}`, "", "RequestError"},
		{`{"kind":"broker.decide","secret":"a b","domain":"a.example","decision":"allow_always"}`, "", "RequestError"},
		{`{"kind":"broker.decide","approvalId":"apr_1","revision":1,"secret":"TOKEN","decision":"allow_always"}`, "", "RequestError"},
	} {
		b.services.port = 443
		c, calls := b.decideAs(tt.op)
		if calls != tt.calls || errorName(c) != tt.failure {
			t.Errorf("%s: called %q, %+v", tt.op, calls, c.Error)
		}
		var result protocol.OpResult
		if tt.failure != "" || !strings.Contains(tt.op, "\"approval") {
			continue
		}
		must(t, json.Unmarshal(c.Result, &result))
		if a := result.Approval; !result.Applied || a == nil || a.ID != "apr_1" || a.State != protocol.ApprovalDecided || a.CommandID != c.CommandID {
			t.Errorf("%s: %s", tt.op, c.Result)
		}
	}
}

// TestStandingDecision: whoever comes later hears what stands, and makes no rule.
func TestStandingDecision(t *testing.T) {
	b := newBench(t)
	b.services.standing = protocol.Approval{ID: "apr_1", Revision: 2, State: protocol.ApprovalDecided, Decision: protocol.AllowAlways, Host: "a.example"}
	c, calls := b.decideAs(`{"kind":"egress.decide","approvalId":"apr_1","revision":1,"decision":"deny_always"}`)
	var result protocol.OpResult
	must(t, json.Unmarshal(c.Result, &result))
	if strings.Contains(calls, "rule") || result.Applied || !reflect.DeepEqual(*result.Approval, b.services.standing) {
		t.Errorf("called %q: %s", calls, c.Result)
	}
}

// TestRuleFails: the result says that the decision has no rule, and nothing of
// a fault's cause.
func TestRuleFails(t *testing.T) {
	b := newBench(t)
	for err, want := range map[error]protocol.ErrorBody{
		protocol.Errorf(protocol.KindTooMany, "the session has 500 rules"): {
			Message: "it was decided, but no rule was made: the session has 500 rules", Name: "LimitError"},
		errors.New("open /secret/path"): {Message: "it was decided, but no rule was made: internal error", Name: "InternalError"},
	} {
		b.services.err = err
		for _, kind := range []string{"egress", "broker"} {
			c, _ := b.decideAs(`{"kind":"` + kind + `.decide","approvalId":"apr_1","revision":1,"decision":"allow_always"}`)
			if c.Error == nil || *c.Error != want {
				t.Errorf("%+v, want %+v", c.Error, want)
			}
		}
	}
}

// TestDecisionOvertakes: a decision doesn't wait for a terminal that is slow to
// start, nor for what waits for that.
func TestDecisionOvertakes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) { // where no slot is given up because the machine is slow
		b := newBench(t)
		held, release := make(chan struct{}), make(chan struct{})
		b.terminals.create = func(context.Context) error {
			close(held)
			<-release
			return nil
		}
		create := b.command(`{"kind":"pty.create"}`)
		create.Target.PTYID = "pty_1"
		var slow sync.WaitGroup
		slow.Go(func() { b.Execute(t.Context(), b.sign(create)) })
		<-held
		for _, op := range []string{
			`{"kind":"session.create","egress":true}`, envApply(op.EnvSealed{Names: []string{"A"}}, protocol.EnvValues{Set: map[string]string{"A": ""}}),
		} {
			arrival := b.Arrive()
			slow.Go(func() { arrival.Execute(t.Context(), b.sign(b.command(op))) })
		}
		decision := b.command(`{"kind":"egress.decide","approvalId":"apr_1","revision":1,"decision":"allow_once"}`)
		decision.Target.PTYID = "pty_1"
		if c, _ := b.execute(b.sign(decision)); c.Status != protocol.StatusOK {
			t.Errorf("%+v", c.Error)
		}
		if calls := b.terminals.called(); len(calls) != 2 {
			t.Errorf("ran %q", calls)
		}
		close(release)
		slow.Wait()
		if calls := b.terminals.called(); len(calls) != 4 || calls[2] != "egress ses_1 true" {
			t.Errorf("ran %q", calls)
		}
	})
}

func TestEnvApply(t *testing.T) {
	b := newBench(t)
	values := protocol.EnvValues{
		Set: map[string]string{"A": "1"}, Secrets: map[string]protocol.EnvSecret{"TOKEN": {Value: "abcdefgh"}},
		ApprovedDomains: []protocol.ApprovedDomain{{Secret: "TOKEN", Domain: "a.example"}},
	}
	names := []string{"TOKEN", "A"}
	for _, tt := range []struct {
		what    string
		pty     protocol.PTYID
		command op.EnvSealed
		values  protocol.EnvValues
		failure string
	}{
		{"session", "", op.EnvSealed{Names: names, Unset: []string{"B"}, ApplyNow: true}, values, ""},
		{"terminal", "pty_1", op.EnvSealed{Names: names}, values, ""},
		{"unset alone", "", op.EnvSealed{Unset: []string{"B"}}, protocol.EnvValues{}, ""},
		{"nothing", "", op.EnvSealed{}, protocol.EnvValues{}, "RequestError"},
		{"fewer names", "", op.EnvSealed{Names: names[:1]}, values, "RequestError"},
		{"more names", "", op.EnvSealed{Names: append([]string{"C"}, names...)}, values, "RequestError"},
		{"a name twice", "", op.EnvSealed{Names: []string{"A", "A", "TOKEN"}}, values, "RequestError"},
		{"another name", "", op.EnvSealed{Names: []string{"C", "A"}}, values, "RequestError"},
		{"set and unset", "", op.EnvSealed{Names: names, Unset: []string{"A"}}, values, "RequestError"},
		{"bad unset", "", op.EnvSealed{Unset: []string{"PATH"}}, protocol.EnvValues{}, "RequestError"},
		{"bad name", "", op.EnvSealed{Names: []string{"LD_PRELOAD"}}, protocol.EnvValues{Set: map[string]string{"LD_PRELOAD": "x"}}, "RequestError"},
		{"short secret", "", op.EnvSealed{Names: []string{"S"}}, protocol.EnvValues{Secrets: map[string]protocol.EnvSecret{"S": {Value: "abcdefg"}}}, "RequestError"},
	} {
		before := len(b.terminals.called())
		c := b.command(envApply(tt.command, tt.values))
		c.Target.PTYID = tt.pty
		callback, _ := b.execute(b.sign(c))
		want := 1
		if tt.failure != "" {
			want = 0
		}
		if errorName(callback) != tt.failure || len(b.terminals.called())-before != want {
			t.Errorf("%s: %+v", tt.what, callback.Error)
		}
	}
	if calls := b.terminals.called(); calls[0] != "env ses_1  1 1 1 [B] true" || calls[1] != "env ses_1 pty_1 1 1 1 [] false" {
		t.Errorf("called %q", calls)
	}
	b.openEnv = func([]byte) (protocol.EnvValues, error) { return protocol.EnvValues{}, errors.New("another key") }
	b.refuse(b.sign(b.command(envApply(op.EnvSealed{Names: names}, values))), "RequestError")
}

// TestNoService: what nobody in a sandbox carries out is unsupported.
func TestNoService(t *testing.T) {
	b := newBench(t)
	b.Operations = egress.Operations(fakeEgress{b.services})
	for _, kind := range []string{op.KindEnvApply, op.KindEgressDecide, op.KindEgressRevoke, op.KindBrokerDecide} {
		b.refuse(b.sign(b.command(wholeOps[kind])), "UnsupportedError")
	}
	if c, _ := b.execute(b.sign(b.command(`{"kind":"session.create"}`))); c.Status != protocol.StatusOK {
		t.Errorf("%+v", c.Error)
	}
}

// TestCanary: the values of an env.apply, really sealed, are in no log, file,
// outcome or error, whether it succeeds or fails in whatever way.
func TestCanary(t *testing.T) {
	b := newBench(t)
	device, err := jws.GenerateDeviceKey()
	must(t, err)
	private, err := device.ECDH()
	must(t, err)
	var logged bytes.Buffer
	b.Log = slog.New(slog.NewTextHandler(&logged, &slog.HandlerOptions{Level: slog.LevelDebug}))
	b.Device = device
	b.openEnv = func(box []byte) (protocol.EnvValues, error) {
		return envseal.Open[protocol.EnvValues](private, envseal.Env, sandbox, box)
	}
	dir := t.TempDir()
	b.Audit, err = audit.Open(audit.Options{Dir: filepath.Join(dir, "audit"), Sandbox: sandbox, Device: device, Now: b.clock, Logger: b.Log})
	must(t, err)
	plain, secret, domain := canary(), canary(), canary()
	var seen bytes.Buffer
	run := func(values protocol.EnvValues, names []string, want string) {
		t.Helper()
		c := op.EnvSealed{Names: names}
		c.Sealed, err = envseal.Seal(private.PublicKey(), envseal.Env, sandbox, values)
		must(t, err)
		callback, result := b.execute(b.sign(b.command(envOp(c))))
		seen.Write(result.Callback)
		if errorName(callback) != want {
			t.Errorf("%s, want %q", result.Callback, want)
		}
	}
	good := protocol.EnvValues{
		Set: map[string]string{"A": plain}, Secrets: map[string]protocol.EnvSecret{"B": {Value: secret}},
		ApprovedDomains: []protocol.ApprovedDomain{{Secret: "B", Domain: "a.example"}},
	}
	run(good, []string{"A", "B"}, "")
	for _, fault := range []error{
		errors.New("exec: " + secret), fmt.Errorf("env: %w", protocol.Errorf(protocol.KindInvalid, "A=%s", plain)),
		protocol.Fault(protocol.KindUnavailable, errors.New("B="+secret)), protocol.Errorf(protocol.KindNotFound, "no such terminal"),
	} {
		b.services.err = fault
		run(good, []string{"A", "B"}, protocol.KindOf(fault).Name())
	}
	run(good, []string{"A"}, "RequestError")
	run(protocol.EnvValues{Set: map[string]string{"A": plain + "\x00"}}, []string{"A"}, "RequestError")
	run(protocol.EnvValues{Secrets: map[string]protocol.EnvSecret{"B": {Value: secret[:7]}}}, []string{"B"}, "RequestError")
	run(protocol.EnvValues{Set: map[string]string{"A": plain}, ApprovedDomains: []protocol.ApprovedDomain{{Secret: "A", Domain: "x", HeaderFormat: domain}}}, []string{"A"}, "RequestError")
	must(t, b.Audit.Close())
	files := 0
	for _, root := range []string{dir, b.dir} {
		must(t, filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
			if err != nil || entry.IsDir() {
				return err
			}
			data, err := os.ReadFile(path)
			seen.Write(data)
			files++
			return err
		}))
	}
	seen.Write(logged.Bytes())
	if files < 2 || logged.Len() == 0 {
		t.Fatalf("%d files, %d bytes logged", files, logged.Len())
	}
	for _, value := range []string{plain, secret, domain, secret[:7]} {
		for _, form := range []string{value, base64.StdEncoding.EncodeToString([]byte(value))[:len(value)], hex.EncodeToString([]byte(value))} {
			if strings.Contains(seen.String(), form) {
				t.Errorf("%q stands in\n%s", form, seen.String())
			}
		}
	}
}

// canary returns a value that stands nowhere else.
func canary() string { return "canary" + rand.Text() }
