package chathub

import (
	"fmt"
	"testing"

	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/protocol/jws"
)

// TestHubsAreBounded: a person joins so many hubs, and a sandbox has so many. One
// that nobody has joined gives way.
func TestHubsAreBounded(t *testing.T) {
	w := newWorldWithout(t)
	enter := func(sandbox, conversation, person int) (*hub, error) {
		return w.set.acquire(Key{
			protocol.SandboxID(fmt.Sprint("sb_", sandbox)), testSession, protocol.ConversationID(fmt.Sprint(conversation)),
		}, &jws.Grant{Subject: protocol.UserID(fmt.Sprint("usr_", person)), ID: "gr_1"}, "")
	}
	must := func(sandbox, conversation, person int) *hub {
		t.Helper()
		h, err := enter(sandbox, conversation, person)
		if err != nil {
			t.Fatalf("%d of sandbox %d for person %d: %v", conversation, sandbox, person, err)
		}
		return h
	}
	full := func(sandbox, conversation, person int) {
		t.Helper()
		if _, err := enter(sandbox, conversation, person); protocol.KindOf(err) != protocol.KindTooMany {
			t.Errorf("%d of sandbox %d for person %d: %v", conversation, sandbox, person, err)
		}
	}
	var last *hub
	for i := range maxSandboxHubs {
		last = must(0, i, i/maxPersonHubs)
	}
	full(1, 0, 0)             // the person has as many as allowed
	must(0, 1, 0)             // the same once more is none
	full(0, -1, 7)            // the sandbox has
	must(0, maxPersonHubs, 7) // one that there is
	w.set.release(last, "usr_1")
	must(0, -1, 7)
	<-last.end.done // it gave way
	must(1, 0, 1)   // who has left one joins another
	for i := range maxPersonFollows {
		if _, err := enter(2, 0, 9); err != nil {
			t.Fatalf("follow %d: %v", i, err)
		}
	}
	full(2, 0, 9)
}

// TestRingsShareTheRelaysMemory: rings shrink when there are many.
// It is about weakness 15 in deploy/e2e/README.md.
func TestRingsShareTheRelaysMemory(t *testing.T) {
	w := newWorldWithout(t)
	for n, want := range map[int]int64{1: protocol.ChatRingBytes, 256: 512 << 10, 1 << 20: windowStep} {
		w.set.mu.Lock()
		hubs := w.set.hubs
		w.set.hubs = map[Key]*hub{}
		h, _ := still(t)
		for i := range min(n, 300) {
			w.set.hubs[Key{Conversation: protocol.ConversationID(fmt.Sprint(i))}] = h
		}
		if n > 300 {
			for i := range 4096 {
				w.set.hubs[Key{Conversation: protocol.ConversationID(fmt.Sprint(i))}] = h
			}
		}
		w.set.share()
		w.set.hubs = hubs
		w.set.mu.Unlock()
		if got := w.set.window.Load(); got != want {
			t.Errorf("%d hubs: %d bytes each, want %d", n, got, want)
		}
	}
}
