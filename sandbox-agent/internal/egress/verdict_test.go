package egress

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fairlead/fairlead/protocol"
)

// A pipeListener only has an address: connections are handed to serve.
type pipeListener struct{ addr net.Addr }

func (pipeListener) Accept() (net.Conn, error) { return nil, net.ErrClosed }
func (pipeListener) Close() error              { return nil }
func (l pipeListener) Addr() net.Addr          { return l.addr }

// held runs a test in a bubble of time, with a CONNECT that is held and the
// question about it.
func held(t *testing.T, f func(h *harness, s *socket, q question)) {
	synctest.Test(t, func(t *testing.T) {
		h := newHarness(t, pipeListener{&net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 8083}}, nil)
		client, server := net.Pipe()
		h.running.Go(func() { h.handle(server) })
		s := &socket{client, t, bufio.NewReader(client)}
		s.say("CONNECT unknown.example:443 HTTP/1.1", "Host: unknown.example:443", "$AUTH", "")
		q := <-h.people.asked
		if q.host != host(t, "unknown.example:443") || h.Snapshot().Holding != 1 {
			t.Errorf("%v, %+v", q.host, h.Snapshot())
		}
		f(h, s, q)
		client.Close()
		h.running.Wait()
		if s := h.Snapshot(); s.Holding != 0 || s.Connections != 0 {
			t.Errorf("left: %+v", s)
		}
	})
}

// handle serves a connection as Run does.
func (h *harness) handle(conn net.Conn) { h.Proxy.serve(context.Background(), conn) }

// expect reads a refusal for a reason.
func expect(t *testing.T, h *harness, s *socket, status int, want Reason) {
	t.Helper()
	if response := s.response("GET"); response.StatusCode != status {
		t.Errorf("%s: %s", want, response.Status)
	}
	if got := h.reasons(); len(got) != 1 || got[0] != want {
		t.Errorf("%q, want %q", got, want)
	}
}

func TestHoldAnswers(t *testing.T) {
	for _, row := range []struct {
		answer any
		status int
		want   Reason
	}{
		{protocol.Deny, http.StatusForbidden, DeniedByPerson},
		{protocol.DenyAlways, http.StatusForbidden, DeniedByPerson},
		{protocol.Errorf(protocol.KindTooMany, "100 are pending"), http.StatusTooManyRequests, DeniedTooMany},
		{protocol.Errorf(protocol.KindExpired, "expired"), http.StatusForbidden, DeniedExpired},
		{errors.New("disk"), http.StatusForbidden, DeniedUnasked},
		{protocol.Decision("perhaps"), http.StatusForbidden, DeniedUnasked},
		{nil, http.StatusForbidden, DeniedUnasked},
	} {
		held(t, func(h *harness, s *socket, q question) {
			q.answer <- row.answer
			expect(t, h, s, row.status, row.want)
		})
	}
}

// TestHoldAllowOnce: what waits passes, the next one asks again.
func TestHoldAllowOnce(t *testing.T) {
	held(t, func(h *harness, s *socket, q question) {
		q.answer <- protocol.AllowOnce
		// Nothing answers there, but it was let out.
		response := s.response("GET")
		if got := h.reasons(); response.StatusCode != http.StatusBadGateway || got[0] != AllowedByPerson || got[1] != FailedDial {
			t.Errorf("%s, %q", response.Status, got)
		}
		if _, err := io.ReadAll(response.Body); err != nil {
			t.Error(err)
		}
		s.say("CONNECT unknown.example:443 HTTP/1.1", "Host: unknown.example:443", "$AUTH", "")
		(<-h.people.asked).answer <- protocol.Deny
		if response := s.response("GET"); response.StatusCode != http.StatusForbidden {
			t.Error(response.Status)
		}
	})
}

// TestHoldExpires: an approver that says nothing holds nobody for ever.
func TestHoldExpires(t *testing.T) {
	held(t, func(h *harness, s *socket, _ question) {
		start := time.Now()
		expect(t, h, s, http.StatusForbidden, DeniedExpired)
		if took := time.Since(start); took != holdLimit || h.events[0].Waited != took {
			t.Errorf("%v, %v", took, h.events[0].Waited)
		}
	})
}

// TestHoldClientLeaves: nobody waits for a decision that nobody needs.
func TestHoldClientLeaves(t *testing.T) {
	for _, early := range []string{"", "early"} {
		held(t, func(h *harness, s *socket, _ question) {
			if early != "" {
				if _, err := s.Write([]byte(early)); err != nil {
					t.Error(err)
				}
			}
			start := time.Now()
			s.Close()
			synctest.Wait()
			if got := h.reasons(); len(got) != 1 || got[0] != DeniedGone || time.Since(start) != 0 {
				t.Errorf("%q after %v", got, time.Since(start))
			}
		})
	}
}

// TestHoldMeetsRules: a rule that comes meanwhile decides.
func TestHoldMeetsRules(t *testing.T) {
	held(t, func(h *harness, s *socket, _ question) {
		if err := h.rules.Decide(ses, "other.example", protocol.AllowAlways); err != nil {
			t.Error(err)
		}
		synctest.Wait()
		if h.Snapshot().Holding != 1 {
			t.Error("another host's rule ends the waiting")
		}
		if err := h.rules.Decide(ses, "*.example", protocol.AllowAlways); err == nil {
			t.Error("a rule for a whole top-level domain")
		}
		if err := h.rules.Decide(ses, "unknown.example", protocol.DenyAlways); err != nil {
			t.Error(err)
		}
		expect(t, h, s, http.StatusForbidden, DeniedByRule)
	})
	held(t, func(h *harness, s *socket, _ question) {
		if err := h.rules.Decide(ses, "unknown.example:443", protocol.AllowAlways); err != nil {
			t.Error(err)
		}
		if response := s.response("GET"); response.StatusCode != http.StatusBadGateway || h.reasons()[0] != AllowedByRule {
			t.Errorf("%s, %q", response.Status, h.reasons())
		}
	})
}

