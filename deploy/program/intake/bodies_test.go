package intake

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fairlead/fairlead/protocol"
)

// A pipes is a listener in memory. Each connection comes from where dial says.
type pipes struct {
	conns chan net.Conn
	done  chan struct{}
	close func()
}

func newPipes() *pipes {
	p := &pipes{conns: make(chan net.Conn), done: make(chan struct{})}
	p.close = sync.OnceFunc(func() { close(p.done) })
	return p
}

func (p *pipes) Accept() (net.Conn, error) {
	select {
	case c := <-p.conns:
		return c, nil
	case <-p.done:
		return nil, net.ErrClosed
	}
}

func (p *pipes) Close() error   { p.close(); return nil }
func (p *pipes) Addr() net.Addr { return &net.TCPAddr{} }

type from struct {
	net.Conn
	ip net.IP
}

func (f from) RemoteAddr() net.Addr { return &net.TCPAddr{IP: f.ip, Port: 1} }

// A hall is a server with Bodies, whose handler reads the body and answers with
// it, or with its error's kind; "/admitted" vouches for the client first, and
// "/unread" reads nothing.
type hall struct {
	pipes   *pipes
	refused atomic.Int64
}

func newHall(t *testing.T) *hall {
	h := &hall{pipes: newPipes()}
	bodies := NewBodies(func(r *http.Request) netip.Addr { return Address(r, false) }, func(error) { h.refused.Add(1) })
	server := &http.Server{Handler: bodies.Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/unread":
			w.WriteHeader(http.StatusUnauthorized)
			return
		case "/admitted":
			Admitted(r)
		}
		data, err := io.ReadAll(r.Body)
		if e, ok := errors.AsType[*protocol.Error](err); ok {
			w.WriteHeader(e.Kind.Status())
			return
		} else if err != nil {
			w.WriteHeader(http.StatusTeapot)
			return
		}
		w.Write(data)
	})), ReadHeaderTimeout: time.Second, IdleTimeout: time.Hour}
	done := make(chan error, 1)
	go func() { done <- server.Serve(h.pipes) }()
	t.Cleanup(func() {
		server.Close()
		<-done
	})
	return h
}

// A visit is one connection, and what came of it.
type visit struct {
	conn   net.Conn
	answer chan int // its status; 0: none
	ended  atomic.Bool
	after  time.Duration // from its begin on; to be read once ended
}

// visit sends a request with a body of ten bytes, so many of which come.
func (h *hall) visit(t *testing.T, ip byte, path string, sent int) *visit {
	near, far := net.Pipe()
	h.pipes.conns <- from{far, net.IPv4(192, 0, 2, ip)}
	v := &visit{conn: near, answer: make(chan int, 1)}
	began := time.Now()
	fmt.Fprintf(near, "POST %s HTTP/1.1\r\nHost: a\r\nContent-Length: 10\r\n\r\n%s", path, strings.Repeat("x", sent))
	go func() { // ends with the connection
		status := 0
		if answer, err := http.ReadResponse(bufio.NewReader(near), nil); err == nil {
			status = answer.StatusCode
		}
		v.after = time.Since(began)
		v.ended.Store(true)
		v.answer <- status
	}()
	t.Cleanup(func() { near.Close() })
	return v
}

// A body that doesn't come is given up, whatever is done with it.
func TestFound13BodiesTakeSoLongAtMost(t *testing.T) {
	for path, want := range map[string]int{"/": 400, "/admitted": 418, "/unread": 401} {
		synctest.Test(t, func(t *testing.T) {
			h := newHall(t)
			v := h.visit(t, 1, path, 3)
			for range 4 { // a byte now and then changes nothing
				time.Sleep(2 * time.Second)
				v.conn.Write([]byte("x"))
			}
			status := <-v.answer
			if status != want || v.after < BodyTime || v.after > BodyTime+time.Second {
				t.Errorf("%s: %d after %v", path, status, v.after)
			}
			if _, err := v.conn.Write([]byte("x")); err == nil {
				t.Errorf("%s: the connection goes on", path)
			}
		})
	}
}

// An answer may take its time once the body is there, and the next request of
// the connection has a time of its own.
func TestBodiesThatCameOweNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		pipes := newPipes()
		bodies := NewBodies(func(r *http.Request) netip.Addr { return Address(r, false) }, nil)
		server := &http.Server{Handler: bodies.Handler(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			io.Copy(io.Discard, r.Body)
			select {
			case <-time.After(3 * BodyTime):
			case <-r.Context().Done():
				t.Error("the request ended early")
			}
		}))}
		go server.Serve(pipes)
		defer server.Close()
		near, far := net.Pipe()
		defer near.Close()
		pipes.conns <- far
		reader := bufio.NewReader(near)
		for range 3 {
			io.WriteString(near, "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\n\r\nhi")
			answer, err := http.ReadResponse(reader, nil)
			if err != nil || answer.StatusCode != 200 {
				t.Fatal(answer, err)
			}
			time.Sleep(2 * BodyTime)
		}
	})
}

