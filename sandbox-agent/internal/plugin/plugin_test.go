package plugin

import (
	"fmt"
	"io"
	"net/http"
	"os"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fairlead/fairlead/protocol/pluginsocket"
	"github.com/fairlead/fairlead/protocol/wsframe"
)

// inWorld runs a test in a bubble, with a plugin "it".
func inWorld(t *testing.T, test func(*testing.T, *world)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) { test(t, newWorld(t).runs()) })
}

// meg is a message as large as allowed.
var meg = strings.Repeat("0123456789abcdef", pluginsocket.MaxMessage/16)

// TestFrames: what one end sends the other gets, of its type and in its order, as
// large as allowed, in fragments with a ping between them.
func TestFrames(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		client := w.dials("it")
		plugin := w.answers()
		for _, way := range [][2]*wire{{client, plugin}, {plugin, client}} {
			from, to := way[0], way[1]
			go func() {
				from.send(wsframe.Text, "häßlich")
				from.send(wsframe.Binary, "\x00\xff")
				from.send(wsframe.Text, "")
				from.send(wsframe.Binary, meg)
				from.raw(string(from.frame(false, wsframe.Text, []byte(meg[:70_000]))))
				from.send(wsframe.Ping, "are you there")
				from.send(wsframe.Pong, "")
				from.raw(string(from.frame(true, wsframe.Continuation, []byte("end"))))
			}()
			to.gets(wsframe.Text, "häßlich")
			to.gets(wsframe.Binary, "\x00\xff")
			to.gets(wsframe.Text, "")
			to.gets(wsframe.Binary, meg)
			// A control frame between fragments stays between them.
			var parts int
			for parts < 70_000 {
				h, payload := to.piece()
				parts += len(payload)
				if h.Final {
					t.Error("the message ends too early")
				}
			}
			to.gets(wsframe.Ping, "are you there")
			to.gets(wsframe.Pong, "")
			if h, payload := to.piece(); !h.Final || string(payload) != "end" {
				t.Errorf("%+v %q", h, payload)
			}
		}
		client.closes(1000, "bye")
		if got := plugin.closed(); got != "1000 bye" {
			t.Error(got)
		}
		plugin.closes(1000, "bye")
		if got := client.closed(); got != "1000 bye" {
			t.Error(got)
		}
		plugin.Close()
		if how := client.ended(); how != endedClosed {
			t.Error(how)
		}
	})
}

// piece returns the next frame as it is.
func (c *wire) piece() (h wsframe.Header, payload []byte) {
	c.t.Helper()
	var head []byte
	n := 0
	for n == 0 {
		b, err := c.from.ReadByte()
		if err != nil {
			c.t.Fatal(err)
		}
		head = append(head, b)
		h, n, _ = wsframe.Parse(head)
	}
	payload = make([]byte, h.Length)
	io.ReadFull(c.from, payload)
	mask(h, payload)
	return h, payload
}

// TestCloseCodes: each end's code and reason come through (weakness 17), and an end
// that doesn't answer is answered for.
func TestCloseCodes(t *testing.T) {
	for _, code := range []int{1000, 1001, 1011, 3000, 4000, 4999} {
		for _, answers := range []bool{true, false} {
			inWorld(t, func(t *testing.T, w *world) {
				client := w.dials("it")
				plugin := w.answers()
				said := fmt.Sprint(code, " why")
				client.closes(code, "why")
				if got := plugin.closed(); got != said {
					t.Errorf("the plugin was told %s", got)
				}
				if answers {
					plugin.closes(code, "why")
					plugin.Close()
				}
				began := time.Now()
				if got := client.closed(); got != said {
					t.Errorf("the client was told %s", got)
				}
				if took := time.Since(began); answers != (took == 0) || took > closeTimeout {
					t.Errorf("after %s", took)
				}
				client.ended()
				plugin.Close()
			})
			inWorld(t, func(t *testing.T, w *world) {
				client := w.dials("it")
				plugin := w.answers()
				plugin.closes(code, "why")
				if got := client.closed(); got != fmt.Sprint(code, " why") {
					t.Errorf("the client was told %s", got)
				}
				if answers {
					client.closes(code, "why")
				}
				if got := plugin.closed(); got != fmt.Sprint(code, " why") {
					t.Errorf("the plugin was told %s", got)
				}
				plugin.Close()
				if how := client.ended(); how != endedClosed {
					t.Error(how)
				}
			})
		}
	}
}

