package approval

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"reflect"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/protocol/eventlog"
	"github.com/fairlead/fairlead/sandbox-agent/internal/journal"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const (
	session = protocol.SessionID("ses_1")
	alice   = protocol.UserID("usr_alice")
	bob     = protocol.UserID("usr_bob")
)

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

// A rig is a Log and what it told.
type rig struct {
	*Log
	t    testing.TB
	dir  string
	disk *flaky

	mu   sync.Mutex
	told []protocol.Approval // guarded by mu
}

// flaky is a folder that fails on demand.
type flaky struct {
	journal.Folder
	err error // of all writes; nil: they succeed
}

func (f *flaky) Append(name string, data []byte) error {
	if f.err != nil {
		return f.err
	}
	return f.Folder.Append(name, data)
}

func (f *flaky) Replace(name string, data []byte) error {
	if f.err != nil {
		return f.err
	}
	return f.Folder.Replace(name, data)
}

func newRig(t testing.TB) *rig {
	t.Helper()
	r := &rig{t: t, dir: filepath.Join(t.TempDir(), "approvals")}
	r.open()
	t.Cleanup(func() { r.Close() })
	return r
}

// Approval implements [Listener].
func (r *rig) Approval(a protocol.Approval) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.told = append(r.told, a)
}

// open opens the log, as an agent does that starts.
func (r *rig) open() {
	r.t.Helper()
	var err error
	r.Log, err = Open(Options{Dir: r.dir, Listeners: []Listener{r}})
	must(r.t, err)
	r.disk = &flaky{Folder: journal.Folder(r.dir)}
	r.Log.disk = r.disk
}

func (r *rig) restart() {
	r.t.Helper()
	r.Close()
	r.open()
}

// tale is what was told, one word for each event.
func (r *rig) tale() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	var words []string
	for _, a := range r.told {
		words = append(words, fmt.Sprintf("%s=%s%s/%d", a.Host+a.Tool, a.State, a.Decision, a.Revision))
	}
	return strings.Join(words, " ")
}

func (r *rig) ask(host string) *Pending {
	r.t.Helper()
	p, err := r.Ask(egress(host))
	must(r.t, err)
	return p
}

func egress(host string) Request {
	return Request{Session: session, PTY: "pty_1", Kind: protocol.ApprovalEgress, Host: host, Port: 443}
}

func answer(id string, d protocol.Decision) protocol.Approval {
	return protocol.Approval{
		ID: id, Revision: 1, Kind: protocol.ApprovalEgress, SessionID: session,
		Decision: d, UserID: alice, GrantID: "gr_1", CommandID: "cmd_1",
	}
}

func (r *rig) decide(id string, d protocol.Decision) (protocol.Approval, bool) {
	r.t.Helper()
	a, applied, err := r.Decide(answer(id, d))
	must(r.t, err)
	return a, applied
}

func TestDecide(t *testing.T) {
	for _, d := range []protocol.Decision{protocol.AllowOnce, protocol.AllowAlways, protocol.Deny, protocol.DenyAlways} {
		r := newRig(t)
		p := r.ask("a.example")
		a, applied := r.decide(p.ID(), d)
		if !applied || a.State != protocol.ApprovalDecided || a.Decision != d || a.Revision != 2 || a.UserID != alice ||
			a.GrantID != "gr_1" || a.CommandID != "cmd_1" || a.PTYID != "pty_1" || a.LeftMs != 0 || a.EndsAt == 0 {
			t.Errorf("%s: %+v, applied %v", d, a, applied)
		}
		if got, err := p.Wait(t.Context()); got != d || err != nil {
			t.Errorf("waited for %s, %v; want %s", got, err, d)
		}
		late := answer(p.ID(), protocol.Deny)
		late.UserID, late.Revision = bob, 2
		if again, applied, err := r.Decide(late); applied || err != nil || !reflect.DeepEqual(again, a) {
			t.Errorf("a later one made %+v, %v, %v", again, applied, err)
		}
		if tale := r.tale(); tale != "a.example=pending/1 a.example=decided"+string(d)+"/2" {
			t.Errorf("told %s", tale)
		}
		if s := r.Stats(); s != (Stats{Asked: 1, Decided: 1, Late: 1}) {
			t.Errorf("%+v", s)
		}
	}
}

func TestDecideRefused(t *testing.T) {
	r := newRig(t)
	p := r.ask("a.example")
	for _, tt := range []struct {
		what   string
		change func(*protocol.Approval)
		kind   protocol.Kind
	}{
		{"another id", func(a *protocol.Approval) { a.ID = "apr_none" }, protocol.KindNotFound},
		{"another session", func(a *protocol.Approval) { a.SessionID = "ses_2" }, protocol.KindNotFound},
		{"another kind", func(a *protocol.Approval) { a.Kind = protocol.ApprovalBroker }, protocol.KindInvalid},
		{"an earlier revision", func(a *protocol.Approval) { a.Revision = 0 }, protocol.KindConflict},
		{"a later revision", func(a *protocol.Approval) { a.Revision = 2 }, protocol.KindConflict},
		{"unknown decision", func(a *protocol.Approval) { a.Decision = "maybe" }, protocol.KindInvalid},
	} {
		a := answer(p.ID(), protocol.AllowOnce)
		tt.change(&a)
		_, applied, err := r.Decide(a)
		if wantKind(t, err, tt.kind); applied {
			t.Errorf("%s was applied", tt.what)
		}
	}
	if tale := r.tale(); tale != "a.example=pending/1" {
		t.Errorf("told %s", tale)
	}
}

