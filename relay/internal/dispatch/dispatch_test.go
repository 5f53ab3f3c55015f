package dispatch

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/goleak"

	"github.com/fairlead/fairlead/deploy/program/lifetime"
	"github.com/fairlead/fairlead/deploy/program/telemetry"
	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/protocol/jws"
	"github.com/fairlead/fairlead/relay/internal/pagestream"
	"github.com/fairlead/fairlead/relay/internal/relaytest"
	"github.com/fairlead/fairlead/tunnel"
	"github.com/fairlead/fairlead/tunnel/tunneltest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(relaytest.Patient(m)) }

// A world is a dispatcher and a sandbox that runs commands.
type world struct {
	t          *testing.T
	authority  *relaytest.Authority
	tunnels    *relaytest.Tunnels
	revoked    *jws.RevocationSet
	pages      *pagestream.Pages
	dispatcher *Dispatcher
	agent      *tunnel.Session
	runs       atomic.Int32
}

// A call is a command as it reaches the sandbox.
type call struct {
	agent *tunnel.Session
	token string
	trace string // beside it
}

// newWorld makes a sandbox that answers each command with answer.
func newWorld(t *testing.T, answer func(w *world, c call) (protocol.Result, error)) *world {
	t.Helper()
	w := &world{t: t, authority: relaytest.NewAuthority(t), tunnels: &relaytest.Tunnels{}, revoked: jws.NewRevocationSet()}
	w.pages = pagestream.New(lifetime.New(lifetime.Options{Revoked: w.revoked}), prometheus.NewRegistry())
	w.dispatcher = New(Options{
		Keys: w.authority.Keys, Tunnels: w.tunnels, Pages: w.pages, Revoked: w.revoked, Log: slog.New(slog.DiscardHandler),
	})
	w.dispatcher.patient = time.Minute
	w.connect(answer)
	t.Cleanup(w.dispatcher.Close)
	return w
}

// connect gives the sandbox a new tunnel.
func (w *world) connect(answer func(w *world, c call) (protocol.Result, error)) {
	agent, relay := tunneltest.Pair(w.t)
	w.agent = agent
	w.tunnels.Connect(relay)
	relaytest.Answer(w.t, agent, func(in *tunnel.Incoming) {
		stream, err := in.Accept(protocol.Opened{})
		if err != nil {
			return
		}
		defer stream.Close()
		w.runs.Add(1)
		if result, err := answer(w, call{agent, in.Open.Command, in.Open.Traceparent}); err == nil {
			protocol.Write(stream, result)
		}
	})
}

// succeed is an answer: the command's id comes back.
func succeed(w *world, call call) (protocol.Result, error) {
	c, err := w.authority.Keys.Command(context.Background(), call.token, jws.AudienceAgent)
	if err != nil {
		return protocol.Result{}, err
	}
	return relaytest.OK(c.CommandID, protocol.OpResult{Kind: c.Kind(), PTYID: "pty_new"}), nil
}

// hang is an answer that never comes: until the returned function is called.
func hang() (answer func(*world, call) (protocol.Result, error), release func()) {
	free := make(chan struct{})
	return func(w *world, c call) (protocol.Result, error) {
		select {
		case <-free:
		case <-c.agent.Done():
		}
		return succeed(w, c)
	}, sync.OnceFunc(func() { close(free) })
}

// submit sends env and waits for what became of it.
func (w *world) submit(env protocol.CommandEnvelope) (protocol.ExecutionCallback, error) {
	ctx, cancel := context.WithTimeout(w.t.Context(), time.Minute)
	defer cancel()
	record, err := w.dispatcher.Submit(ctx, env)
	if err != nil {
		return protocol.ExecutionCallback{}, err
	}
	callback, _, err := record.Wait(ctx)
	return callback, err
}

// refuses checks that env is turned down with kind.
func (w *world) refuses(env protocol.CommandEnvelope, kind protocol.Kind) {
	w.t.Helper()
	if _, err := w.submit(env); err == nil || protocol.KindOf(err) != kind {
		w.t.Errorf("Submit = %v, want %s", err, kind)
	}
}

