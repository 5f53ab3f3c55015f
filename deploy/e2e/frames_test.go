package e2e

import (
	"bytes"
	"compress/flate"
	"compress/gzip"
	"flag"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/fairlead/fairlead/protocol"
)

// long asks for the full size of the tests of threats-and-faults.md.
var long = flag.Bool("security.long", false, "the long form of the TestCases")

// frames opens a terminal's socket for alice.
func frames(t *testing.T, s *Stack, id protocol.PTYID, more string) *Frames {
	t.Helper()
	ctx, alice := within(t), s.Ready.User("alice")
	grant, err := alice.Grant(ctx, s.Ready.SessionID)
	must(t, err)
	ticket, err := alice.Ticket(ctx, grant, s.Ready.SessionID, id)
	must(t, err)
	f, err := DialFrames(ctx, ticket, alice.Base, more)
	must(t, err)
	t.Cleanup(func() { f.Close() })
	return f
}

// echoes types into a shell and awaits what it makes of it.
func (f *Frames) echoes(t *testing.T, n int) {
	t.Helper()
	must(t, f.Send(bitFIN|opBinary, fmt.Appendf(nil, "echo $((%d+1))-is-here\r", n)))
	var output []byte
	for want := fmt.Sprintf("%d-is-here", n+1); !bytes.Contains(output, []byte(want)); {
		first, payload, err := f.Next()
		must(t, err)
		if first&0xf == opBinary {
			output = append(output, payload...)
		}
	}
}

// TestCase37TwoPongsPerPing: a client that answers each ping twice, and answers
// what nobody asked, is served as any other.
func TestCase37TwoPongsPerPing(t *testing.T) {
	s := shared(t)
	f := frames(t, s, newPTY(t, s, ""), "")
	f.echoes(t, 1)
	for i := range 1000 {
		pong := frame(bitFIN|opPong, fmt.Append(nil, i%5)) // libraries number their pings
		_, err := f.Write(append(append(pong, pong...), frame(bitFIN|opPong, nil)...))
		must(t, err)
	}
	f.echoes(t, 2)
	if *long { // a real one comes after 25 s
		for {
			first, payload, err := f.Next()
			must(t, err)
			if first&0xf == opPing {
				pong := frame(bitFIN|opPong, payload)
				_, err := f.Write(append(pong, pong...))
				must(t, err)
				break
			}
		}
		f.echoes(t, 3)
	}
}

// TestCase42DeflateBomb: nothing that comes is unpacked, so nothing small becomes
// something large: not a socket's messages, not the body of a request.
func TestCase42DeflateBomb(t *testing.T) {
	s := shared(t)
	ctx := within(t)
	alice := s.Ready.User("alice")
	const size = 64 << 20
	before := residentOf(t, s.Ready.Relays[0].PID)

	offer := "Sec-WebSocket-Extensions: permessage-deflate; client_max_window_bits, x-webkit-deflate-frame\r\n"
	f := frames(t, s, newPTY(t, s, ""), offer)
	if agreed := f.Upgraded.Header.Get("Sec-WebSocket-Extensions"); agreed != "" {
		t.Errorf("the relay agreed on %q", agreed)
	}
	var bomb bytes.Buffer
	w, err := flate.NewWriter(&bomb, flate.BestCompression)
	must(t, err)
	_, err = w.Write(make([]byte, size))
	must(t, err)
	must(t, w.Close())
	f.Send(bitFIN|bitRSV1|opBinary, bomb.Bytes()) // it may be refused before all of it is there
	if code, err := f.Closed(); code != 1002 && (code != 0 || err == nil) {
		t.Errorf("closed with %d, %v; want 1002", code, err)
	}

	var packed bytes.Buffer
	z := gzip.NewWriter(&packed)
	fmt.Fprintf(z, `{"session_id":"%s","capabilities":["%s"]}`, s.Ready.SessionID, strings.Repeat("a", size))
	must(t, z.Close())
	for _, route := range []string{alice.Base + "/grants", s.Ready.ControlPlane.URL + "/grants", alice.Base + "/pty-session", alice.Base + "/control/commands"} {
		req, err := http.NewRequestWithContext(ctx, http.MethodPost, route, bytes.NewReader(packed.Bytes()))
		must(t, err)
		req.Header.Set("Authorization", "Bearer "+alice.Token)
		req.Header.Set("Content-Type", "application/json")
		req.Header.Set("Content-Encoding", "gzip")
		resp, err := http.DefaultClient.Do(req)
		must(t, err)
		resp.Body.Close()
		if resp.StatusCode < 400 || resp.StatusCode >= 500 {
			t.Errorf("%s took a packed body: %s", route, resp.Status)
		}
	}
	if grown := residentOf(t, s.Ready.Relays[0].PID) - before; grown > size/2 {
		t.Errorf("the relay has grown by %d bytes", grown)
	}
}

