//go:build !race

package chatapi

import (
	"bufio"
	"bytes"
	"crypto/rand"
	"encoding/base64"
	"fmt"
	"io"
	"net"
	"net/http"
	"runtime"
	"testing"

	"github.com/fairlead/fairlead/protocol"
)

// TestIdleSocketMemory: what a socket that follows a conversation takes when
// nothing comes, with its connection, its reader and its writer. Its client takes
// a little of that.
func TestIdleSocketMemory(t *testing.T) {
	const n, most = 500, 28 << 10
	w := newWorld(t)
	w.api.Desk.SocketsPerPerson = n
	_, token := w.authority.Grant(caps("alice", protocol.CapChat))
	var conns []net.Conn
	open := func() {
		conn, err := net.Dial("tcp", w.origin[len("http://"):])
		if err != nil {
			t.Fatal(err)
		}
		conns = append(conns, conn)
		if err := followRaw(conn, w.origin, w.ticket(token)); err != nil {
			t.Fatal(err)
		}
	}
	used := func() uint64 {
		var m runtime.MemStats
		for range 3 {
			runtime.GC()
		}
		runtime.ReadMemStats(&m)
		return m.HeapInuse + m.StackInuse
	}
	open() // the conversation's own
	before := used()
	for range n - 1 {
		open()
	}
	each := (int64(used()) - int64(before)) / (n - 1)
	t.Logf("%d bytes", each)
	if each > most {
		t.Errorf("%d bytes for each socket, at most %d", each, most)
	}
	for _, conn := range conns {
		conn.Close()
	}
}

// followRaw opens a chat socket and waits until it follows the conversation.
func followRaw(conn net.Conn, origin, ticket string) error {
	key := make([]byte, 16)
	rand.Read(key)
	if _, err := fmt.Fprintf(conn, "GET %s HTTP/1.1\r\nHost: %s\r\nOrigin: %s\r\nAuthorization: Bearer %s\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"+
		"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: %s\r\n\r\n", SocketPath, origin[len("http://"):], origin, ticket, base64.StdEncoding.EncodeToString(key)); err != nil {
		return err
	}
	in := bufio.NewReaderSize(conn, 512)
	resp, err := http.ReadResponse(in, nil)
	if err != nil {
		return err
	}
	if resp.StatusCode != http.StatusSwitchingProtocols {
		return fmt.Errorf("%s", resp.Status)
	}
	text := []byte(`{"type":"chat.subscribe","sessions":[{"sessionId":"` + conv + `","lastSeq":0}]}`)
	frame := append([]byte{0x81, 0x80 | byte(len(text)), 0, 0, 0, 0}, text...) // masked with zeros
	if _, err := conn.Write(frame); err != nil {
		return err
	}
	var got bytes.Buffer
	for !bytes.Contains(got.Bytes(), []byte("chat_subscribed")) {
		if _, err := io.CopyN(&got, in, 1); err != nil {
			return err
		}
	}
	return nil
}