func TestACommandAndItsResult(t *testing.T) {
	w := newWorld(t, succeed)
	env := w.authority.Command(nil)
	callback, err := w.submit(env)
	if err != nil || callback.CommandID != env.CommandID || callback.Status != protocol.StatusOK {
		t.Errorf("%+v, %v", callback, err)
	}
	record, ok := w.dispatcher.Lookup(env.CommandID)
	if !ok || record.Command.Target != env.Target {
		t.Errorf("Lookup = %+v, %v", record, ok)
	}
	if _, ok := w.dispatcher.Lookup("cmd_other"); ok {
		t.Error("Lookup of an unknown command")
	}
}

// TestTraceparentGoesAlong: to the sandbox, where it is one, and again when its
// tunnel was lost.
func TestTraceparentGoesAlong(t *testing.T) {
	const good = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
	seen := make(chan string, 4)
	note := func(w *world, c call) (protocol.Result, error) {
		seen <- c.trace
		return succeed(w, c)
	}
	w := newWorld(t, note)
	submit := func(traceparent string) {
		t.Helper()
		record, err := w.dispatcher.Submit(telemetry.Extract(t.Context(), traceparent), w.authority.Command(nil))
		if err != nil {
			t.Fatal(err)
		}
		<-record.Done
	}
	for text, want := range map[string]string{"": "", good: good, "00-x": ""} {
		submit(text)
		if got := <-seen; got != want {
			t.Errorf("of %q the sandbox sees %q", text, got)
		}
	}
	w.connect(func(_ *world, c call) (protocol.Result, error) {
		w.connect(note)
		return dies(w, c)
	})
	submit(good)
	if got := <-seen; got != good {
		t.Errorf("sent again with %q", got)
	}
}

func TestTheEnvelopeMustAgree(t *testing.T) {
	w := newWorld(t, succeed)
	for name, change := range map[string]func(*protocol.CommandEnvelope){
		"command id": func(e *protocol.CommandEnvelope) { e.CommandID = "cmd_x" },
		"trace id":   func(e *protocol.CommandEnvelope) { e.TraceID = "tr_x" },
		"sandbox":    func(e *protocol.CommandEnvelope) { e.Target.SandboxID = "sb_x" },
		"session":    func(e *protocol.CommandEnvelope) { e.Target.SessionID = "ses_x" },
		"terminal":   func(e *protocol.CommandEnvelope) { e.Target.PTYID = "pty_x" },
		"issued at":  func(e *protocol.CommandEnvelope) { e.IssuedAt++ },
		"ttl":        func(e *protocol.CommandEnvelope) { e.TTLMs++ },
		"signature":  func(e *protocol.CommandEnvelope) { e.JWS += "A" },
		"no token":   func(e *protocol.CommandEnvelope) { e.JWS = "" },
	} {
		t.Run(name, func(t *testing.T) {
			env := w.authority.Command(nil)
			change(&env)
			w.refuses(env, protocol.KindUnauthenticated)
		})
	}
	env := w.authority.Command(nil)
	env.Type = "control.callback"
	w.refuses(env, protocol.KindInvalid)
	w.refuses(w.authority.Command(func(c *jws.Command) { c.Audience = jws.AudienceExtension }), protocol.KindUnauthenticated)
	w.refuses(w.authority.Command(func(c *jws.Command) { c.Target.SandboxID = "" }), protocol.KindUnauthenticated)
	w.refuses(relaytest.NewAuthority(t).Command(nil), protocol.KindUnauthenticated)
	if w.runs.Load() != 0 {
		t.Error("something reached the sandbox")
	}
}

func TestDuplicatesRunOnce(t *testing.T) {
	w := newWorld(t, succeed)
	env := w.authority.Command(nil)
	var submitting sync.WaitGroup
	for range 100 {
		submitting.Go(func() {
			if callback, err := w.submit(env); err != nil || callback.Status != protocol.StatusOK {
				t.Errorf("%+v, %v", callback, err)
			}
		})
	}
	submitting.Wait()
	w.tunnels.Connect(nil) // what is known needs no sandbox
	if _, err := w.submit(env); err != nil {
		t.Errorf("the result is forgotten: %v", err)
	}
	if n := w.runs.Load(); n != 1 {
		t.Errorf("ran %d times", n)
	}
	w.refuses(w.authority.Command(nil), protocol.KindUnavailable)
}

