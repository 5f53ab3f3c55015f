package egress

import (
	"bufio"
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"github.com/fairlead/fairlead/protocol"
)

// TestTunnelTLS: https as programs do it, through the proxy.
func TestTunnelTLS(t *testing.T) {
	h := start(t, nil)
	server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { fmt.Fprint(w, r.Host) }))
	defer server.Close()
	h.serve("example.com:443", server.Listener.Addr().String()) // a name in httptest's certificate
	if err := h.rules.Decide(ses, "example.com", protocol.AllowAlways); err != nil {
		t.Fatal(err)
	}
	client := h.client(t)
	roots := x509.NewCertPool()
	roots.AddCert(server.Certificate())
	client.Transport.(*http.Transport).TLSClientConfig = &tls.Config{RootCAs: roots}
	if status, body, _ := get(t, client, "https://EXAMPLE.com/"); status != http.StatusOK || !strings.EqualFold(body, "example.com") {
		t.Errorf("%d %q", status, body)
	}
	if got := h.reasons(); !slices.Equal(got, []Reason{AllowedByRule}) {
		t.Errorf("%q", got)
	}
}

// far serves a host that a rule allows, and returns what it got.
func (h *harness) far(t testing.TB, host string) <-chan []byte {
	t.Helper()
	got := make(chan []byte, 1)
	h.serve(host, listen(t, func(conn net.Conn) {
		all, _ := io.ReadAll(conn)
		got <- all
	}))
	if err := h.rules.Decide(ses, host, protocol.AllowAlways); err != nil {
		t.Fatal(err)
	}
	return got
}

// TestTunnelIsForItsHost: what goes to port 443 must be TLS for the host of
// the CONNECT; elsewhere only TLS for another host is refused.
func TestTunnelIsForItsHost(t *testing.T) {
	for what, row := range map[string]struct {
		target string
		first  []byte
		want   Reason // "": it passes
	}{
		"its name":                       {"a.com:443", helloFor(t, "a.com"), ""},
		"its name in another spelling":   {"A.com.:443", helloFor(t, "a.COM"), ""},
		"its name in pieces":             {"a.com:443", refragment(helloFor(t, "a.com"), 1), ""},
		"another name":                   {"a.com:443", helloFor(t, "b.com"), DeniedOtherName},
		"a name below":                   {"a.com:443", helloFor(t, "x.a.com"), DeniedOtherName},
		"another name in pieces":         {"a.com:443", refragment(helloFor(t, "b.com"), 2), DeniedOtherName},
		"no name":                        {"a.com:443", helloFor(t, ""), DeniedNoName},
		"no TLS":                         {"a.com:443", []byte("GET / HTTP/1.1\r\n\r\n"), DeniedNotTLS},
		"two names":                      {"a.com:443", helloWith(sni("a.com", "b.com")), DeniedHello},
		"endless hello":                  {"a.com:443", refragment(append([]byte{22, 3, 1, 0, 0, 1, 0, 0x3f, 0xf0}, make([]byte, 1<<14)...), 5), DeniedHello},
		"name that is none":              {"a.com:443", helloWith(sni("a.com/x")), DeniedOtherName},
		"address without name":           {"198.51.100.1:443", helloFor(t, ""), ""},
		"address with another name":      {"198.51.100.1:443", helloFor(t, "a.com"), DeniedOtherName},
		"address as name":                {"198.51.100.1:443", helloWith(sni("198.51.100.1")), ""},
		"other port, its name":           {"a.com:8443", helloFor(t, "a.com"), ""},
		"other port, another name":       {"a.com:8443", helloFor(t, "b.com"), DeniedOtherName},
		"other port, no name":            {"a.com:8443", helloFor(t, ""), ""},
		"other port, no TLS":             {"a.com:8443", []byte("\x16 or not"), ""},
		"other port, nothing":            {"a.com:8443", nil, ""},
		"other port, one byte":           {"a.com:8443", []byte{22}, ""},
		"other port, half of its hello":  {"a.com:8443", helloFor(t, "a.com")[:50], ""},
		"nothing":                        {"a.com:443", nil, DeniedGone},
		"half of its hello, and the end": {"a.com:443", helloFor(t, "a.com")[:50], DeniedGone},
	} {
		t.Run(what, func(t *testing.T) {
			h := start(t, nil)
			got := h.far(t, host(t, row.target).String())
			s := h.open(t, row.target)
			if _, err := s.Write(row.first); err != nil {
				t.Fatal(err)
			}
			if err := s.Conn.(*net.TCPConn).CloseWrite(); err != nil {
				t.Fatal(err)
			}
			said, _ := io.ReadAll(s.br) // a reset says no more than the end
			passed := <-got
			if row.want == "" && (!bytes.Equal(passed, row.first) || len(said) != 0) {
				t.Errorf("%d of %d bytes pass, the client reads %x", len(passed), len(row.first), said)
			}
			if row.want != "" && len(passed) != 0 {
				t.Errorf("%d bytes pass", len(passed))
			}
			if reasons := h.reasons(); row.want != "" && !slices.Equal(reasons, []Reason{AllowedByRule, row.want}) || row.want == "" && len(reasons) != 1 {
				t.Errorf("%q, want %q", reasons, row.want)
			}
			if row.want == DeniedOtherName && host(t, row.target).Port == tlsPort && !bytes.Equal(said, accessDenied) {
				t.Errorf("the client reads %x", said)
			}
		})
	}
}

