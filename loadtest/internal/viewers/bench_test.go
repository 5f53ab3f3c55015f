package viewers

import (
	"bufio"
	"encoding/binary"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/coder/websocket"

	"github.com/fairlead/fairlead/loadtest/internal/measure"
	"github.com/fairlead/fairlead/loadtest/internal/pattern"
)

// BenchmarkViewer reads, checks and times chunks as a generator does, from 200
// sockets. What is measured includes the writes of the other side.
func BenchmarkViewer(b *testing.B) {
	const sockets = 200
	var mu sync.Mutex
	var conns []net.Conn
	all := make(chan struct{}) // closed when there are as many as sockets
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		raw := &kept{ResponseWriter: w}
		if _, err := websocket.Accept(raw, r, nil); err != nil {
			return
		}
		mu.Lock()
		defer mu.Unlock()
		if conns = append(conns, raw.conn); len(conns) == sockets {
			close(all) // viewers are in before their handlers get here
		}
	}))
	defer server.Close()
	rec := measure.NewRecorder()
	rec.Begin(time.Now())
	c, err := newWorker(Spec{URL: "ws" + strings.TrimPrefix(server.URL, "http"), Viewers: sockets}, 0, 1, rec)
	if err != nil {
		b.Fatal(err)
	}
	defer c.Close()
	if in, err := c.join(b.Context(), Join{Within: 10 * time.Second}); err != nil || in.In != sockets {
		b.Fatal(in, err)
	}
	<-all
	rounds := max(1, b.N/sockets)
	stream := pattern.Spec{Seed: 1, Chunk: 1024, Rate: 1e6, Start: time.Now(), Chunks: rounds}
	if _, err := c.arm(b.Context(), Arm{Streams: []pattern.Spec{stream}}); err != nil {
		b.Fatal(err)
	}
	b.ResetTimer()
	var frame []byte
	for k := range rounds {
		frame = binary.BigEndian.AppendUint16(append(frame[:0], 0x82, 126), uint16(stream.Chunk))
		frame = stream.Append(frame, k)
		for _, conn := range conns {
			if _, err := conn.Write(frame); err != nil {
				b.Fatal(err)
			}
		}
	}
	tally, err := c.finish(b.Context(), Finish{Deadline: time.Now().Add(time.Minute)})
	b.StopTimer()
	if err != nil || tally.Clean != sockets {
		b.Fatal(fmt.Sprintf("%+v", tally), err)
	}
	for _, conn := range conns {
		conn.Close()
	}
}

// kept gives the connection of a WebSocket away.
type kept struct {
	http.ResponseWriter
	conn net.Conn
}

func (k *kept) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	conn, rw, err := http.NewResponseController(k.ResponseWriter).Hijack()
	k.conn = conn
	return conn, rw, err
}