func TestOneIDForTwoCommands(t *testing.T) {
	w := newWorld(t, succeed)
	env := w.authority.Command(nil)
	if _, err := w.submit(env); err != nil {
		t.Fatal(err)
	}
	w.refuses(w.authority.Command(func(c *jws.Command) {
		c.CommandID = env.CommandID
		c.Op = json.RawMessage(`{"kind":"pty.close"}`)
	}), protocol.KindConflict)
}

// TestInFlightBound: what is over the bound waits, and what is over that one's
// bound is refused.
func TestInFlightBound(t *testing.T) {
	answer, release := hang()
	w := newWorld(t, answer)
	defer release()
	var records []*Record
	for range protocol.MaxCommandsInFlight + maxQueued {
		record, err := w.dispatcher.Submit(t.Context(), w.authority.Command(nil))
		if err != nil {
			t.Fatal(err)
		}
		records = append(records, record)
	}
	w.refuses(w.authority.Command(nil), protocol.KindTooMany)
	w.dispatcher.mu.Lock()
	for _, s := range w.dispatcher.sandboxes {
		if s.running != protocol.MaxCommandsInFlight || len(s.queue) != maxQueued {
			t.Errorf("%d under way, %d wait", s.running, len(s.queue))
		}
	}
	w.dispatcher.mu.Unlock()
	release()
	for _, record := range records {
		if _, _, err := record.Wait(t.Context()); err != nil {
			t.Error(err)
		}
	}
	if _, err := w.submit(w.authority.Command(nil)); err != nil {
		t.Errorf("after the others: %v", err)
	}
	w.dispatcher.running.Wait()
	if len(w.dispatcher.sandboxes) != 0 {
		t.Errorf("under way: %v", w.dispatcher.sandboxes)
	}
}

