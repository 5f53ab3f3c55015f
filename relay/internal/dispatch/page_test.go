package dispatch

import (
	"context"
	"encoding/json"
	"log/slog"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/fairlead/fairlead/deploy/program/lifetime"
	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/protocol/jws"
	"github.com/fairlead/fairlead/relay/internal/pagestream"
	"github.com/fairlead/fairlead/relay/internal/relaytest"
)

// forPage makes a command for the tab 7 of the tests' user.
func forPage(c *jws.Command) {
	c.Audience, c.UserID = jws.AudienceExtension, relaytest.User
	c.Target = protocol.CommandTarget{ExtensionID: "extension", TabID: 7}
	c.Op = json.RawMessage(`{"kind":"cdp.send","method":"Runtime.evaluate","params":{"expression":"1+1"}}`)
	c.Reply = &jws.Reply{URL: "https://relay.example/control/callback", CallbackToken: "ct_secret"}
}

// pageWorld is a dispatcher without sandboxes.
func pageWorld(t *testing.T) *world {
	t.Helper()
	w := &world{t: t, authority: relaytest.NewAuthority(t), tunnels: &relaytest.Tunnels{}}
	w.revoked = jws.NewRevocationSet()
	w.pages = pagestream.New(lifetime.New(lifetime.Options{Revoked: w.revoked}), prometheus.NewRegistry())
	w.dispatcher = New(Options{
		Keys: w.authority.Keys, Tunnels: w.tunnels, Pages: w.pages, Revoked: w.revoked, Log: slog.New(slog.DiscardHandler),
	})
	return w
}

// answerTo is the callback of a command, with result in it.
func answerTo(id protocol.CommandID, token, result string) Answer {
	callback := protocol.ExecutionCallback{
		Type: protocol.CallbackType, CommandID: id, Status: protocol.StatusOK, Result: json.RawMessage(result),
	}
	body, err := json.Marshal(callback)
	if err != nil {
		panic(err)
	}
	return Answer{Token: token, Body: body, Callback: callback, Signature: []byte("signature")}
}

// seen returns what a page of the tests' user that connects now is sent.
func (w *world) seen() string {
	grant, _ := w.authority.Grant(func(g *jws.Grant) { g.Caps = append(g.Caps, protocol.CapMCP) })
	ctx, cancel := context.WithCancel(w.t.Context())
	cancel()
	answer := httptest.NewRecorder()
	if err := w.pages.Serve(deadlines{answer}, httptest.NewRequest("GET", "/", nil).WithContext(ctx), pagestream.Page{Grant: grant}); err != nil {
		w.t.Error(err)
	}
	return answer.Body.String()
}

// deadlines is a recorder that takes deadlines, as a connection does.
type deadlines struct{ *httptest.ResponseRecorder }

func (deadlines) SetWriteDeadline(time.Time) error { return nil }

func TestACommandToAPage(t *testing.T) {
	w := pageWorld(t)
	defer w.dispatcher.Close()
	env := w.authority.Command(forPage)
	record, err := w.dispatcher.Submit(t.Context(), env)
	if err != nil {
		t.Fatal(err)
	}
	if s := w.seen(); !strings.Contains(s, string(env.CommandID)) || !strings.Contains(s, env.JWS) {
		t.Errorf("a page that connects later gets %q", s)
	}
	for _, wrong := range []string{"", "ct_secre", "ct_secret2", "ct_other"} {
		if known, err := w.dispatcher.Answer(answerTo(env.CommandID, wrong, "1")); !known || protocol.KindOf(err) != protocol.KindUnauthenticated {
			t.Errorf("token %q: %v, %v", wrong, known, err)
		}
	}
	if known, err := w.dispatcher.Answer(answerTo("cmd_elsewhere", "ct_secret", "1")); known || err != nil {
		t.Errorf("unknown command: %v, %v", known, err)
	}
	crossed := answerTo(env.CommandID, "ct_secret", "1")
	crossed.Callback.TraceID = "tr_other"
	if _, err := w.dispatcher.Answer(crossed); protocol.KindOf(err) != protocol.KindInvalid || err == nil {
		t.Errorf("another trace: %v", err)
	}
	if record.over() {
		t.Fatal("a refused callback ended the command")
	}
	for _, result := range []string{"2", "3"} { // the second is a repetition
		if known, err := w.dispatcher.Answer(answerTo(env.CommandID, "ct_secret", result)); !known || err != nil {
			t.Fatalf("%v, %v", known, err)
		}
	}
	callback, _, err := record.Wait(t.Context())
	if err != nil || string(callback.Result) != "2" || string(record.Result.Signature) != "signature" {
		t.Errorf("%+v, %v", callback, err)
	}
	again, err := w.dispatcher.Submit(t.Context(), env)
	if err != nil || again != record {
		t.Errorf("the same command again: %v", err)
	}
	w.dispatcher.Close() // its withdrawal is waited for
	if s := w.seen(); strings.Contains(s, "event") {
		t.Errorf("what is answered is still sent: %q", s)
	}
}