// TestRefusals: who can't be led to a plugin is told why, in the seed's words.
func TestRefusals(t *testing.T) {
	for name, want := range map[string]string{
		"../x": "4400 Invalid plugin name", "%2e": "4400 Invalid plugin name", "": "4400 Invalid plugin name",
		"a/b": "4400 Invalid plugin name", "é": "4400 Invalid plugin name", strings.Repeat("a", pluginsocket.MaxName+1): "4400 Invalid plugin name",
		"other": "4404 Plugin not running",
	} {
		inWorld(t, func(t *testing.T, w *world) {
			client := w.dials(name)
			if got := client.closed(); got != want {
				t.Errorf("%q: %s", name, got)
			}
			client.ended()
		})
	}
	for name, change := range map[string]func(*world){
		"dead":                 func(w *world) { delete(w.ports, port) },
		"another's port":       func(w *world) { w.ports[port] = 2002 },
		"its terminal is over": func(w *world) { w.ended1() },
		"its session is over":  func(w *world) { w.SessionEnded(session) },
	} {
		inWorld(t, func(t *testing.T, w *world) {
			change(w)
			client := w.dials("it")
			if got := client.closed(); got != "4404 Plugin not running" {
				t.Errorf("%s: %s", name, got)
			}
			if how := client.ended(); how != endedMissing || len(w.known.names) != 0 {
				t.Errorf("%s: %s, and the name is kept", name, how)
			}
		})
	}
}

// TestUpstreamErrors: a plugin that doesn't do what WebSockets do is said to be
// faulty, in time also if it says nothing.
func TestUpstreamErrors(t *testing.T) {
	for name, plugin := range map[string]func(*world, *wire, *http.Request){
		"silent":       func(*world, *wire, *http.Request) {},
		"gone":         func(_ *world, p *wire, _ *http.Request) { p.Close() },
		"no WebSocket": func(_ *world, p *wire, _ *http.Request) { p.raw("HTTP/1.1 404 Not Found\r\n\r\n") },
		"another key":  func(_ *world, p *wire, r *http.Request) { r.Header.Set("Sec-WebSocket-Key", "x"); p.upgrade(r) },
		"no HTTP":      func(_ *world, p *wire, _ *http.Request) { p.raw("SSH-2.0-x\r\n\r\n") },
		"endless":      func(_ *world, p *wire, _ *http.Request) { io.WriteString(p.Conn, strings.Repeat("x", 1<<20)) },
		"extension": func(_ *world, p *wire, _ *http.Request) {
			p.raw("HTTP/1.1 101 X\r\nUpgrade: websocket\r\nSec-WebSocket-Extensions: x\r\n\r\n")
		},
		"masked":        func(_ *world, p *wire, r *http.Request) { p.upgrade(r); p.raw("\x81\x81\x01\x02\x03\x04a") },
		"reserved bits": func(_ *world, p *wire, r *http.Request) { p.upgrade(r); p.raw("\xF1\x01") },
		"breaks off":    func(_ *world, p *wire, r *http.Request) { p.upgrade(r); p.Close() },
		"breaks off in a frame": func(_ *world, p *wire, r *http.Request) {
			p.upgrade(r)
			p.raw(string(p.frame(true, wsframe.Binary, []byte(meg)))[:500_000])
			p.Close()
		},
	} {
		inWorld(t, func(t *testing.T, w *world) {
			client := w.dials("it")
			began := time.Now()
			far, r := w.taken()
			done := make(chan struct{})
			go func() { // the client waits for what it does
				defer close(done)
				plugin(w, far, r)
				io.Copy(io.Discard, far.from)
			}()
			if got := client.closed(); got != "4502 Upstream error" {
				t.Errorf("%s: %s", name, got)
			}
			if took := time.Since(began); took > upstreamTimeout {
				t.Errorf("%s: after %s", name, took)
			}
			client.Close()
			if how := client.ended(); how != endedUpstream {
				t.Errorf("%s: %s", name, how)
			}
			far.Close()
			<-done
		})
	}
}

// TestTooLarge: a message over the bound ends the socket with 1009 for both.
func TestTooLarge(t *testing.T) {
	for _, up := range []bool{true, false} {
		inWorld(t, func(t *testing.T, w *world) {
			client := w.dials("it")
			plugin := w.answers()
			from := plugin
			if up {
				from = client
			}
			go func() { from.Write(from.frame(true, wsframe.Binary, []byte(meg+"x"))) }()
			told := make(chan string)
			go func() { told <- plugin.closed() }()
			if got := client.closed(); !strings.HasPrefix(got, "1009 ") {
				t.Errorf("the client was told %s", got)
			}
			if got := <-told; !strings.HasPrefix(got, "1009 ") {
				t.Errorf("the plugin was told %s", got)
			}
			client.Close()
			plugin.Close()
			if how := client.ended(); how != endedTooLarge {
				t.Error(how)
			}
		})
	}
}

// TestClientFaults: a client that breaks the rules is told so, and the plugin that
// it is gone. So it is when a client just goes, also within a frame.
func TestClientFaults(t *testing.T) {
	for sent, want := range map[string]string{"\x81\x01a": "1002 a frame is not masked", "\xF1": "1002 reserved bits are set", "\x81\xFF\x00": "none", "": "none"} {
		inWorld(t, func(t *testing.T, w *world) {
			client := w.dials("it")
			plugin := w.answers()
			client.send(wsframe.Text, "before")
			plugin.gets(wsframe.Text, "before")
			if want == "none" {
				client.raw(sent)
				client.Close()
			} else {
				go io.WriteString(client.Conn, sent)
				if got := client.closed(); got != want {
					t.Errorf("%q: %s", sent, got)
				}
			}
			if got := plugin.closed(); got != "1001 the client is gone" {
				t.Errorf("%q: the plugin was told %s", sent, got)
			}
			plugin.Close()
			client.ended()
		})
	}
}

