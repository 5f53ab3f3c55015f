package e2e

import (
	"context"
	"fmt"
	"net/http"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/fairlead/fairlead/protocol"
)

// ticker is a terminal program that counts aloud, about 100 times a second.
const ticker = `i=0; while :; do i=$((i+1)); echo "tick $i."; sleep 0.01; done`

// at returns a user as a client of relay i.
func (s *Stack) at(i int, name string) User {
	u := s.Ready.User(name)
	u.Base = s.Ready.Relays[i].URL
	return u
}

// position returns where a terminal that began without history stands.
func position(t *testing.T, ctx context.Context, term *Terminal) string {
	t.Helper()
	m, err := term.ExpectMessage(ctx, protocol.ServerAttached, nil)
	must(t, err)
	if m["keyframe_bytes"] != 0.0 {
		t.Fatalf("begins with a keyframe: %v", m)
	}
	return fmt.Sprintf("%s:%d", m["epoch"], uint64(m["offset"].(float64))+uint64(len(term.Output())))
}

// follow attaches at relay i again and again until output comes.
func follow(t *testing.T, ctx context.Context, s *Stack, i int, pty protocol.PTYID, since string) *Terminal {
	t.Helper()
	poll := time.NewTicker(20 * time.Millisecond)
	defer poll.Stop()
	for {
		term, err := s.at(i, "alice").Attach(ctx, s.Ready.SessionID, pty, since)
		if err == nil {
			err = term.Await(ctx, "output", func(output []byte, _ []Message, _ error) bool { return len(output) > 0 })
			if err == nil {
				t.Cleanup(term.Close)
				return term
			}
			term.Close()
		}
		select {
		case <-poll.C:
		case <-ctx.Done():
			t.Fatalf("relay %d never had the terminal: %v", i+1, err)
		}
	}
}

var tick = regexp.MustCompile(`tick (\d+)\.\r\n`)

// continuous checks that output counts without a hole or a repetition.
func continuous(t *testing.T, output []byte) {
	t.Helper()
	last := 0
	for _, m := range tick.FindAllSubmatch(output, -1) {
		n := 0
		fmt.Sscan(string(m[1]), &n)
		if last != 0 && n != last+1 {
			t.Errorf("tick %d follows tick %d", n, last)
		}
		last = n
	}
	if last == 0 {
		t.Error("no ticks")
	}
}

// A viewer who comes to the standby's relay is sent to the primary's, with a
// page of either relay.
func TestStandbySendsViewersAway(t *testing.T) {
	s := own(t, "--relays", "2")
	ctx := within(t)
	one, two := s.Ready.Relays[0].URL, s.Ready.Relays[1].URL
	for _, page := range []string{one, two} {
		u := s.at(1, "bob")
		grant, err := u.Grant(ctx, s.Ready.SessionID)
		must(t, err)
		ticket, err := u.Ticket(ctx, grant, s.Ready.SessionID, s.Ready.PTYID)
		must(t, err)
		term, err := Dial(ctx, ticket, page)
		must(t, err)
		t.Cleanup(term.Close)
		m, err := term.ExpectMessage(ctx, protocol.ServerMoved, nil)
		must(t, err)
		if m["origin"] != one {
			t.Errorf("moved to %v, the primary's relay is %s", m["origin"], one)
		}
		if code, err := term.ExpectClose(ctx); err != nil || code != 1012 {
			t.Errorf("closed with %v, %v", code, err)
		}
	}

	// What a page of relay 1 may do at relay 2, a foreign one may not.
	for origin, want := range map[string]int{one: http.StatusNoContent, "https://evil.example": http.StatusForbidden} {
		status, _, err := Call(ctx, http.MethodOptions, two+"/pty-session", "", nil, "Origin", origin,
			"Access-Control-Request-Method", "POST", "Access-Control-Request-Headers", "authorization,content-type")
		if err != nil || status != want {
			t.Errorf("preflight from %s: %d, %v; want %d", origin, status, err, want)
		}
	}
}

// A relay is killed: the other one has the terminal, and nothing is missing.
func TestFailoverToTheStandby(t *testing.T) {
	s := own(t, "--relays", "2")
	ctx := within(t)
	id := newPTY(t, s, ticker)
	a := attach(t, s, "alice", id)
	must(t, a.Expect(ctx, "tick 20."))
	killRelay(t, s)
	began := time.Now()
	_, err := a.ExpectClose(ctx)
	must(t, err)
	b := follow(t, ctx, s, 1, id, position(t, ctx, a))
	t.Logf("the first byte came %v after the kill", time.Since(began).Round(time.Millisecond))
	before := len(tick.FindAll(b.Output(), -1))
	must(t, b.Await(ctx, "live output", func(output []byte, _ []Message, _ error) bool {
		return len(tick.FindAll(output, -1)) > before+20
	}))
	continuous(t, append(a.Output(), b.Output()...))

	// The lease has moved along.
	must(t, b.Type(ctx, "\x03"))
	must(t, b.Expect(ctx, "^C"))

	// The killed relay is a standby when it is back.
	awaitText(ctx, t, func() string { return s.Logs("sandbox-agent-1") }, "primary=true")
	poll := time.NewTicker(20 * time.Millisecond)
	defer poll.Stop()
	for {
		_, health, err := Call(ctx, http.MethodGet, s.Ready.Relays[0].AdminURL+"/healthz", "", nil)
		if err == nil && strings.Contains(string(health), `"standby"`) {
			return
		}
		select {
		case <-poll.C:
		case <-ctx.Done():
			t.Fatalf("relay 1 has no standby: %v, %s", err, health)
		}
	}
}

// A relay that is told to end hands its terminals over first, and then ends.
func TestDrainMovesTerminals(t *testing.T) {
	s := own(t, "--relays", "2")
	ctx := within(t)
	id := newPTY(t, s, ticker)
	a := attach(t, s, "alice", id)
	must(t, a.Expect(ctx, "tick 20."))
	pid := s.Ready.Relays[0].PID
	began := time.Now()
	must(t, syscall.Kill(pid, syscall.SIGTERM))
	m, err := a.ExpectMessage(ctx, protocol.ServerMoved, nil)
	must(t, err)
	if m["origin"] != s.Ready.Relays[1].URL {
		t.Errorf("moved to %v", m["origin"])
	}
	if code, err := a.ExpectClose(ctx); err != nil || code != 1012 {
		t.Errorf("closed with %v, %v", code, err)
	}
	t.Logf("moved after %v", time.Since(began).Round(time.Millisecond))
	b := follow(t, ctx, s, 1, id, position(t, ctx, a))
	t.Logf("the first byte came %v after SIGTERM", time.Since(began).Round(time.Millisecond))
	continuous(t, append(a.Output(), b.Output()...))
	awaitRelay(ctx, t, s, 0, pid) // devstack starts it again once it has ended
	ended := time.Since(began)
	t.Logf("ended within %v", ended.Round(time.Millisecond))
	if ended > drainTimeout+held {
		t.Error("the relay has not ended within --drain-timeout")
	}
}