// TestTunnelEarlyBytes: what comes with the CONNECT itself is delivered, in
// whatever packets.
func TestTunnelEarlyBytes(t *testing.T) {
	for _, target := range []string{"a.com:22", "a.com:443"} {
		h := start(t, nil)
		got := h.far(t, target)
		hello := helloFor(t, "a.com")
		early := append(bytes.Clone(hello), bytes.Repeat([]byte("early "), 2000)...) // more than the buffer holds with the head
		s := h.socket(t)
		request := fmt.Sprintf("CONNECT %s HTTP/1.1\r\nHost: %s\r\nProxy-Authorization: %s\r\n\r\n", target, target, authorization)
		if _, err := s.Write(append([]byte(request), early...)); err != nil {
			t.Fatal(err)
		}
		if response := s.response("CONNECT"); response.StatusCode != http.StatusOK {
			t.Fatal(response.Status)
		}
		if _, err := s.Write([]byte("late")); err != nil {
			t.Fatal(err)
		}
		if err := s.Conn.(*net.TCPConn).CloseWrite(); err != nil {
			t.Fatal(err)
		}
		if all := <-got; string(all) != string(early)+"late" {
			t.Errorf("%s: %d bytes of %d", target, len(all), len(early)+4)
		}
	}
}

// TestTunnelHalfClose: each direction ends by itself, and all bytes of the
// other one pass after that.
func TestTunnelHalfClose(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 0))
	data := make([]byte, 5<<20)
	for i := range data {
		data[i] = byte(random.Uint32())
	}
	h := start(t, nil)
	if err := h.rules.Decide(ses, "a.com:22", protocol.AllowAlways); err != nil {
		t.Fatal(err)
	}
	t.Run("client first", func(t *testing.T) {
		h.serve("a.com:22", listen(t, func(conn net.Conn) {
			all, err := io.ReadAll(conn) // to the client's end
			if err != nil || string(all) != "question" {
				t.Errorf("%q, %v", all, err)
			}
			if _, err := conn.Write(data); err != nil {
				t.Error(err)
			}
		}))
		s := h.open(t, "a.com:22")
		if _, err := s.Write([]byte("question")); err != nil {
			t.Fatal(err)
		}
		if err := s.Conn.(*net.TCPConn).CloseWrite(); err != nil {
			t.Fatal(err)
		}
		if all, err := io.ReadAll(s.br); err != nil || !bytes.Equal(all, data) {
			t.Errorf("%d of %d bytes, %v", len(all), len(data), err)
		}
	})
	t.Run("host first", func(t *testing.T) {
		got := make(chan []byte, 1)
		h.serve("a.com:22", listen(t, func(conn net.Conn) {
			if err := conn.(*net.TCPConn).CloseWrite(); err != nil {
				t.Error(err)
			}
			all, _ := io.ReadAll(conn)
			got <- all
		}))
		s := h.open(t, "a.com:22")
		if all, err := io.ReadAll(s.br); err != nil || len(all) != 0 {
			t.Fatalf("%q, %v", all, err)
		}
		if _, err := s.Write(data); err != nil {
			t.Fatal(err)
		}
		s.Close()
		if all := <-got; !bytes.Equal(all, data) {
			t.Errorf("%d of %d bytes", len(all), len(data))
		}
	})
}

