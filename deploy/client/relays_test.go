package client

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/coder/websocket"

	"github.com/fairlead/fairlead/protocol"
)

// impatient is who doesn't wait for long for a silent relay.
var impatient = Options{Silence: 6 * SweepEvery}

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
	first, second := newFakeRelay(t), newFakeRelay(t)
	v := watch(t, impatient, &heard{}, first, second)

	s := first.next(t)
	greet(t, s)
	for range 3 {
		s.asked(t)
		s.say(t, protocol.PongMessage{})
	}
	silent := time.Now() // from here on
	s = second.next(t)
	if after := time.Since(silent); after < impatient.Silence/2 {
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
	r := newFakeRelay(t)
	v := watch(t, impatient, &heard{}, r)
	s := r.next(t)
	greet(t, s)
	if _, err := v.AwaitJoined(t.Context()); err != nil {
		t.Fatal(err)
	}
	select {
	case <-r.sockets:
		t.Error("it was left")
	case <-time.After(2 * impatient.Silence):
	}
}
