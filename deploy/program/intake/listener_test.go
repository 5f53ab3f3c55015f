package intake

import (
	"bufio"
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

// A front is a server behind Serve. Its handler echoes the body behind the path.
type front struct {
	address string
	tls     *tls.Config // of a client; nil: the server speaks plainly
	served  atomic.Int64
	refused atomic.Int64
}

func serve(t *testing.T, secured bool) *front {
	t.Helper()
	f := &front{}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	f.address = l.Addr().String()
	if secured {
		known := httptest.NewUnstartedServer(nil)
		known.StartTLS()
		defer known.Close()
		l = tls.NewListener(l, &tls.Config{Certificates: known.TLS.Certificates})
		f.tls = &tls.Config{InsecureSkipVerify: true}
	}
	server := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		f.served.Add(1)
		if (r.TLS != nil) != secured {
			t.Errorf("TLS state: %v", r.TLS)
		}
		if r.Header.Get("Upgrade") != "" {
			f.takeOver(t, w)
			return
		}
		if r.URL.Path == "/careless" {
			w.Header().Del("Connection")
		}
		body, _ := io.ReadAll(r.Body)
		io.WriteString(w, r.URL.Path+" "+string(body))
	}), ReadHeaderTimeout: 10 * time.Second}
	done := make(chan error, 1)
	go func() { done <- Serve(server, l, func(error) { f.refused.Add(1) }) }()
	t.Cleanup(func() {
		server.Close()
		if err := <-done; !errors.Is(err, http.ErrServerClosed) {
			t.Error(err)
		}
	})
	return f
}

// takeOver echoes what comes, once, whatever it looks like.
func (f *front) takeOver(t *testing.T, w http.ResponseWriter) {
	taken, rw, err := http.NewResponseController(w).Hijack()
	if err != nil {
		t.Error(err)
		return
	}
	defer taken.Close()
	raw := Raw(taken)
	if _, plain := raw.(*net.TCPConn); plain == (f.tls != nil) {
		t.Errorf("taken over: %T", raw)
	}
	io.WriteString(raw, "HTTP/1.1 101 Switching Protocols\r\n\r\n")
	piece := make([]byte, 512)
	n, _ := rw.Read(piece)
	raw.Write(piece[:n])
}

func (f *front) dial(t *testing.T) net.Conn {
	t.Helper()
	var conn net.Conn
	var err error
	if f.tls != nil {
		conn, err = tls.Dial("tcp", f.address, f.tls)
	} else {
		conn, err = net.Dial("tcp", f.address)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	conn.SetDeadline(time.Now().Add(time.Minute))
	return conn
}

const (
	smuggled = "GET /smuggled HTTP/1.1\r\nHost: a\r\n\r\n"
	twoWays  = "POST /first HTTP/1.1\r\nHost: a\r\nContent-Length: 40\r\n" + chunk + end + "0\r\n\r\n" + smuggled
)

// Each front: what is refused gets 400 and nothing after it is served.
func TestServeRefuses(t *testing.T) {
	for _, secured := range []bool{false, true} {
		f := serve(t, secured)
		conn := f.dial(t)
		io.WriteString(conn, "POST /good HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\n\r\nhi"+get+end+twoWays)
		answers, err := io.ReadAll(conn)
		if err != nil {
			t.Error(err)
		}
		text := string(answers)
		if strings.Count(text, "HTTP/1.1 200 OK") != 2 || strings.Count(text, "HTTP/1.1 400 Bad Request") != 1 ||
			strings.Index(text, "400 Bad") < strings.LastIndex(text, "200 OK") || strings.Contains(text, "smuggled") {
			t.Errorf("TLS %v: %s", secured, text)
		}
		if f.served.Load() != 2 || f.refused.Load() != 1 {
			t.Errorf("TLS %v: %d served, %d refused", secured, f.served.Load(), f.refused.Load())
		}
	}
}

// The second request on a connection that is kept, after the answer to the first.
func TestServeRefusesLater(t *testing.T) {
	f := serve(t, false)
	conn := f.dial(t)
	reader := bufio.NewReader(conn)
	for range 3 {
		io.WriteString(conn, get+end)
		answer, err := http.ReadResponse(reader, nil)
		if err != nil || answer.StatusCode != http.StatusOK {
			t.Fatal(answer, err)
		}
		io.Copy(io.Discard, answer.Body)
	}
	io.WriteString(conn, twoWays)
	answers, err := io.ReadAll(reader)
	if err != nil || !strings.HasPrefix(string(answers), "HTTP/1.1 400 ") || strings.Contains(string(answers), "smuggled") {
		t.Errorf("%s, %v", answers, err)
	}
}

// A body with an encoding is served, and is the connection's last.
func TestServeEndsAfterAnEncoding(t *testing.T) {
	f := serve(t, false)
	conn := f.dial(t)
	io.WriteString(conn, "POST /first HTTP/1.1\r\nHost: a\r\n"+chunk+end+"5\r\nhello\r\n0\r\n\r\n"+smuggled)
	answers, err := io.ReadAll(conn)
	if text := string(answers); err != nil || !strings.HasSuffix(text, "/first hello") || !strings.Contains(text, "Connection: close") {
		t.Errorf("%s, %v", text, err)
	}
	if f.served.Load() != 1 {
		t.Errorf("%d served", f.served.Load())
	}
}

// What follows isn't served either if the handler forgets that the connection
// ends.
func TestServeEndsAllTheSame(t *testing.T) {
	f := serve(t, false)
	conn := f.dial(t)
	io.WriteString(conn, "POST /careless HTTP/1.1\r\nHost: a\r\n"+chunk+end+"0\r\n\r\n"+twoWays)
	answers, err := io.ReadAll(conn)
	if text := string(answers); err != nil || strings.Count(text, "HTTP/1.1") != 1 || f.served.Load() != 1 {
		t.Errorf("%d served: %s, %v", f.served.Load(), text, err)
	}
}

// A WebSocket's bytes are its own, also when they look like a request that would
// be refused, and its connection is the one that was accepted.
func TestServeLetsGo(t *testing.T) {
	for _, secured := range []bool{false, true} {
		f := serve(t, secured)
		conn := f.dial(t)
		io.WriteString(conn, get+"Upgrade: x\r\nConnection: Upgrade\r\n\r\n")
		reader := bufio.NewReader(conn)
		if line, err := reader.ReadString('\n'); err != nil || !strings.Contains(line, "101") {
			t.Fatal(line, err)
		}
		reader.ReadString('\n')
		io.WriteString(conn, twoWays)
		back, err := io.ReadAll(reader)
		if err != nil || string(back) != twoWays {
			t.Errorf("TLS %v: %q, %v", secured, back, err)
		}
	}
}

// What net/http gives its own connections, ours give on.
func TestServeKeepsHooks(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	type key struct{}
	var states atomic.Int64
	server := &http.Server{
		Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			io.WriteString(w, r.Context().Value(key{}).(string))
		}),
		ConnContext: func(ctx context.Context, _ net.Conn) context.Context { return context.WithValue(ctx, key{}, "kept") },
		ConnState:   func(net.Conn, http.ConnState) { states.Add(1) },
	}
	done := make(chan error, 1)
	go func() { done <- Serve(server, l, nil) }()
	answer, err := http.Get("http://" + l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	body, _ := io.ReadAll(answer.Body)
	answer.Body.Close()
	server.Close()
	<-done
	if string(body) != "kept" || states.Load() == 0 {
		t.Errorf("%q, %d states", body, states.Load())
	}
}
