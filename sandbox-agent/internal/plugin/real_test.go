package plugin

import (
	"bufio"
	"net"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/coder/websocket"

	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/protocol/pluginsocket"
	"github.com/fairlead/fairlead/protocol/wsframe"
	"github.com/fairlead/fairlead/tunnel/tunneltest"
)

// TestRealPlugin: a server as people write them, on a port of this machine.
func TestRealPlugin(t *testing.T) {
	served := make(chan struct{})
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		defer close(served)
		conn, err := websocket.Accept(w, r, nil)
		if err != nil {
			t.Error(err)
			return
		}
		defer conn.CloseNow()
		kind, data, err := conn.Read(r.Context())
		if err == nil {
			err = conn.Write(r.Context(), kind, data)
		}
		if err != nil {
			t.Error(err)
		}
		conn.Read(r.Context())
	}))
	defer server.Close()
	w := newWorld(t)
	w.upstream.network = loopback{}
	w.ports[server.Listener.Addr().(*net.TCPAddr).Port] = 2001
	if _, err := w.Register(session, "pty_1", pluginsocket.Offer{Name: "it", Port: server.Listener.Addr().(*net.TCPAddr).Port}); err != nil {
		t.Fatal(err)
	}
	client := w.dials("it")
	client.send(wsframe.Text, "hello")
	client.gets(wsframe.Text, "hello")
	client.closes(4001, "done")
	if got := client.closed(); got != "4001 done" {
		t.Error(got)
	}
	<-served
	if how := client.ended(); how != endedClosed {
		t.Error(how)
	}
}

// TestOverTunnel: the relay's end of a stream is a client like any other, also when
// it says nothing before the plugin has answered.
func TestOverTunnel(t *testing.T) {
	w := newWorld(t).runs()
	agent, relay := tunneltest.Pair(t)
	how := make(chan string, 1)
	go func() { // the test waits for what it says
		in, err := agent.Accept(t.Context())
		if err != nil {
			return
		}
		stream, err := in.Accept(protocol.Opened{})
		if err != nil {
			return
		}
		defer stream.Close()
		how <- w.serve(t.Context(), newEnd(stream, bufio.NewReaderSize(stream, wsframe.Window), false), session, "it")
	}()
	stream, _, err := relay.Open(t.Context(), protocol.LaneBulk, protocol.Open{Kind: protocol.StreamHTTP})
	if err != nil {
		t.Fatal(err)
	}
	defer stream.Close()
	client := &wire{t: t, Conn: stream, from: bufio.NewReader(stream), client: true}
	plugin := w.answers()
	client.send(wsframe.Text, "hello")
	plugin.gets(wsframe.Text, "hello")
	plugin.send(wsframe.Text, "world")
	client.gets(wsframe.Text, "world")
	plugin.closes(3000, "")
	if got := client.closed(); got != "3000 " {
		t.Error(got)
	}
	client.closes(3000, "")
	plugin.closed()
	plugin.Close()
	if got := <-how; got != endedClosed {
		t.Error(got)
	}
}