func TestNobodyAnswers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := pageWorld(t)
		defer w.dispatcher.Close()
		env := w.authority.Command(forPage)
		record, err := w.dispatcher.Submit(t.Context(), env)
		if err != nil {
			t.Fatal(err)
		}
		began := time.Now()
		_, _, err = record.Wait(t.Context())
		if took := time.Since(began); protocol.KindOf(err) != protocol.KindExpired || took != 30*time.Second {
			t.Errorf("after %s: %v", took, err)
		}
		if known, err := w.dispatcher.Answer(answerTo(env.CommandID, "ct_secret", "2")); !known || err != nil || record.Err == nil {
			t.Errorf("a late callback: %v, %v; then %v", known, err, record.Err)
		}
		w.refuses(env, protocol.KindExpired) // though within the skew
		time.Sleep(2 * protocol.ClockSkew)
		w.refuses(env, protocol.KindExpired)
		synctest.Wait()
		if s := w.seen(); strings.Contains(s, "event") {
			t.Errorf("what has expired is still sent: %q", s)
		}
	})
}

func TestAnAnswerOutlivesTheCommand(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := pageWorld(t)
		defer w.dispatcher.Close()
		env := w.authority.Command(forPage)
		if _, err := w.dispatcher.Submit(t.Context(), env); err != nil {
			t.Fatal(err)
		}
		if _, err := w.dispatcher.Answer(answerTo(env.CommandID, "ct_secret", "2")); err != nil {
			t.Fatal(err)
		}
		time.Sleep(10 * time.Minute)
		if callback, err := w.submit(env); err != nil || string(callback.Result) != "2" {
			t.Errorf("%+v, %v", callback, err)
		}
	})
}

func TestPageCommandsThatCannotBe(t *testing.T) {
	w := pageWorld(t)
	defer w.dispatcher.Close()
	for name, c := range map[string]struct {
		change func(*jws.Command)
		want   protocol.Kind
	}{
		"no user":    {func(c *jws.Command) { c.UserID = "" }, protocol.KindInvalid},
		"no reply":   {func(c *jws.Command) { c.Reply = nil }, protocol.KindInvalid},
		"no token":   {func(c *jws.Command) { c.Reply.CallbackToken = "" }, protocol.KindInvalid},
		"unknown op": {func(c *jws.Command) { c.Op = json.RawMessage(`{"kind":"cdp.other"}`) }, protocol.KindUnsupported},
		"expired":    {func(c *jws.Command) { c.IssuedAt -= 10 * 60_000 }, protocol.KindExpired},
	} {
		t.Run(name, func(t *testing.T) {
			w.refuses(w.authority.Command(func(cmd *jws.Command) {
				forPage(cmd)
				c.change(cmd)
			}), c.want)
		})
	}
	for name, change := range map[string]func(*protocol.CommandEnvelope){
		"tab":       func(e *protocol.CommandEnvelope) { e.Target.TabID = 8 },
		"extension": func(e *protocol.CommandEnvelope) { e.Target.ExtensionID = "other" },
		"sandbox":   func(e *protocol.CommandEnvelope) { e.Target.SandboxID = relaytest.Sandbox },
	} {
		t.Run("another "+name, func(t *testing.T) {
			env := w.authority.Command(forPage)
			change(&env)
			w.refuses(env, protocol.KindUnauthenticated)
		})
	}
	// Seed 003 signs the tab alone.
	env := w.authority.Command(func(c *jws.Command) {
		forPage(c)
		c.Target.ExtensionID = ""
	})
	env.Target.ExtensionID = "extension"
	if _, err := w.dispatcher.Submit(t.Context(), env); err != nil {
		t.Errorf("an extension that is not signed: %v", err)
	}
}