// Of too many bodies that are waited for, the one that has been quiet for
// longest gives way; those of others, and of whom somebody vouches for, stay.
func TestFound13BodiesOfOneAddress(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHall(t)
		var slow []*visit
		vouched := h.visit(t, 1, "/admitted", 0)
		other := h.visit(t, 2, "/", 0)
		for i := range 3 * BodiesPerAddress {
			path := "/"
			if i%3 == 0 {
				path = "/unread"
			}
			slow = append(slow, h.visit(t, 1, path, i%10))
			synctest.Wait() // one after the other
		}
		time.Sleep(hurryTime + hurryTime/2)
		synctest.Wait()
		open := 0
		for i, v := range slow {
			if !v.ended.Load() {
				open++
			} else if i >= 2*BodiesPerAddress {
				t.Errorf("number %d was ended", i)
			}
		}
		if open != BodiesPerAddress {
			t.Errorf("%d are open, want %d", open, BodiesPerAddress)
		}
		if vouched.ended.Load() || other.ended.Load() {
			t.Error("others had to go")
		}
		prompt := h.visit(t, 1, "/", 10)
		if status := <-prompt.answer; status != 200 {
			t.Errorf("who sends what it has: %d", status)
		}
		for _, v := range slow[:BodiesPerAddress] {
			if status := <-v.answer; status != 429 && status != 401 {
				t.Errorf("answer %d", status)
			}
		}
	})
}

// Who goes on in time has as long as ever.
func TestWhoHurriesMayGoOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHall(t)
		first := h.visit(t, 1, "/", 1)
		synctest.Wait()
		for range BodiesPerAddress {
			h.visit(t, 1, "/", 1)
			synctest.Wait()
		}
		time.Sleep(hurryTime / 2)
		first.conn.Write([]byte("xx"))
		time.Sleep(4 * hurryTime)
		if first.ended.Load() {
			t.Fatalf("ended after %v", first.after)
		}
		first.conn.Write([]byte("xxxxxxx"))
		if status := <-first.answer; status != 200 {
			t.Errorf("answer %d", status)
		}
	})
}

// A client that is quiet for a moment only isn't cut off when many others come.
func TestNobodyWhoSendsHurries(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHall(t)
		var visits []*visit
		for range 10 * BodiesPerAddress {
			visits = append(visits, h.visit(t, 1, "/", 4))
		}
		time.Sleep(hurryTime / 2)
		for _, v := range visits {
			v.conn.Write([]byte("xxxxxx"))
		}
		for i, v := range visits {
			if status := <-v.answer; status != 200 {
				t.Fatalf("number %d: %d", i, status)
			}
		}
	})
}

func TestAddress(t *testing.T) {
	for _, c := range []struct {
		remote    string
		forwarded []string
		behind    bool
		want      string
	}{
		{"192.0.2.1:80", nil, false, "192.0.2.1"},
		{"192.0.2.1:80", []string{"203.0.113.1"}, false, "192.0.2.1"},
		{"192.0.2.1:80", nil, true, "192.0.2.1"},
		{"192.0.2.1:80", []string{"203.0.113.1"}, true, "203.0.113.1"},
		{"192.0.2.1:80", []string{"198.51.100.1, 203.0.113.1"}, true, "203.0.113.1"},
		{"192.0.2.1:80", []string{"198.51.100.1", "203.0.113.1:4711"}, true, "203.0.113.1"},
		{"192.0.2.1:80", []string{"unknown"}, true, "192.0.2.1"},
		{"192.0.2.1:80", []string{"[2001:db8::1]:5"}, true, "2001:db8::1"},
		{"[::ffff:192.0.2.1]:80", nil, false, "192.0.2.1"},
		{"@", nil, false, "invalid IP"},
	} {
		r := httptest.NewRequest(http.MethodGet, "/", nil)
		r.RemoteAddr = c.remote
		r.Header["X-Forwarded-For"] = c.forwarded
		if got := Address(r, c.behind); got.String() != c.want {
			t.Errorf("%+v: %v", c, got)
		}
	}
}

// Each address has a rate, and an IPv6 network is one; too many share one.
func TestRates(t *testing.T) {
	now := time.Unix(1000, 0)
	rates := NewRates(1, 3)
	allowed := func(ip string, times int) (n int) {
		for range times {
			if rates.Allow(netip.MustParseAddr(ip), now) {
				n++
			}
		}
		return n
	}
	if a, b := allowed("192.0.2.1", 9), allowed("192.0.2.2", 9); a != 3 || b != 3 {
		t.Errorf("%d and %d", a, b)
	}
	if a, b := allowed("2001:db8::1", 2), allowed("2001:db8::2:1", 9); a+b != 3 {
		t.Errorf("%d and %d of one network", a, b)
	}
	if now = now.Add(2 * time.Second); allowed("192.0.2.1", 9) != 2 {
		t.Error("the rate isn't one a second")
	}
	for i := range 2 * maxAddresses {
		rates.Allow(netip.AddrFrom4([4]byte{10, byte(i >> 16), byte(i >> 8), byte(i)}), now)
	}
	if n := len(rates.addresses); n > maxAddresses {
		t.Errorf("%d addresses are kept", n)
	}
	now = now.Add(time.Minute)
	if n := allowed("192.0.2.99", 9); n != 3 {
		t.Errorf("after a while: %d", n)
	}
}