// TestKept: what comes before the plugin has answered is kept, up to a window, and
// the rest held back; then all of it arrives in its order (weakness 17).
func TestKept(t *testing.T) {
	const frames = 10_000
	inWorld(t, func(t *testing.T, w *world) {
		client := w.dials("it")
		plugin, r := w.taken()
		sent, taken := make(chan struct{}), 0
		go func() {
			defer close(sent)
			for i := range frames {
				b := client.frame(true, wsframe.Text, fmt.Appendf(nil, "frame %06d", i))
				for len(b) > 0 {
					n := min(len(b), 7)
					if _, err := client.Write(b[:n]); err != nil {
						t.Error(err)
						return
					}
					taken += n
					b = b[n:]
				}
			}
		}()
		synctest.Wait()
		if taken < 60_000 || taken > wsframe.Window {
			t.Errorf("%d bytes were taken", taken)
		}
		plugin.upgrade(r)
		for i := range frames {
			plugin.gets(wsframe.Text, fmt.Sprintf("frame %06d", i))
		}
		<-sent
		client.Close()
		plugin.closed()
		plugin.Close()
		client.ended()
	})
}

// TestFewKept: what a window has room for arrives when the plugin answers, also
// when the client says no more.
func TestFewKept(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		client := w.dials("it")
		plugin, r := w.taken()
		client.send(wsframe.Text, "one")
		client.closes(4001, "two")
		synctest.Wait()
		time.Sleep(upstreamTimeout - time.Millisecond)
		plugin.upgrade(r)
		plugin.gets(wsframe.Text, "one")
		if got := plugin.closed(); got != "4001 two" {
			t.Error(got)
		}
		plugin.closes(4001, "two")
		plugin.Close()
		if got := client.closed(); got != "4001 two" {
			t.Error(got)
		}
		client.ended()
	})
}

// TestGoneBefore: a client that goes before the plugin has answered isn't waited for.
func TestGoneBefore(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		client := w.dials("it")
		plugin, _ := w.taken()
		began := time.Now()
		client.send(wsframe.Text, "one")
		client.Close()
		if how := <-client.served; how != endedGone || time.Since(began) != 0 {
			t.Errorf("%s after %s", how, time.Since(began))
		}
		if _, err := plugin.from.ReadByte(); err != io.EOF {
			t.Errorf("the plugin reads %v", err)
		}
		plugin.Close()
	})
}

// TestHeldBack: an end that reads nothing costs no more than windows; what the other
// has sent arrives later, to the last byte.
func TestHeldBack(t *testing.T) {
	for _, up := range []bool{true, false} {
		inWorld(t, func(t *testing.T, w *world) {
			client := w.dials("it")
			plugin := w.answers()
			from, to := client, plugin
			if !up {
				from, to = plugin, client
			}
			from.SetWriteDeadline(time.Now().Add(time.Hour))
			b := from.frame(true, wsframe.Binary, []byte(meg))
			n, err := from.Write(b)
			if !os.IsTimeout(err) || n < wsframe.Piece || n > 2*wsframe.Window {
				t.Errorf("%d bytes were taken, %v", n, err)
			}
			from.SetWriteDeadline(time.Time{})
			go func() { from.Write(b[n:]) }()
			to.gets(wsframe.Binary, meg)
			client.Close()
			plugin.closed()
			plugin.Close()
			client.ended()
		})
	}
}

// TestStuckEnds: a client that reads nothing, and a plugin that doesn't answer, keep
// no socket open once the client has closed it.
func TestStuckEnds(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		client := w.dials("it")
		plugin := w.answers()
		go func() { plugin.Write(plugin.frame(true, wsframe.Binary, []byte(meg))) }() // which nobody reads
		go io.Copy(io.Discard, plugin.from)                                           // but it answers nothing
		synctest.Wait()
		began := time.Now()
		client.closes(1000, "")
		how := <-client.served
		if took := time.Since(began); how != endedClosed || took > closeTimeout+4*lastWords {
			t.Errorf("%s after %s", how, took)
		}
		client.Close()
		plugin.Close()
	})
}

// TestNothingOfOurs: a plugin is asked for a WebSocket, and told nothing else.
func TestNothingOfOurs(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		client := w.dials("it")
		plugin, r := w.taken()
		var names []string
		for name := range r.Header {
			names = append(names, name)
		}
		slices.Sort(names)
		if want := []string{"Connection", "Sec-Websocket-Key", "Sec-Websocket-Version", "Upgrade"}; !slices.Equal(names, want) || r.RequestURI != "/ws" {
			t.Errorf("%s %v", r.RequestURI, names)
		}
		plugin.Close()
		client.closed()
		client.ended()
	})
}
