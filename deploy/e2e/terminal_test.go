package e2e

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/coder/websocket"

	"github.com/fairlead/fairlead/protocol"
)

// rawReader is a terminal program that hashes so many raw bytes.
func rawReader(n int) string {
	return fmt.Sprintf("stty raw -echo; echo ready; head -c %d | sha256sum; echo done", n)
}

func controller(id protocol.UserID) func(Message) bool {
	return func(m Message) bool { return m["controller"] == string(id) }
}

// The sentence of the README: both see 42; the second asks, the first grants,
// the second types.
func TestTwoPeopleShareATerminal(t *testing.T) {
	s := shared(t)
	ctx := within(t)
	alice, bob := s.Ready.User("alice"), s.Ready.User("bob")
	id := newPTY(t, s, "")
	a := attach(t, s, "alice", id)
	_, err := a.ExpectMessage(ctx, protocol.ServerControlState, controller(alice.ID))
	must(t, err)
	b, c := attach(t, s, "bob", id), attach(t, s, "carol", id)

	must(t, a.Type(ctx, "echo $((6*7))\r"))
	for _, term := range []*Terminal{a, b, c} {
		must(t, term.Expect(ctx, "42\r\n"))
	}

	must(t, b.Type(ctx, "echo intruder\r"))
	m, err := b.ExpectMessage(ctx, protocol.ServerInputRefused, nil)
	must(t, err)
	if m["reason"] != string(protocol.RefusedNotController) {
		t.Errorf("bob's typing was refused as %v", m)
	}

	must(t, b.Say(ctx, Message{"type": "request_control"}))
	m, err = a.ExpectMessage(ctx, protocol.ServerControlRequested, nil)
	must(t, err)
	if m["from"] != string(bob.ID) {
		t.Errorf("request %v", m)
	}
	must(t, a.Say(ctx, Message{"type": "grant_control", "to": bob.ID}))
	for _, term := range []*Terminal{a, b, c} {
		_, err = term.ExpectMessage(ctx, protocol.ServerControlGranted, controller(bob.ID))
		must(t, err)
	}
	must(t, b.Type(ctx, "echo bob-$((1+1))\r"))
	must(t, a.Expect(ctx, "bob-2\r\n"))

	must(t, a.Type(ctx, "x"))
	_, err = a.ExpectMessage(ctx, protocol.ServerInputRefused, nil)
	must(t, err)
	must(t, b.Say(ctx, Message{"type": "revoke_control"}))
	_, err = a.ExpectMessage(ctx, protocol.ServerControlRevoked, nil)
	must(t, err)
	must(t, a.Say(ctx, Message{"type": "take_control"}))
	_, err = b.ExpectMessage(ctx, protocol.ServerControlTaken, controller(alice.ID))
	must(t, err)
	if bytes.Contains(a.Output(), []byte("intruder")) {
		t.Error("what bob typed without control was written")
	}
}

func TestViewerMayNotAskForControl(t *testing.T) {
	s := shared(t)
	ctx := within(t)
	c := attach(t, s, "carol", newPTY(t, s, ""))
	must(t, c.Say(ctx, Message{"type": "request_control"}))
	m, err := c.ExpectMessage(ctx, protocol.ServerError, nil)
	must(t, err)
	if m["name"] != "AuthError" {
		t.Errorf("answer %v", m)
	}
}

func TestFirstMessages(t *testing.T) {
	s := shared(t)
	ctx := within(t)
	a := attach(t, s, "alice", newPTY(t, s, ""))
	_, err := a.ExpectMessage(ctx, protocol.ServerAttached, nil)
	must(t, err)
	m := a.Messages()
	if len(m) < 2 || m[0].Type() != protocol.ServerControlState || m[1].Type() != protocol.ServerAttached {
		t.Fatalf("first messages %v", m)
	}
	for _, member := range []string{"controller", "requests"} {
		if _, ok := m[0][member]; !ok {
			t.Errorf("control_state without %s: %v", member, m[0])
		}
	}
	if m[1]["keyframe_bytes"] != 0.0 || len(m[1]["epoch"].(string)) != 16 {
		t.Errorf("attached %v", m[1])
	}
}

func TestBadFramesKeepTheConnection(t *testing.T) {
	s := shared(t)
	ctx := within(t)
	a := attach(t, s, "alice", newPTY(t, s, ""))
	bad := []string{
		"hello", "", "[]", "null", `{"type":1}`, `{"type":"no_such_type"}`, "{\"type\":\"\xff\"}",
		`{"type":"resize","cols":0,"rows":24}`, `{"type":"resize","cols":-1,"rows":24}`,
		`{"type":"resize","cols":65536,"rows":24}`, `{"type":"resize","cols":"80","rows":24}`,
		`{"type":"resize","cols":80}`, `{"type":"grant_control"}`, `{"type":"grant_control","to":"../x"}`,
	}
	for i, frame := range bad {
		must(t, a.Text(ctx, frame))
		must(t, a.Await(ctx, "an error for "+frame, func(_ []byte, messages []Message, _ error) bool {
			n := 0
			for _, m := range messages {
				if m.Type() == protocol.ServerError && m["name"] != "" && m["message"] != "" {
					n++
				}
			}
			return n == i+1
		}))
	}
	must(t, a.Type(ctx, "echo still-$((40+2))\r"))
	must(t, a.Expect(ctx, "still-42\r\n"))
}

