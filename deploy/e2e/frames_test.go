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
