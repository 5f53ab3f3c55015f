package gateway

import (
	"net/http/httptest"
	"testing"

	"github.com/coder/websocket"

	"github.com/fairlead/fairlead/protocol"
)

// TestFound10SocketsPerPerson: who has as many sockets as one may have gets no
// more, whatever grants they come by, and keeps nobody else out.
func TestFound10SocketsPerPerson(t *testing.T) {
	w := newWorld(t, (*httptest.Server).Start)
	w.gateway.SocketsPerPerson = 3
	var seated []*client
	for range 3 {
		c := w.dial(bob)
		c.text(protocol.ServerAttached)
		seated = append(seated, c)
	}
	more := w.dial(bob)
	if _, _, err := more.Read(more.ctx); websocket.CloseStatus(err) != 4429 {
		t.Errorf("the fourth socket: %v", err)
	}
	w.dial(nil).text(protocol.ServerAttached) // somebody else
	seated[0].Close(websocket.StatusNormalClosure, "")
	for {
		again := w.dial(bob)
		kind, _, err := again.Read(again.ctx)
		if err == nil && kind == websocket.MessageText {
			return
		}
		if websocket.CloseStatus(err) != 4429 {
			t.Fatal(err)
		}
	}
}
