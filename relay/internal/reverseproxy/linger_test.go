package reverseproxy

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"testing"
	"time"

	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/protocol/jws"
)

// Who sends its whole body before it reads gets the early answer, be it the
// sandbox's or the relay's own, and not a reset.
func TestEarlyAnswer(t *testing.T) {
	const size = 24 << 20 // more than the kernels hold
	w := newWorld(t, func(rw http.ResponseWriter, r *http.Request) {
		rw.Header().Set("Content-Length", "3")
		rw.WriteHeader(http.StatusInsufficientStorage)
		io.WriteString(rw, "no\n")
	}, nil)
	good, token := w.grant, w.token
	expired, stale := w.authority.Grant(func(g *jws.Grant) {
		g.IssuedAt, g.ExpiresAt = time.Now().Add(-time.Minute).Unix(), time.Now().Add(-time.Second).Unix()
	})
	for name, c := range map[string]struct {
		grant *jws.Grant
		token string
		want  int
	}{"the sandbox's": {good, token, 507}, "the relay's": {expired, stale, 401}} {
		w.grant, w.token = c.grant, c.token
		for range 3 {
			if got, err := w.sendFirst(size); got != c.want || err != nil {
				t.Errorf("%s: %d, %v", name, got, err)
			}
		}
	}
}

// sendFirst sends a body of size bytes, and only then reads the answer.
func (w *world) sendFirst(size int) (int, error) {
	w.t.Helper()
	conn, err := net.Dial("tcp", w.server.Listener.Addr().String())
	must(w.t, err)
	defer conn.Close()
	conn.SetDeadline(time.Now().Add(2 * patience))
	fmt.Fprintf(conn, "PUT / HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n", size)
	piece := make([]byte, 64<<10)
	for sent := 0; sent < size; sent += len(piece) {
		if _, err := conn.Write(piece); err != nil {
			return 0, err
		}
	}
	resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		return 0, err
	}
	defer resp.Body.Close()
	if _, err := io.ReadAll(resp.Body); err != nil {
		return 0, err
	}
	if !resp.Close {
		return 0, errors.New("the connection is kept")
	}
	return resp.StatusCode, nil
}

// What a client sends late of a body that stalled doesn't pass for a request.
func TestRestIsNoRequest(t *testing.T) {
	defer func(before time.Duration) { stallTimeout = before }(stallTimeout)
	stallTimeout = 50 * time.Millisecond
	asked := make(chan string, 2)
	w := newWorld(t, func(rw http.ResponseWriter, r *http.Request) {
		asked <- r.Method
		io.Copy(io.Discard, r.Body)
	}, nil)
	conn, err := net.Dial("tcp", w.server.Listener.Addr().String())
	must(t, err)
	defer conn.Close()
	const rest = "DELETE / HTTP/1.1\r\nHost: x\r\n\r\n"
	fmt.Fprintf(conn, "PUT / HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\nx", len(rest)+1)
	reader := bufio.NewReader(conn)
	resp, err := http.ReadResponse(reader, nil)
	must(t, err)
	if status := protocol.KindInvalid.Status(); resp.StatusCode != status || !resp.Close {
		t.Errorf("%d, closes: %t", resp.StatusCode, resp.Close)
	}
	io.WriteString(conn, rest)
	io.Copy(io.Discard, reader)
	for len(asked) > 0 { // nothing, if its stream ended before the sandbox had read it
		if method := <-asked; method != "PUT" {
			t.Errorf("the rest of the body was taken for a request: %s", method)
		}
	}
}
