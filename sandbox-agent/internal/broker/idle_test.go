package broker

import (
	"context"
	"crypto/tls"
	"io"
	"log"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fairlead/fairlead/sandbox-agent/internal/outbound"
)

// memory listens for connections in memory.
type memory struct {
	conns chan net.Conn
	done  chan struct{}
	once  sync.Once
}

func newMemory() *memory { return &memory{conns: make(chan net.Conn), done: make(chan struct{})} }

func (m *memory) Accept() (net.Conn, error) {
	select {
	case c := <-m.conns:
		return c, nil
	case <-m.done:
		return nil, net.ErrClosed
	}
}

func (m *memory) Close() error {
	m.once.Do(func() { close(m.done) })
	return nil
}

func (m *memory) Addr() net.Addr { return &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 8082} }

func (m *memory) dial(ctx context.Context, _, _ string) (net.Conn, error) {
	near, far := net.Pipe()
	select {
	case m.conns <- far:
		return near, nil
	case <-m.done:
		return nil, net.ErrClosed
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// inMemory runs a server whose upstream is handler and a client of it, for
// bubbles of time: nothing passes through a network.
func inMemory(t *testing.T, handler http.Handler, opts Options) (*Server, *http.Client) {
	t.Helper()
	cert, err := certificate()
	if err != nil {
		t.Fatal(err)
	}
	far, near := newMemory(), newMemory()
	upstream := &http.Server{Handler: handler, ErrorLog: log.New(io.Discard, "", 0)}
	opts.Listener, opts.RootCAs = near, roots(t)
	opts.Dialer = &outbound.Dialer{}
	s, err := NewServer(opts)
	if err != nil {
		t.Fatal(err)
	}
	s.transport.DialContext = far.dial
	s.transport.TLSClientConfig.Time = func() time.Time { return cert.Leaf.NotBefore.Add(time.Minute) }
	var serving sync.WaitGroup
	serving.Go(func() { upstream.Serve(tls.NewListener(far, &tls.Config{Certificates: []tls.Certificate{cert}})) })
	serving.Go(func() {
		if err := s.Serve(); err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(func() {
		s.Close()
		upstream.Close()
		serving.Wait()
	})
	return s, &http.Client{Transport: &http.Transport{DisableKeepAlives: true, DialContext: near.dial}}
}

// TestIdle: a request of which nothing is heard for the idle timeout is ended,
// before its answer and within.
func TestIdle(t *testing.T) {
	if _, err := certificate(); err != nil { // made by the clock outside
		t.Fatal(err)
	}
	synctest.Test(t, func(t *testing.T) {
		gone := make(chan struct{}, 2)
		s, client := inMemory(t, stalled(gone), Options{IdleTimeout: time.Second})
		s.PutSecret(sid, "", "OPENAI_API_KEY", realKey)
		url := env(t, s, sid, pid)["OPENAI_BASE_URL"]
		began := time.Now()
		get := func(path string) (status int, body string, err error) {
			resp, err := client.Get(url + path)
			if err != nil {
				return 0, "", err
			}
			defer resp.Body.Close()
			data, err := io.ReadAll(resp.Body)
			return resp.StatusCode, string(data), err
		}
		if status, body, err := get("/silent"); err != nil || status != http.StatusGatewayTimeout || !strings.Contains(body, string(reasonIdle)) {
			t.Errorf("%d %s, %v", status, body, err)
		}
		<-gone
		if _, body, err := get("/x"); err == nil || body != "begin\n" {
			t.Errorf("%q, %v: a cut answer looks whole", body, err)
		}
		<-gone
		if took := time.Since(began); took != 2*time.Second {
			t.Errorf("both took %v", took)
		}
		if snap := s.Snapshot(); snap.Refused[string(reasonIdle)] != 2 {
			t.Errorf("counted %+v", snap)
		}
	})
}