// TestHoldMany: a thousand wait for one host, and one decision lets all pass.
func TestHoldMany(t *testing.T) {
	const many = 1000
	held(t, func(h *harness, s *socket, q question) {
		var others []*socket
		questions := []question{q}
		for range many - 1 {
			client, server := net.Pipe()
			h.running.Go(func() { h.handle(server) })
			other := &socket{client, t, bufio.NewReader(client)}
			other.say("GET http://unknown.example:443/ HTTP/1.1", "Host: UNKNOWN.example.:443", "$AUTH", "")
			next := <-h.people.asked
			if next.host != q.host {
				t.Errorf("asked about %v", next.host)
			}
			others, questions = append(others, other), append(questions, next)
		}
		if got := h.Snapshot().Holding; got != many {
			t.Errorf("%d wait", got)
		}
		for _, q := range questions {
			q.answer <- protocol.AllowOnce
		}
		for _, s := range append(others, s) {
			if response := s.response("GET"); response.StatusCode != http.StatusBadGateway {
				t.Error(response.Status)
			}
			s.Close()
		}
		if got := h.Snapshot().Reasons[AllowedByPerson]; got != many {
			t.Errorf("%d pass", got)
		}
	})
}

// TestHoldBody: a request whose body has begun to come is held whole.
func TestHoldBody(t *testing.T) {
	h := start(t, nil)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		n, err := io.Copy(io.Discard, r.Body)
		fmt.Fprint(w, n, err)
	}))
	defer server.Close()
	h.serve("unknown.example:80", server.Listener.Addr().String())
	for _, size := range []int{1, MaxHeadBytes, 1 << 20} {
		go func() { (<-h.people.asked).answer <- protocol.AllowOnce }() // the request below asks
		response, err := h.client(t).Post("http://unknown.example/", "", bytes.NewReader(make([]byte, size)))
		if err != nil {
			t.Fatal(err)
		}
		body, err := io.ReadAll(response.Body)
		response.Body.Close()
		if want := fmt.Sprint(size, " <nil>"); err != nil || string(body) != want {
			t.Errorf("%q, want %q, %v", body, want, err)
		}
	}
}

// TestHoldNobodyToAsk: without an approver all that is unknown is denied.
func TestHoldNobodyToAsk(t *testing.T) {
	h := start(t, func(c *Config) { c.Approver = nil })
	status, body, _ := get(t, h.client(t), "http://unknown.example/")
	if status != http.StatusForbidden || !strings.Contains(body, "unknown.example") || h.reasons()[0] != DeniedUnasked {
		t.Errorf("%d %s %q", status, body, h.reasons())
	}
}

// TestHelloTimeout: a tunnel to port 443 that says nothing is closed.
func TestHelloTimeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		far, remote := net.Pipe()
		defer remote.Close()
		h := newHarness(t, pipeListener{&net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 8083}}, func(c *Config) {
			c.Dialer = pipeDialer{c.Dialer, far}
		})
		client, server := net.Pipe()
		h.running.Go(func() { h.handle(server) })
		s := &socket{client, t, bufio.NewReader(client)}
		s.say("CONNECT pypi.org:443 HTTP/1.1", "Host: pypi.org:443", "$AUTH", "")
		if response := s.response("CONNECT"); response.StatusCode != http.StatusOK {
			t.Fatal(response.Status)
		}
		start := time.Now()
		if _, err := s.Write(helloFor(t, "pypi.org")[:100]); err != nil {
			t.Error(err)
		}
		if got, err := s.br.Peek(len(accessDenied)); err != nil || string(got) != string(accessDenied) {
			t.Errorf("%x, %v", got, err)
		}
		if took := time.Since(start); took != helloTimeout {
			t.Errorf("%v", took)
		}
		h.running.Wait()
		if got := h.reasons(); len(got) != 2 || got[1] != DeniedHelloTimeout {
			t.Errorf("%q", got)
		}
	})
}

// TestSlowHead: who doesn't finish a request is cut off.
func TestSlowHead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHarness(t, pipeListener{&net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 8083}}, nil)
		for _, text := range []string{"", "GET http://a.com/ HTTP/1.1\r\nHost: "} {
			client, server := net.Pipe()
			h.running.Go(func() { h.handle(server) })
			if _, err := client.Write([]byte(text)); err != nil {
				t.Error(err)
			}
			start := time.Now()
			if _, err := client.Read(make([]byte, 1)); err == nil || time.Since(start) != headTimeout {
				t.Errorf("%q: %v after %v", text, err, time.Since(start))
			}
		}
		h.running.Wait()
	})
}

// TestTooManyConnections: one more is answered and counted.
func TestTooManyConnections(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHarness(t, pipeListener{&net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 8083}}, nil)
		for range MaxConnections {
			h.clients[new(client)] = true
		}
		client, server := net.Pipe()
		h.running.Go(func() { h.handle(server) })
		s := &socket{client, t, bufio.NewReader(client)}
		if response := s.response("GET"); response.StatusCode != http.StatusServiceUnavailable || h.Snapshot().Reasons[DeniedBusy] != 1 {
			t.Error(response.Status)
		}
		client.Close()
		h.running.Wait()
	})
}