// TestCase36BadText: text that is no JSON, or too much of it, is answered with an
// error and ends nothing.
func TestCase36BadText(t *testing.T) {
	s := shared(t)
	ctx := within(t)
	a := attach(t, s, "alice", newPTY(t, s, ""))
	bad := []string{
		"{\"type\":\"\xff\"}", "\xc3\x28", `{"type":"resize","cols":1e400,"rows":24}`, `{"type":"resize","cols":-1e400,"rows":24}`,
		strings.Repeat(`{"a":`, 10_000) + "1" + strings.Repeat("}", 10_000), strings.Repeat("[", 10_000) + strings.Repeat("]", 10_000),
		`{"type":"ping","type":"resize"}`, "\u0000",
	}
	for i, text := range bad {
		must(t, a.Text(ctx, text))
		must(t, a.Await(ctx, fmt.Sprintf("an error for %.30q", text), func(_ []byte, messages []Message, _ error) bool {
			n := 0
			for _, m := range messages {
				if m.Type() == protocol.ServerError {
					n++
				}
			}
			return n == i+1
		}))
	}
	must(t, a.Type(ctx, "echo still-$((40+2))\r"))
	must(t, a.Expect(ctx, "still-42\r\n"))
}

// TestCase38ViewerTypes: what a viewer types is dropped, told once and counted;
// the terminal's program reads none of it.
func TestCase38ViewerTypes(t *testing.T) {
	s := shared(t)
	ctx := within(t)
	id := newPTY(t, s, "stty -echo; echo reads; cat -v")
	a := attach(t, s, "alice", id)
	must(t, a.Expect(ctx, "reads\r\n"))
	refused := func() int {
		_, text, err := Call(ctx, http.MethodGet, s.Ready.Relays[0].AdminURL+"/metrics", "", nil)
		must(t, err)
		n := 0
		for line := range strings.Lines(string(text)) {
			if rest, found := strings.CutPrefix(line, `fairlead_input_refused_total{reason="not_controller"} `); found {
				_, err := fmt.Sscan(rest, &n)
				must(t, err)
			}
		}
		return n
	}
	before := refused()
	const tries = 20
	for _, name := range []string{"carol", "bob"} {
		viewer := attach(t, s, name, id)
		_, err := viewer.ExpectMessage(ctx, protocol.ServerAttached, nil)
		must(t, err)
		for range tries {
			must(t, viewer.Type(ctx, "intruder\r"))
		}
		must(t, viewer.Say(ctx, Message{"type": "input", "user_id": string(s.Ready.User("alice").ID), "data": "aW50cnVkZXI="}))
		m, err := viewer.ExpectMessage(ctx, protocol.ServerInputRefused, nil)
		must(t, err)
		if m["reason"] != string(protocol.RefusedNotController) {
			t.Errorf("%s is told %v", name, m)
		}
		await(t, "what was refused to be counted", func() bool { return refused() >= before+tries })
		before += tries
	}
	must(t, a.Type(ctx, "end-of-it\r"))
	must(t, a.Expect(ctx, "end-of-it"))
	if bytes.Contains(a.Output(), []byte("intruder")) {
		t.Errorf("the program read what a viewer typed: %q", a.Output())
	}
}

// TestCase39Sizes: sizes that can't be are refused, those that are too large are
// cut to 1000, and those that come quickly reach the program 20 times a second at
// most, the last one among them.
func TestCase39Sizes(t *testing.T) {
	s := shared(t)
	ctx := within(t)
	id := newPTY(t, s, `n=0; trap 'n=$((n+1))' WINCH; echo reads; while :; do read -r x && echo "$n sizes, $(stty size)"; done`)
	a := attach(t, s, "alice", id)
	must(t, a.Expect(ctx, "reads\r\n"))
	for i, size := range []string{`0,"rows":24`, `-1,"rows":24`, `65536,"rows":24`, `"80","rows":24`, `80,"rows":0`} {
		must(t, a.Text(ctx, `{"type":"resize","cols":`+size+`}`))
		must(t, a.Await(ctx, "an error for "+size, func(_ []byte, messages []Message, _ error) bool {
			n := 0
			for _, m := range messages {
				if m.Type() == protocol.ServerError {
					n++
				}
			}
			return n == i+1
		}))
	}
	must(t, a.Say(ctx, Message{"type": "resize", "cols": 65535, "rows": 65535}))
	_, err := a.ExpectMessage(ctx, protocol.ServerResized, func(m Message) bool { return m["cols"] == 1000.0 && m["rows"] == 1000.0 })
	must(t, err)
	began := time.Now()
	for i := range 1000 {
		must(t, a.Say(ctx, Message{"type": "resize", "cols": 100 + i%2, "rows": 30}))
	}
	must(t, a.Say(ctx, Message{"type": "resize", "cols": 77, "rows": 22}))
	_, err = a.ExpectMessage(ctx, protocol.ServerResized, func(m Message) bool { return m["cols"] == 77.0 && m["rows"] == 22.0 })
	must(t, err)
	sizes := 0
	for _, m := range a.Messages() {
		if m.Type() == protocol.ServerResized {
			sizes++
		}
	}
	if most := 20*int(time.Since(began).Seconds()+1) + 4; sizes > most {
		t.Errorf("%d sizes in %v, more than %d", sizes, time.Since(began), most)
	}
	must(t, a.Type(ctx, "\r"))
	must(t, a.Expect(ctx, "sizes, 22 77\r\n"))
	t.Logf("%d sizes", sizes)
}