func TestAskRefused(t *testing.T) {
	r := newRig(t)
	for _, change := range []func(*Request){
		func(q *Request) { q.Session = "" },
		func(q *Request) { q.Session = "../x" },
		func(q *Request) { q.PTY = "a b" },
		func(q *Request) { q.Kind = "mcp" },
		func(q *Request) { q.Host = "" },
		func(q *Request) { q.Host = "a\nb" },
		func(q *Request) { q.Host = "é.example" },
		func(q *Request) { q.Host = strings.Repeat("a", maxHostBytes+1) },
		func(q *Request) { q.Port = 0 },
		func(q *Request) { q.Port = 65536 },
		func(q *Request) { q.Secret = "TOKEN" },
		func(q *Request) { q.TTL = -1 },
		func(q *Request) { q.TTL = maxTTL + 1 },
		func(q *Request) { q.Kind = protocol.ApprovalBroker },
		func(q *Request) { q.Kind, q.Port = protocol.ApprovalBroker, 0 },
		func(q *Request) { q.Kind, q.Port, q.Secret = protocol.ApprovalBroker, 0, "a b" },
	} {
		q := egress("a.example")
		change(&q)
		_, err := r.Ask(q)
		wantKind(t, err, protocol.KindInvalid)
	}
	if r.tale() != "" || len(r.sessions) != 0 {
		t.Errorf("told %s", r.tale())
	}
}

// TestExpiry is exact: a decision in the last millisecond counts, one at the end
// or later is answered with the end.
func TestExpiry(t *testing.T) {
	for _, tt := range []struct {
		after   time.Duration
		applied bool
	}{
		{0, true}, {59_999 * time.Millisecond, true}, {60 * time.Second, false}, {60_001 * time.Millisecond, false}, {time.Hour, false},
	} {
		synctest.Test(t, func(t *testing.T) {
			r := newRig(t)
			p := r.ask("a.example")
			asked := time.Now()
			var waited sync.WaitGroup
			waited.Go(func() {
				d, err := p.Wait(t.Context())
				if allowed := d == protocol.AllowOnce; allowed != tt.applied || (err == nil) != allowed {
					t.Errorf("after %v: %s, %v", tt.after, d, err)
				}
				if took := time.Since(asked); took > protocol.EgressTTL {
					t.Errorf("waited for %v", took)
				}
			})
			time.Sleep(tt.after)
			a, applied := r.decide(p.ID(), protocol.AllowOnce)
			if applied != tt.applied || applied == (a.State == protocol.ApprovalExpired) {
				t.Errorf("after %v: %+v, applied %v", tt.after, a, applied)
			}
			if want := asked.Add(protocol.EgressTTL).UnixMilli(); !applied && (a.EndsAt != want || a.Revision != 2 || a.UserID != "") {
				t.Errorf("expired %+v", a)
			}
			waited.Wait()
			synctest.Wait()
			if next := r.ask("a.example"); next.ID() == p.ID() { // what was allowed once is asked anew
				t.Error("the answer was used twice")
			}
		})
	}
}

// TestBrokerTTL: nobody waits for a secret's approval, so it may take longer.
func TestBrokerTTL(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		_, err := r.Ask(Request{Session: session, Kind: protocol.ApprovalBroker, Host: "a.example", Secret: "TOKEN"})
		must(t, err)
		time.Sleep(protocol.BrokerTTL - time.Millisecond)
		list := r.List(session)
		if a := list.Approvals[0]; len(list.Approvals) != 1 || a.State != protocol.ApprovalPending || a.LeftMs != 1 || a.Secret != "TOKEN" {
			t.Errorf("%+v", list)
		}
		time.Sleep(time.Millisecond)
		synctest.Wait()
		if tale := r.tale(); tale != "a.example=pending/1 a.example=expired/2" {
			t.Errorf("told %s", tale)
		}
	})
}

