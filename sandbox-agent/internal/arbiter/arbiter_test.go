package arbiter

import (
	"fmt"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/protocol/jws"
	"github.com/fairlead/fairlead/sandbox-agent/internal/transcript"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// Most of what an arbiter does is tested with its terminal, in package terminal.

const (
	session = protocol.SessionID("ses_1")
	alice   = protocol.UserID("usr_alice")
	bob     = protocol.UserID("usr_bob")
)

// A device takes all input at once.
type device struct{}

func (device) Read([]byte) (int, error)       { select {} }
func (device) Offer(p []byte) (int, error)    { return len(p), nil }
func (device) WhenWritable(func() bool) error { return nil }
func (device) Resize(int, int) error          { return nil }
func (device) Close() error                   { return nil }

func newArbiter() *Arbiter {
	logs := slog.New(slog.DiscardHandler)
	return New(Options{
		Session: session, Info: protocol.PTYInfo{ID: "pty_1"}, Transcript: transcript.New("pty_1", 80, 24, nil, logs),
		Counts: new(Counts), Log: logs,
	}, NewProgram(device{}, nil))
}

func attach(t *testing.T, b *Arbiter) *Stream {
	t.Helper()
	s, _, err := b.Attach(protocol.TerminalParams{SessionID: session, PTYID: "pty_1"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	return s
}

// grantOf returns a grant of user's that is good for d and allows to view
// everything, and more.
func grantOf(user protocol.UserID, id protocol.GrantID, d time.Duration, more ...protocol.Capability) *jws.Grant {
	now := time.Now()
	return &jws.Grant{
		Subject: user, Session: session, PTYs: []string{jws.AllPTYs}, Caps: append(more, protocol.CapView),
		IssuedAt: now.Unix(), ExpiresAt: now.Add(d - jws.Skew).Unix(), ID: id,
	}
}

// TestFound10GrantsOfOnePerson: however many grants one person presents, the
// others have room for theirs, and what the person is given up of first is what
// ends first, but never what the lease is held under.
func TestFound10GrantsOfOnePerson(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newArbiter()
		v := attach(t, b)
		if err := v.AddGrant(grantOf(bob, "gr_1", 10*time.Minute, protocol.CapControl), 0); err != nil {
			t.Fatal(err)
		}
		v.Propose(protocol.LeaseProposal{ID: 7, Next: protocol.LeaseNext{Holder: bob, GrantID: "gr_1"}})
		lease := b.Lease()
		if lease.Holder != bob {
			t.Fatalf("lease %+v", lease)
		}
		for i := range 2 * MaxGrants {
			if err := v.AddGrant(grantOf(bob, protocol.GrantID(fmt.Sprintf("gr_%d", i)), time.Hour+time.Duration(i)*time.Second), 0); err != nil {
				t.Fatalf("grant %d: %v", i, err)
			}
		}
		if n := v.grants.Len(); n != protocol.MaxPersonGrants {
			t.Errorf("%d grants of one person", n)
		}
		if v.grants.Get(lease.GrantID) == nil {
			t.Error("the grant under which the lease is held has given way")
		}
		if v.grants.Get(protocol.GrantID(fmt.Sprintf("gr_%d", 2*MaxGrants-1))) == nil {
			t.Error("the newest grant has no place")
		}
		// Many people who have a few each: who has most gives way to one who has none.
		for i := range MaxGrants / 2 {
			for j := range 2 {
				id := protocol.GrantID(fmt.Sprintf("gr_%d_%d", i, j))
				if err := v.AddGrant(grantOf(protocol.UserID(fmt.Sprintf("usr_%d", i)), id, time.Hour), 0); err != nil && j == 0 {
					t.Fatalf("grant %s: %v", id, err)
				}
			}
		}
		if err := v.AddGrant(grantOf(alice, "gr_owner", time.Hour, protocol.CapControl), 0); err != nil {
			t.Errorf("the owner: %v", err)
		}
		if n := v.grants.Len(); n > MaxGrants {
			t.Errorf("%d grants", n)
		}
	})
}

// TestPaceIsRefused: a viewer can't take a recording's name, and there are only
// so many pace-setters. Each refusal is counted.
func TestPaceIsRefused(t *testing.T) {
	b := newArbiter()
	s := attach(t, b)
	s.Pace(protocol.Pace{ID: recordingPacer})
	for i := range protocol.MaxPacers + 1 {
		s.Pace(protocol.Pace{ID: fmt.Sprint(i)})
	}
	if b.flow.refused != 2 {
		t.Errorf("%d refused", b.flow.refused)
	}
}

// TestToolsInputIsNotCounted: what is typed for a tool has no client whose
// sequence would be remembered.
func TestToolsInputIsNotCounted(t *testing.T) {
	b := newArbiter()
	g := grantOf(alice, "gr_1", time.Hour, protocol.CapControl)
	if err := b.TypeFor(t.Context(), Typist{Grant: g}, []byte("x")); err != nil {
		t.Fatal(err)
	}
	if _, ok := b.input.accepted.Last(""); ok {
		t.Error("it was counted")
	}
}