func TestOnlyTheControllerResizes(t *testing.T) {
	s := shared(t)
	ctx := within(t)
	id := newPTY(t, s, "")
	a := attach(t, s, "alice", id)
	b := attach(t, s, "bob", id)
	must(t, b.Say(ctx, Message{"type": "resize", "cols": 33, "rows": 11}))
	must(t, b.Say(ctx, Message{"type": "no_such_type"})) // answered after the resize was handled
	_, err := b.ExpectMessage(ctx, protocol.ServerError, nil)
	must(t, err)
	must(t, a.Say(ctx, Message{"type": "resize", "cols": 101, "rows": 31}))
	m, err := b.ExpectMessage(ctx, protocol.ServerResized, nil)
	must(t, err)
	if m["cols"] != 101.0 || m["rows"] != 31.0 {
		t.Errorf("resized %v", m)
	}
	must(t, a.Type(ctx, "stty size\r"))
	must(t, a.Expect(ctx, "31 101\r\n"))
}

func TestLargePasteArrivesWhole(t *testing.T) {
	const size = 1 << 20
	s := shared(t)
	ctx := within(t)
	a := attach(t, s, "alice", newPTY(t, s, rawReader(size)))
	must(t, a.Expect(ctx, "ready"))
	data := make([]byte, size)
	rng := rand.NewChaCha8([32]byte{1})
	rng.Read(data)
	must(t, a.Paste(ctx, data))
	sum := sha256.Sum256(data)
	must(t, a.Expect(ctx, hex.EncodeToString(sum[:])))
	for _, m := range a.Messages() {
		if m.Type() == protocol.ServerInputRefused {
			t.Errorf("input refused: %v", m)
		}
	}
}

func TestOversizeFrame(t *testing.T) {
	s := shared(t)
	ctx := within(t)
	id := newPTY(t, s, rawReader(protocol.MaxBrowserMessage))
	a := attach(t, s, "alice", id)
	must(t, a.Expect(ctx, "ready"))
	must(t, a.Type(ctx, strings.Repeat("x", protocol.MaxBrowserMessage))) // the most there may be
	must(t, a.Expect(ctx, "done"))

	b := attach(t, s, "bob", newPTY(t, s, ""))
	must(t, b.Type(ctx, strings.Repeat("x", protocol.MaxBrowserMessage+1)))
	code, err := b.ExpectClose(ctx)
	must(t, err)
	if code != websocket.StatusMessageTooBig {
		t.Errorf("closed with %d", code)
	}
}

func TestExitReachesEverybody(t *testing.T) {
	s := shared(t)
	ctx := within(t)
	id := newPTY(t, s, "")
	a, b := attach(t, s, "alice", id), attach(t, s, "bob", id)
	_, err := b.ExpectMessage(ctx, protocol.ServerAttached, nil)
	must(t, err)
	must(t, a.Type(ctx, "exit 7\r"))
	for _, term := range []*Terminal{a, b} {
		m, err := term.ExpectMessage(ctx, protocol.ServerPTYClosed, nil)
		must(t, err)
		if m["exit_code"] != 7.0 {
			t.Errorf("pty_closed %v", m)
		}
		code, err := term.ExpectClose(ctx)
		must(t, err)
		if code != 4004 {
			t.Errorf("closed with %d", code)
		}
	}
	// Whoever comes late still sees the end.
	late := attach(t, s, "bob", id)
	must(t, late.Expect(ctx, "exit 7"))
	_, err = late.ExpectMessage(ctx, protocol.ServerPTYClosed, nil)
	must(t, err)
}

func TestLateJoinerGetsAKeyframe(t *testing.T) {
	s := shared(t)
	ctx := within(t)
	id := newPTY(t, s, "seq 1 100000; echo the-end; cat")
	a := attach(t, s, "alice", id)
	must(t, a.Expect(ctx, "the-end"))
	b := attach(t, s, "bob", id)
	must(t, b.Expect(ctx, "the-end"))
	m, err := b.ExpectMessage(ctx, protocol.ServerAttached, nil)
	must(t, err)
	if m["mode"] != protocol.ModeKeyframe || m["keyframe_bytes"] == 0.0 || m["offset"] == 0.0 {
		t.Errorf("attached %v", m)
	}
	out := b.Output()
	if len(out) > protocol.MaxReplayBytes || !bytes.Contains(out, []byte("99500")) {
		t.Errorf("%d bytes, without the lines above the screen: %q…", len(out), out[:min(len(out), 200)])
	}
}

func TestResumeBySince(t *testing.T) {
	s := shared(t)
	ctx := within(t)
	id := newPTY(t, s, "")
	a := attach(t, s, "alice", id)
	must(t, a.Type(ctx, "echo one-$((1))\r"))
	must(t, a.Expect(ctx, "one-1\r\n"))
	m, err := a.ExpectMessage(ctx, protocol.ServerAttached, nil)
	must(t, err)
	first := a.Output()
	since := fmt.Sprintf("%s:%d", m["epoch"], uint64(m["offset"].(float64))+uint64(len(first)))
	b, err := s.Ready.User("bob").Attach(ctx, s.Ready.SessionID, id, since)
	must(t, err)
	t.Cleanup(b.Close)
	must(t, a.Type(ctx, "echo two-$((2))\r"))
	must(t, a.Expect(ctx, "two-2\r\n"))
	must(t, b.Expect(ctx, "two-2\r\n"))
	if bytes.Contains(b.Output(), []byte("one-1")) {
		t.Errorf("bytes before since came again: %q", b.Output())
	}
	if got := a.Output()[len(first):]; !bytes.HasPrefix(got, b.Output()) && !bytes.HasPrefix(b.Output(), got) {
		t.Errorf("resumed output %q differs from %q", b.Output(), got)
	}
}