// TestCoalesce: a thousand who ask for the same are one question, also when most
// of them give up (case 75).
func TestCoalesce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		var all sync.WaitGroup
		impatient, giveUp := context.WithCancelCause(t.Context())
		tired := errors.New("tired")
		for i := range 1000 {
			all.Go(func() {
				ctx := t.Context()
				if i%2 == 0 {
					ctx = impatient
				}
				d, err := r.Await(ctx, egress("a.example"))
				if i%2 == 0 && (d != protocol.Deny || !errors.Is(err, tired)) || i%2 != 0 && (d != protocol.AllowOnce || err != nil) {
					t.Errorf("waiter %d: %s, %v", i, d, err)
				}
			})
		}
		synctest.Wait()
		giveUp(tired)
		synctest.Wait()
		list := r.List(session)
		if len(list.Approvals) != 1 {
			t.Fatalf("%d questions", len(list.Approvals))
		}
		r.decide(list.Approvals[0].ID, protocol.AllowOnce)
		all.Wait()
		if s := r.Stats(); s != (Stats{Asked: 1, Coalesced: 999, Decided: 1}) {
			t.Errorf("%+v", s)
		}
	})
}

// TestDistinct: whatever differs in what is asked is another question.
func TestDistinct(t *testing.T) {
	r := newRig(t)
	broker := Request{Session: session, Kind: protocol.ApprovalBroker, Host: "a.example", Secret: "TOKEN"}
	seen := map[string]bool{}
	for _, change := range []func(*Request){
		func(q *Request) {}, func(q *Request) { q.Session = "ses_2" }, func(q *Request) { q.Host = "b.example" },
		func(q *Request) { q.Port = 80 }, func(q *Request) { *q = broker }, func(q *Request) { *q = broker; q.Secret = "OTHER" },
	} {
		q := egress("a.example")
		change(&q)
		p, err := r.Ask(q)
		must(t, err)
		q.PTY = "pty_2" // whoever asks
		same, err := r.Ask(q)
		must(t, err)
		if same.ID() != p.ID() || seen[p.ID()] {
			t.Errorf("%+v: %s and %s", q, p.ID(), same.ID())
		}
		seen[p.ID()] = true
	}
}

// TestTooMany: of ten thousand hosts a hundred are asked for (case 76).
func TestTooMany(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		for i := range 10_000 {
			_, err := r.Ask(egress(fmt.Sprintf("h%d.example", i)))
			if i < protocol.MaxApprovals {
				must(t, err)
			} else {
				wantKind(t, err, protocol.KindTooMany)
			}
		}
		if s := r.Stats(); s.Pending != protocol.MaxApprovals || s.Refused != 10_000-protocol.MaxApprovals {
			t.Errorf("%+v", s)
		}
		r.ask("h0.example") // which is asked already
		time.Sleep(protocol.EgressTTL)
		synctest.Wait()
		r.ask("h200.example")
		if s := r.Stats(); s.Pending != 1 || s.Expired != protocol.MaxApprovals {
			t.Errorf("%+v", s)
		}
	})
}

// TestSecretsLeaveRoom: questions about secrets, which stay for minutes, leave
// half of the places to connections.
func TestSecretsLeaveRoom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		secret := func(i int) Request {
			return Request{Session: session, Kind: protocol.ApprovalBroker, Host: fmt.Sprintf("h%d.example", i), Secret: "KEY"}
		}
		for i := range protocol.MaxApprovals {
			_, err := r.Ask(secret(i))
			if i < protocol.MaxApprovals/2 {
				must(t, err)
			} else {
				wantKind(t, err, protocol.KindTooMany)
			}
		}
		for i := range protocol.MaxApprovals / 2 {
			_, err := r.Ask(egress(fmt.Sprintf("h%d.example", i)))
			must(t, err)
		}
		_, err := r.Ask(egress("more.example"))
		wantKind(t, err, protocol.KindTooMany)
	})
}

// TestForgottenBound: the outcomes that are remembered are as bounded as the log.
func TestForgottenBound(t *testing.T) {
	r := newRig(t)
	r.Log.disk = nowhere{}
	kept := r.ask("kept.example")
	first := r.ask("a.example")
	r.decide(first.ID(), protocol.Deny)
	for i := range 3 * maxEvents {
		r.decide(r.ask(fmt.Sprintf("h%d.example", i)).ID(), protocol.AllowOnce)
	}
	if n, m := len(r.state.over), r.sessions[session].len(); n > maxEvents || m > maxEvents {
		t.Errorf("%d outcomes, %d events", n, m)
	}
	_, _, err := r.Decide(answer(first.ID(), protocol.AllowOnce))
	wantKind(t, err, protocol.KindNotFound)
	_, opened, err := r.Subscribe(session, nil)
	must(t, err)
	if len(opened.Pending) != 1 || opened.Pending[0].ID != kept.ID() { // whose event is long gone
		t.Errorf("%+v", opened)
	}
	if _, applied := r.decide(kept.ID(), protocol.AllowOnce); !applied {
		t.Error("not applied")
	}
}

// len returns how many events a log holds.
func (s *sessionLog) len() (n int) {
	s.events.View(func(events *eventlog.Log[protocol.Approval]) { n = events.Len() })
	return n
}

// nowhere is a disk that keeps nothing.
type nowhere struct{}

func (nowhere) Read(string) ([]byte, error)  { return nil, fs.ErrNotExist }
func (nowhere) Append(string, []byte) error  { return nil }
func (nowhere) Replace(string, []byte) error { return nil }
func (nowhere) Remove(string) error          { return nil }