// What waits for one user is bounded, and nothing of it stays.
func TestPageCommandsAreBounded(t *testing.T) {
	w := pageWorld(t)
	defer w.dispatcher.Close()
	for range protocol.MaxCommandsInFlight {
		if _, err := w.dispatcher.Submit(t.Context(), w.authority.Command(forPage)); err != nil {
			t.Fatal(err)
		}
	}
	w.refuses(w.authority.Command(forPage), protocol.KindTooMany)
}

func TestParallelPostsToAPage(t *testing.T) {
	w := pageWorld(t)
	defer w.dispatcher.Close()
	env := w.authority.Command(forPage)
	var submitting, submitted sync.WaitGroup
	for range 100 {
		submitted.Add(1)
		submitting.Go(func() {
			record, err := w.dispatcher.Submit(t.Context(), env)
			submitted.Done()
			if err != nil {
				t.Error(err)
				return
			}
			if callback, _, err := record.Wait(t.Context()); err != nil || string(callback.Result) != "2" {
				t.Errorf("%+v, %v", callback, err)
			}
		})
	}
	submitted.Wait()
	if n := strings.Count(w.seen(), "event: command"); n != 1 {
		t.Errorf("sent %d times", n)
	}
	if _, err := w.dispatcher.Answer(answerTo(env.CommandID, "ct_secret", "2")); err != nil {
		t.Error(err)
	}
	submitting.Wait()
}

// A sandbox's command ends with its RESULT, not with what somebody posts who
// has seen its callback token.
func TestACallbackDoesNotEndASandboxsCommand(t *testing.T) {
	answer, release := hang()
	w := newWorld(t, answer)
	defer release()
	env := w.authority.Command(func(c *jws.Command) {
		c.Reply = &jws.Reply{URL: "https://relay.example/control/callback", CallbackToken: "ct_secret"}
	})
	record, err := w.dispatcher.Submit(t.Context(), env)
	if err != nil {
		t.Fatal(err)
	}
	if known, err := w.dispatcher.Answer(answerTo(env.CommandID, "ct_secret", "2")); !known || err != nil || record.over() {
		t.Errorf("%v, %v, over: %v", known, err, record.over())
	}
	if _, err := w.dispatcher.Answer(answerTo(env.CommandID, "ct_x", "2")); protocol.KindOf(err) != protocol.KindUnauthenticated {
		t.Error(err)
	}
}

// A relay learns from the commands that it carries which grants are void.
func TestRevocationsInPassing(t *testing.T) {
	w := newWorld(t, succeed)
	grant, _ := w.authority.Grant(nil)
	revoke := func(c *jws.Command) {
		c.Op = json.RawMessage(`{"kind":"grant.revoke","grants":["` + string(grant.ID) + `"]}`)
	}
	w.refuses(relaytest.NewAuthority(t).Command(revoke), protocol.KindUnauthenticated)
	if w.revoked.Grant(grant) {
		t.Fatal("revoked by a forged command")
	}
	if _, err := w.submit(w.authority.Command(revoke)); err != nil || !w.revoked.Grant(grant) {
		t.Errorf("not revoked; %v", err)
	}
}