// TestTunnelHostSpeaksFirst: a protocol in which the client waits works.
func TestTunnelHostSpeaksFirst(t *testing.T) {
	h := start(t, nil)
	h.serve("github.com:22", listen(t, func(conn net.Conn) {
		fmt.Fprint(conn, "SSH-2.0-x\r\n")
		line, err := bufio.NewReader(conn).ReadString('\n')
		if err != nil || line != "SSH-2.0-y\n" {
			t.Errorf("%q, %v", line, err)
		}
	}))
	s := h.open(t, "github.com:22") // on the built-in list
	if line, err := s.br.ReadString('\n'); err != nil || line != "SSH-2.0-x\r\n" {
		t.Errorf("%q, %v", line, err)
	}
	if _, err := s.Write([]byte("SSH-2.0-y\n")); err != nil {
		t.Error(err)
	}
	if rest, err := io.ReadAll(s.br); err != nil || len(rest) != 0 {
		t.Errorf("%q, %v", rest, err)
	}
}

// TestTunnelRevoked: a rule that denies a host cuts the tunnels to it, and no
// others.
func TestTunnelRevoked(t *testing.T) {
	h := start(t, nil)
	for _, target := range []string{"a.com:22", "b.com:22"} {
		h.serve(target, listen(t, func(conn net.Conn) { _, _ = io.Copy(conn, conn) }))
		if err := h.rules.Decide(ses, target, protocol.AllowAlways); err != nil {
			t.Fatal(err)
		}
	}
	a, b := h.open(t, "a.com:22"), h.open(t, "b.com:22")
	if err := h.rules.Revoke(ses, "b.com:22"); err != nil { // asks next time
		t.Fatal(err)
	}
	if err := h.rules.Decide(ses, "a.com:22", protocol.DenyAlways); err != nil {
		t.Fatal(err)
	}
	if got, err := a.br.ReadByte(); err == nil {
		t.Errorf("a.com says %q", got)
	}
	b.say("still here")
	if line, err := b.br.ReadString('\n'); err != nil || line != "still here\r\n" {
		t.Errorf("%q, %v", line, err)
	}
	if got := h.Snapshot().Reasons[DeniedRevoked]; got != 1 {
		t.Errorf("%d", got)
	}
}

// TestTunnelRefusals: refusals of a CONNECT say why, and the connection goes
// on: a client that has no credentials yet sends them next.
func TestTunnelRefusals(t *testing.T) {
	h := start(t, nil)
	h.far(t, "a.com:22")
	h.serve("private.com:22", "private")
	for _, name := range []string{"private.com:22", "missing.com:22"} {
		if err := h.rules.Decide(ses, name, protocol.AllowAlways); err != nil {
			t.Fatal(err)
		}
	}
	s := h.socket(t)
	for _, row := range []struct {
		target, credentials string
		status              int
	}{
		{"a.com:22", "X: y", http.StatusProxyAuthRequired},
		{"10.0.0.1:22", "$AUTH", http.StatusForbidden},
		{"private.com:22", "$AUTH", http.StatusForbidden},
		{"missing.com:22", "$AUTH", http.StatusBadGateway},
		{"a.com:22", "$AUTH", http.StatusOK},
	} {
		s.say("CONNECT "+row.target+" HTTP/1.1", "Host: "+row.target, row.credentials, "")
		response := s.response("GET")
		if row.status == http.StatusOK {
			response.Body = http.NoBody
		}
		body, err := io.ReadAll(response.Body)
		if err != nil || response.StatusCode != row.status || row.status >= 400 && row.status != http.StatusProxyAuthRequired && !strings.Contains(string(body), row.target) {
			t.Errorf("%+v: %s %s %v", row, response.Status, body, err)
		}
	}
	want := []Reason{Challenged, DeniedPrivate, AllowedByRule, DeniedPrivate, AllowedByRule, FailedDial, AllowedByRule}
	if got := h.reasons(); !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
	if !slices.Equal(h.dialed, []string{"private.com:22", "missing.com:22", "a.com:22"}) {
		t.Errorf("dialled %q", h.dialed)
	}
}
