//go:build !race

package panelapi

import (
	"bufio"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"runtime"
	"testing"

	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/protocol/jws"
)

// mostIdle is what an idle side panel may cost the relay, in bytes.
const mostIdle = 40 << 10

// memory returns what heap and stacks take.
func memory() int64 {
	var m runtime.MemStats
	for range 3 {
		runtime.GC()
	}
	runtime.ReadMemStats(&m)
	return int64(m.HeapInuse + m.StackInuse)
}

// raw opens a socket whose client costs next to nothing.
func (w *world) raw(m mint) net.Conn {
	w.t.Helper()
	at, err := url.Parse(w.origin)
	if err != nil {
		w.t.Fatal(err)
	}
	conn, err := net.Dial("tcp", at.Host)
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() { conn.Close() })
	fmt.Fprintf(conn, "GET /ws HTTP/1.1\r\nHost: %s\r\nOrigin: %s\r\nCookie: gstack_pty=%s\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"+
		"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n", at.Host, ours, m.cookie.Value)
	resp, err := http.ReadResponse(bufio.NewReaderSize(conn, 512), nil)
	if err != nil || resp.StatusCode != http.StatusSwitchingProtocols {
		w.t.Fatal(resp, err)
	}
	return conn
}

// An open side panel into which nobody has typed costs little, and nothing at all in
// the sandbox.
func TestAnIdlePanelCostsLittle(t *testing.T) {
	w := newWorld(t)
	const panels = 100
	open := func(who int) {
		w.raw(w.mint(func(g *jws.Grant) { g.Subject = protocol.UserID(fmt.Sprintf("usr_%d", who)) }))
	}
	for i := range 20 { // what is allocated once
		open(i)
	}
	before := memory()
	for i := range panels {
		open(1000 + i)
	}
	each := (memory() - before) / panels
	t.Logf("%d bytes each, its client's socket included", each)
	if each > mostIdle {
		t.Errorf("%d bytes each, at most %d", each, mostIdle)
	}
	if len(w.ops) > 0 || w.gauge("fairlead_panel_sockets") != 20+panels {
		t.Errorf("%v, %v sockets", w.ops, w.gauge("fairlead_panel_sockets"))
	}
}
