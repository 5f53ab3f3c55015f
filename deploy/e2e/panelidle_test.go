package e2e

import (
	"io"
	"math"
	"net/http"
	"strconv"
	"strings"
	"testing"

	"github.com/coder/websocket"
)

// relayHolds returns what heap and stacks of the first relay take, garbage apart: the
// least of some readings, as each is of a moment.
func relayHolds(t *testing.T, s *Stack) int {
	t.Helper()
	http.DefaultClient.CloseIdleConnections()
	ctx, admin := within(t), s.Ready.Relays[0].AdminURL
	least := math.MaxInt
	for range 8 {
		collect(t, s)
		_, text, err := Call(ctx, http.MethodGet, admin+"/metrics", "", nil)
		must(t, err)
		bytes := 0
		for line := range strings.Lines(string(text)) {
			for _, name := range []string{"go_memstats_heap_inuse_bytes ", "go_memstats_stack_inuse_bytes "} {
				if number, found := strings.CutPrefix(line, name); found {
					f, err := strconv.ParseFloat(strings.TrimSpace(number), 64)
					must(t, err)
					bytes += int(f)
				}
			}
		}
		least = min(least, bytes)
	}
	return least
}

// collect collects the first relay's garbage.
func collect(t *testing.T, s *Stack) {
	t.Helper()
	status, _, err := Call(within(t), http.MethodGet, s.Ready.Relays[0].AdminURL+"/debug/pprof/heap?gc=1", "", nil)
	if err != nil || status != http.StatusOK {
		t.Fatalf("garbage collection: %d %v", status, err)
	}
}

// TestSidePanelIsLight: what a side panel costs the relay while nothing happens, once
// its claude runs, and what a stream of the chat does. Wanted are 40 KiB. A panel into
// which nobody has typed keeps them (package panelapi has that). A stream has a median
// of 37, but readings of so few differ by 8; what a terminal needs is more. Neither must
// get worse. Panels come some at a time, and garbage is collected in between: what is
// left of their coming is no cost of theirs.
func TestSidePanelIsLight(t *testing.T) {
	const warm, panels = 4, 26
	p, _ := newSide(t)
	begin := func() {
		var m sidePass
		cookie := p.ask(http.MethodPost, "/pty-session", "", http.StatusOK, &m).Cookies()[0]
		conn := p.open(m, http.Header{"Cookie": {cookie.Name + "=" + cookie.Value}})
		p.send(conn, websocket.MessageBinary, "\n")
		p.expect(conn, "size=")
	}
	alice := p.s.Ready.User("alice")
	grant, err := alice.Grant(p.ctx, p.s.Ready.SessionID)
	must(t, err)
	follow := func() {
		r, err := http.NewRequestWithContext(p.ctx, http.MethodGet, alice.Base+"/sidebar-chat/stream", nil)
		must(t, err)
		r.Header.Set("Authorization", "Bearer "+grant)
		r.Header.Set("Origin", panelOrigin)
		resp, err := http.DefaultClient.Do(r)
		must(t, err)
		t.Cleanup(func() { resp.Body.Close() })
		if resp.StatusCode != http.StatusOK {
			t.Fatalf("the stream: %d", resp.StatusCode)
		}
		_, err = io.ReadFull(resp.Body, make([]byte, 1)) // it flows
		must(t, err)
	}
	for _, one := range []struct {
		what string
		most int
		do   func()
	}{{"a stream of the chat", 56 << 10, follow}, {"a panel whose claude runs", 160 << 10, begin}} {
		for range warm { // what is allocated once
			one.do()
		}
		before := relayHolds(t, p.s)
		for i := range panels {
			one.do()
			if i%4 == 3 {
				collect(t, p.s)
			}
		}
		each := (relayHolds(t, p.s) - before) / panels
		t.Logf("%s: %.1f KiB", one.what, float64(each)/1024)
		if each > one.most {
			t.Errorf("%s: %d bytes, at most %d", one.what, each, one.most)
		}
	}
}
