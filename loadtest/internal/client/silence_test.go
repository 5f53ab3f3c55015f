package client

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/coder/websocket"

	"github.com/fairlead/fairlead/protocol"
)

// impatient shortens how long a silent relay is waited for.
func impatient(t *testing.T) {
	was, left := askAfter, silence
	askAfter, silence = 2*sweepEvery, 6*sweepEvery
	t.Cleanup(func() { askAfter, silence = was, left })
}

func greet(t *testing.T, s *fakeSocket) {
	t.Helper()
	s.say(t, mine, protocol.Attached{Epoch: 5, Mode: protocol.ModeResume})
}

// asked waits until the viewer asks whether the relay is there.
func (s *fakeSocket) asked(t *testing.T) {
	t.Helper()
	for {
		var m struct{ Type string }
		must(t, json.Unmarshal(s.hear(t, websocket.MessageText), &m))
		if m.Type == protocol.ClientPing {
			return
		}
	}
}

// A viewer leaves a relay that is silent for the other one, and doesn't go back
// on its word; one that answers is stayed with.
func TestFound24ViewerLeavesASilentRelay(t *testing.T) {
	impatient(t)
	first, second := newFakeRelay(t), newFakeRelay(t)
	loop, err := NewLoop(nil)
	must(t, err)
	user := NewUser("token", "ses_1", first.URL, second.URL)
	v := Watch(t.Context(), loop, user, Options{PTY: "pty_1"}, &heard{})
	t.Cleanup(func() { v.Close(); loop.Close(); user.Close() })

	s := first.next(t)
	greet(t, s)
	for range 3 {
		s.asked(t)
		s.say(t, protocol.PongMessage{})
	}
	silent := time.Now() // from here on
	s = second.next(t)
	if after := time.Since(silent); after < askAfter {
		t.Errorf("left after %v", after)
	}
	s.say(t, protocol.Moved{Origin: first.URL})
	must(t, s.Close(websocket.StatusServiceRestart, ""))
	s.end()
	greet(t, second.next(t)) // and not first
	if _, err := v.AwaitJoined(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// Where there is no other relay the only one is waited for.
func TestFound24TheOnlyRelayIsWaitedFor(t *testing.T) {
	impatient(t)
	r := newFakeRelay(t)
	v, _ := watchFake(t, r)
	s := r.next(t)
	greet(t, s)
	if _, err := v.AwaitJoined(t.Context()); err != nil {
		t.Fatal(err)
	}
	select {
	case <-r.sockets:
		t.Error("it was left")
	case <-time.After(2 * silence):
	}
}
