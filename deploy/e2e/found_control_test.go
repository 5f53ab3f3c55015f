package e2e

import (
	"testing"
	"time"

	"github.com/fairlead/fairlead/protocol"
)

// shell is a command that shows what it reads, and nothing else.
const shell = "stty raw -echo -opost; printf " + ready + "; exec cat"

// TestFound16ControlIsTakenBack: the owner takes control from who has it, at once,
// and the holder is told why. Nobody else can.
func TestFound16ControlIsTakenBack(t *testing.T) {
	ctx := within(t)
	s := shared(t)
	id := newPTY(t, s, shell)
	alice, bob, carol := attach(t, s, "alice", id), attach(t, s, "bob", id), attach(t, s, "carol", id)
	ids := func(name string) protocol.UserID { return s.Ready.User(name).ID }
	_, err := alice.ExpectMessage(ctx, protocol.ServerControlState, controller(ids("alice")))
	must(t, err)
	must(t, alice.Say(ctx, Message{"type": "grant_control", "to": ids("bob")}))
	_, err = bob.ExpectMessage(ctx, protocol.ServerControlGranted, controller(ids("bob")))
	must(t, err)
	must(t, bob.Type(ctx, "bob "))
	must(t, alice.Expect(ctx, ready+"bob "))

	for name, term := range map[string]*Terminal{"bob": bob, "carol": carol} {
		must(t, term.Say(ctx, Message{"type": "take_back"}))
		m, err := term.ExpectMessage(ctx, protocol.ServerError, nil)
		must(t, err)
		if m["name"] != "AuthError" {
			t.Errorf("%s: %v", name, m)
		}
	}
	began := time.Now()
	must(t, alice.Say(ctx, Message{"type": "take_back"}))
	for name, term := range map[string]*Terminal{"alice": alice, "bob": bob, "carol": carol} {
		m, err := term.ExpectMessage(ctx, protocol.ServerControlGranted, func(m Message) bool { return m["to"] == string(ids("alice")) })
		must(t, err)
		if m["reason"] != "owner" || m["from"] != string(ids("bob")) {
			t.Errorf("%s is told %v", name, m)
		}
	}
	t.Logf("taken back and told in %v", time.Since(began).Round(time.Millisecond))
	must(t, bob.Type(ctx, "late "))
	_, err = bob.ExpectMessage(ctx, protocol.ServerInputRefused, nil)
	must(t, err)
	must(t, alice.Type(ctx, "alice"))
	must(t, alice.Expect(ctx, ready+"bob alice"))
	for name, term := range map[string]*Terminal{"alice": alice, "bob": bob} {
		m, err := term.ExpectMessage(ctx, protocol.ServerControlState, nil)
		must(t, err)
		if can, _ := m["can_take_back"].(bool); can != (name == "alice") {
			t.Errorf("%s is told %v", name, m)
		}
	}
}

// TestFound16TheFirstKeyTakesAFreeTerminal: it is written, and so is what follows
// it, of clients that number their input and of those that don't. Who may only
// view takes nothing.
func TestFound16TheFirstKeyTakesAFreeTerminal(t *testing.T) {
	ctx := within(t)
	s := shared(t)
	id := newPTY(t, s, shell)
	alice, carol := attach(t, s, "alice", id), attach(t, s, "carol", id)
	bob := s.Ready.User("bob").Watch(ctx, Viewing{Session: s.Ready.SessionID, PTY: id, Keep: 1 << 16})
	t.Cleanup(func() { bob.Close() })
	ids := func(name string) protocol.UserID { return s.Ready.User(name).ID }
	_, err := alice.ExpectMessage(ctx, protocol.ServerControlState, controller(ids("alice")))
	must(t, err)
	must(t, alice.Say(ctx, Message{"type": "revoke_control"}))
	_, err = carol.ExpectMessage(ctx, protocol.ServerControlRevoked, nil)
	must(t, err)
	must(t, carol.Type(ctx, "c"))
	_, err = carol.ExpectMessage(ctx, protocol.ServerInputRefused, nil)
	must(t, err)

	must(t, bob.Await(ctx, "a free terminal", func() bool { return bob.live && bob.control.Term > 0 && bob.control.Controller == "" }))
	for _, key := range []string{"b", "o", "b", " "} {
		_, err := bob.Type(ctx, key)
		must(t, err)
	}
	must(t, carol.Expect(ctx, ready+"bob "))
	refused, err := bob.AwaitWritten(ctx)
	must(t, err)
	if len(refused) > 0 {
		t.Errorf("refused: %v", refused)
	}
	_, err = alice.ExpectMessage(ctx, protocol.ServerControlTaken, controller(ids("bob")))
	must(t, err)

	must(t, bob.Say(ctx, protocol.ClientRevokeControl))
	_, err = alice.ExpectMessage(ctx, protocol.ServerControlRevoked, func(m Message) bool { return m["from"] == string(ids("bob")) })
	must(t, err)
	must(t, alice.Type(ctx, "al")) // in one message, and then another
	must(t, alice.Type(ctx, "ice"))
	must(t, carol.Expect(ctx, ready+"bob alice"))
}

// TestFound16AnIdleHolderYields: 30 s after the last key control goes to who asks
// for it, and the holder is told why.
func TestFound16AnIdleHolderYields(t *testing.T) {
	if testing.Short() {
		t.Skip("it takes the 30 s")
	}
	t.Parallel() // it mostly waits
	ctx := within(t)
	s := own(t)
	id := newPTY(t, s, shell)
	alice, bob := attach(t, s, "alice", id), attach(t, s, "bob", id)
	ids := func(name string) protocol.UserID { return s.Ready.User(name).ID }
	_, err := alice.ExpectMessage(ctx, protocol.ServerControlState, controller(ids("alice")))
	must(t, err)
	must(t, bob.Say(ctx, Message{"type": "request_control"}))
	_, err = alice.ExpectMessage(ctx, protocol.ServerControlRequested, nil)
	must(t, err)
	keys := time.NewTicker(2 * time.Second)
	defer keys.Stop()
	for range 3 { // she types on
		<-keys.C
		must(t, alice.Type(ctx, "."))
	}
	typed := time.Now()
	m, err := alice.ExpectMessage(ctx, protocol.ServerControlGranted, controller(ids("bob")))
	must(t, err)
	after := time.Since(typed)
	if m["reason"] != "idle" || after < protocol.ControlIdle-time.Second || after > 2*protocol.ControlIdle {
		t.Errorf("after %v: %v", after, m)
	}
	must(t, bob.Type(ctx, "bob"))
	must(t, alice.Expect(ctx, ready+"...bob"))
	t.Logf("yielded %v after the last key", after.Round(time.Millisecond))
}