// TestOrderOfATerminal: commands for one terminal reach the sandbox in the order
// in which they came, each after the one before it is done.
func TestOrderOfATerminal(t *testing.T) {
	var mu sync.Mutex
	var got []protocol.CommandID
	running := 0
	w := newWorld(t, func(w *world, c call) (protocol.Result, error) {
		mu.Lock()
		if running++; running > 1 {
			t.Error("two commands of one terminal at once")
		}
		mu.Unlock()
		result, err := succeed(w, c)
		var callback protocol.ExecutionCallback
		err = errors.Join(err, json.Unmarshal(result.Callback, &callback))
		mu.Lock()
		got = append(got, callback.CommandID)
		running--
		mu.Unlock()
		return result, err
	})
	var want []protocol.CommandID
	var records []*Record
	for range 2 * protocol.MaxCommandsInFlight {
		env := w.authority.Command(func(c *jws.Command) { c.Target.PTYID = "pty_1" })
		record, err := w.dispatcher.Submit(t.Context(), env)
		if err != nil {
			t.Fatal(err)
		}
		want, records = append(want, env.CommandID), append(records, record)
	}
	for _, record := range records {
		if _, _, err := record.Wait(t.Context()); err != nil {
			t.Error(err)
		}
	}
	mu.Lock()
	defer mu.Unlock()
	if !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

// TestASlowTerminalHoldsUpNoOther: what waits behind a slow command of one
// terminal takes no place from others.
func TestASlowTerminalHoldsUpNoOther(t *testing.T) {
	proceed := make(chan struct{})
	slow := protocol.PTYID("pty_slow")
	w := newWorld(t, func(w *world, c call) (protocol.Result, error) {
		command, err := w.authority.Keys.Command(context.Background(), c.token, jws.AudienceAgent)
		if err == nil && command.Target.PTYID == slow {
			<-proceed
		}
		return succeed(w, c)
	})
	var records []*Record
	for range 2 * protocol.MaxCommandsInFlight {
		record, err := w.dispatcher.Submit(t.Context(), w.authority.Command(func(c *jws.Command) { c.Target.PTYID = slow }))
		if err != nil {
			t.Fatal(err)
		}
		records = append(records, record)
	}
	callback, err := w.submit(w.authority.Command(func(c *jws.Command) { c.Target.PTYID = "pty_quick" }))
	if err != nil || callback.Status != protocol.StatusOK {
		t.Errorf("another terminal's command: %+v, %v", callback, err)
	}
	close(proceed)
	for _, record := range records {
		if _, _, err := record.Wait(t.Context()); err != nil {
			t.Error(err)
		}
	}
}

// TestRefusedForNowMayBeTriedAgain: what a sandbox couldn't run at the moment is
// no outcome to keep, and is not logged as a command that ran.
func TestRefusedForNowMayBeTriedAgain(t *testing.T) {
	var full atomic.Bool
	full.Store(true)
	w := newWorld(t, func(w *world, c call) (protocol.Result, error) {
		if !full.Load() {
			return succeed(w, c)
		}
		e := protocol.Errorf(protocol.KindUnavailable, "commands are refused: the disk is full").Body()
		body, err := json.Marshal(protocol.ExecutionCallback{Type: protocol.CallbackType, Status: protocol.StatusError, Error: &e})
		return protocol.Result{Callback: body, Kind: protocol.KindUnavailable}, err
	})
	var refused atomic.Int32
	w.dispatcher.opts.Refused = func(error) { refused.Add(1) }
	env := w.authority.Command(nil)
	if callback, err := w.submit(env); err != nil || callback.Status != protocol.StatusError {
		t.Fatalf("%+v, %v", callback, err)
	}
	full.Store(false)
	if callback, err := w.submit(env); err != nil || callback.Status != protocol.StatusOK {
		t.Errorf("%+v, %v", callback, err)
	}
	w.dispatcher.running.Wait()
	if n := refused.Load(); n != 1 {
		t.Errorf("%d refusals were told", n)
	}
}

// A sandbox that comes back soon gets the command again, and whoever waits
// notices nothing.
func TestALostTunnelIsReplaced(t *testing.T) {
	w := newWorld(t, dies)
	env := w.authority.Command(nil)
	record, err := w.dispatcher.Submit(t.Context(), env)
	if err != nil {
		t.Fatal(err)
	}
	<-w.agent.Done()
	w.connect(succeed)
	if callback, _, err := record.Wait(t.Context()); err != nil || callback.Status != protocol.StatusOK {
		t.Errorf("%+v, %v", callback, err)
	}
	if n := w.runs.Load(); n != 2 {
		t.Errorf("sent %d times", n)
	}
}

// dies is an answer that never comes, since the tunnel ends.
func dies(_ *world, c call) (protocol.Result, error) {
	c.agent.Close()
	return protocol.Result{}, errors.New("lost")
}

func TestALostTunnelMayBeRetried(t *testing.T) {
	w := newWorld(t, dies)
	w.dispatcher.patient = 50 * time.Millisecond
	env := w.authority.Command(nil)
	if _, err := w.submit(env); err == nil || protocol.KindOf(err).Status() < 500 {
		t.Errorf("tunnel lost: %v", err)
	}
	w.connect(succeed)
	if callback, err := w.submit(env); err != nil || callback.Status != protocol.StatusOK {
		t.Errorf("again: %+v, %v", callback, err)
	}
}

// TestFound23SentOrNot: a command that was sent and not answered may have run,
// however it goes on; one that was never sent has not.
func TestFound23SentOrNot(t *testing.T) {
	w := newWorld(t, dies)
	w.dispatcher.patient = 50 * time.Millisecond
	env := w.authority.Command(nil)
	w.refuses(env, protocol.KindUnknown) // the tunnel was lost after it was sent
	w.refuses(env, protocol.KindUnknown) // there is no tunnel: this time nothing is sent
	w.refuses(w.authority.Command(nil), protocol.KindUnavailable)
	w.connect(func(_ *world, c call) (protocol.Result, error) { return protocol.Result{}, errors.New("nothing") })
	w.refuses(env, protocol.KindUnknown)
	w.connect(succeed)
	if callback, err := w.submit(env); err != nil || callback.Status != protocol.StatusOK {
		t.Errorf("asked again: %+v, %v", callback, err)
	}
	w.dispatcher.Close()
	w.refuses(w.authority.Command(nil), protocol.KindRestarting)
}

// TestFound23ClosedWhileItRuns: the relay ends while a command is at a sandbox, and
// another perhaps at a page.
func TestFound23ClosedWhileItRuns(t *testing.T) {
	began := make(chan struct{}, 1)
	answer, release := hang()
	defer release()
	w := newWorld(t, func(w *world, c call) (protocol.Result, error) {
		began <- struct{}{}
		return answer(w, c)
	})
	var records []*Record
	for _, env := range []protocol.CommandEnvelope{w.authority.Command(nil), w.authority.Command(forPage)} {
		record, err := w.dispatcher.Submit(t.Context(), env)
		if err != nil {
			t.Fatal(err)
		}
		records = append(records, record)
	}
	<-began
	w.dispatcher.Close()
	for _, record := range records {
		if _, _, err := record.Wait(t.Context()); err == nil || protocol.KindOf(err) != protocol.KindUnknown {
			t.Errorf("%s: %v", record.Command.Audience, err)
		}
	}
}

func TestAnswersThatAreNone(t *testing.T) {
	for name, answer := range map[string]func(*world, call) (protocol.Result, error){
		"none":         func(*world, call) (protocol.Result, error) { return protocol.Result{}, errors.New("nothing") },
		"not a result": func(*world, call) (protocol.Result, error) { return protocol.Result{Callback: []byte("[]")}, nil },
		"wrong members": func(*world, call) (protocol.Result, error) {
			return protocol.Result{Callback: []byte(`{"at":"x"}`)}, nil
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, answer)
			w.refuses(w.authority.Command(nil), protocol.KindUnknown)
		})
	}
}

