package gateway

import (
	"fmt"
	"net"
	"net/http/httptest"
	"runtime"
	"strings"
	"testing"

	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/relay/internal/relaytest"
)

// An idle viewer is the commonest one. What it holds of heap and stacks is bounded,
// and it has one goroutine: the one that waits for what it says.
func TestAnIdleViewerCostsLittle(t *testing.T) {
	const few, viewers, most = 20, 300, mostIdle // the client's end, of half a KiB, is in it
	w := newWorld(t, (*httptest.Server).Start)
	w.gateway.SocketsPerPerson = few + viewers
	tickets := make([]string, few+viewers)
	for i := range tickets {
		tickets[i], _ = w.ticket(w.grant(nil), relaytest.PTY)
	}
	sockets := make([]net.Conn, 0, len(tickets))
	come := func(tickets []string) {
		for _, ticket := range tickets {
			sockets = append(sockets, w.bareSocket(ticket))
		}
	}
	come(tickets[:few]) // whatever is made once
	goroutines, before := runtime.NumGoroutine(), live()
	come(tickets[few:])
	each := (live() - before) / viewers
	for range 20 { // whoever came last may still be on its way to be idle
		if each <= most && runtime.NumGoroutine()-goroutines <= viewers+10 {
			break
		}
		each = (live() - before) / viewers
	}
	more := runtime.NumGoroutine() - goroutines
	t.Logf("%d bytes of heap and stacks, and %.2f goroutines, for each of %d idle viewers", each, float64(more)/viewers, viewers)
	if each > most {
		t.Errorf("an idle viewer takes %d bytes, over %d", each, most)
	}
	if more > viewers+10 {
		t.Errorf("%d goroutines for %d idle viewers", more, viewers)
	}
	for _, c := range sockets {
		c.Close()
	}
}

// live returns the bytes of heap and stacks in use.
func live() int {
	var m runtime.MemStats
	for range 3 { // pools give up what they have at the second collection, and stacks shrink
		runtime.GC()
	}
	runtime.ReadMemStats(&m)
	return int(m.HeapAlloc + m.StackInuse)
}

// bareSocket opens a terminal's socket that nobody reads after its greeting. The
// client's end takes next to no memory.
func (w *world) bareSocket(ticket string) net.Conn {
	w.t.Helper()
	c, err := net.Dial("tcp", strings.TrimPrefix(w.server.URL, "http://"))
	if err != nil {
		w.t.Fatal(err)
	}
	fmt.Fprintf(c, "GET %s HTTP/1.1\r\nHost: %s\r\nOrigin: %s\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n"+
		"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Protocol: %s, %s\r\n\r\n",
		w.path, c.RemoteAddr(), w.server.URL, protocol.SubprotocolTerminal, protocol.SubprotocolTicket+ticket)
	for seen := ""; !strings.Contains(seen, `"attached"`); {
		piece := make([]byte, 4096)
		n, err := c.Read(piece)
		if err != nil {
			w.t.Fatalf("%v after %q", err, seen)
		}
		seen += string(piece[:n])
	}
	return c
}