// An expired command isn't run, but the sandbox may remember that it was.
func TestExpired(t *testing.T) {
	remembers := true
	w := newWorld(t, func(w *world, call call) (protocol.Result, error) {
		c, err := w.authority.Keys.Command(context.Background(), call.token, jws.AudienceAgent)
		if c == nil || protocol.KindOf(err) != protocol.KindExpired {
			return protocol.Result{}, fmt.Errorf("not expired: %v", err)
		}
		if remembers {
			return relaytest.OK(c.CommandID, protocol.OpResult{Kind: c.Kind()}), nil
		}
		return protocol.Result{Kind: protocol.KindExpired, Callback: []byte(`{"status":"error"}`)}, nil
	})
	late := func(c *jws.Command) { c.IssuedAt = time.Now().Add(-10 * time.Minute).UnixMilli() }
	if callback, err := w.submit(w.authority.Command(late)); err != nil || callback.Status != protocol.StatusOK {
		t.Errorf("remembered: %+v, %v", callback, err)
	}
	remembers = false
	env := w.authority.Command(late)
	w.refuses(env, protocol.KindExpired)
	w.refuses(env, protocol.KindExpired)
}

func TestRecordsAreBounded(t *testing.T) {
	d := New(Options{Log: slog.New(slog.DiscardHandler)})
	defer d.Close()
	add := func(i int, bytes int) {
		record := &Record{Command: &jws.Command{CommandID: protocol.CommandID(fmt.Sprint("cmd_", i)), Op: make([]byte, bytes)}}
		d.records[record.Command.CommandID] = record
		d.order = append(d.order, record.Command.CommandID)
		d.bytes += record.size()
		d.trim()
	}
	for i := range maxRecords + 5 {
		add(i, 10)
	}
	_, oldest := d.Lookup("cmd_4")
	_, next := d.Lookup("cmd_5")
	if len(d.records) != maxRecords || oldest || !next || d.bytes != 10*maxRecords {
		t.Errorf("%d records of %d bytes; the oldest there: %v, the next: %v", len(d.records), d.bytes, oldest, next)
	}
	for i := range 5 {
		add(-1-i, maxRecordBytes/4)
	}
	if d.bytes > maxRecordBytes || len(d.records) != len(d.order) {
		t.Errorf("%d records of %d bytes, %d in order", len(d.records), d.bytes, len(d.order))
	}
}

func TestClose(t *testing.T) {
	answer, release := hang()
	w := newWorld(t, answer)
	defer release()
	record, err := w.dispatcher.Submit(t.Context(), w.authority.Command(nil))
	if err != nil {
		t.Fatal(err)
	}
	w.dispatcher.Close()
	if _, _, err := record.Wait(t.Context()); err == nil {
		t.Error("a command under way outlives Close")
	}
	w.refuses(w.authority.Command(nil), protocol.KindRestarting)
}

func TestWaitGivesUp(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	record := &Record{Done: make(chan struct{})}
	if _, _, err := record.Wait(ctx); err == nil || protocol.KindOf(err) != protocol.KindUnknown {
		t.Errorf("Wait = %v", err)
	}
}
