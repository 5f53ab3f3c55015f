package broker

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"io"
	"log"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/sandbox-agent/internal/outbound"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const (
	realKey     = "sk-real-0123456789"
	customKey   = "custom-key-9876543210"
	sid, pid    = protocol.SessionID("ses_a"), protocol.PTYID("pty_a")
	otherSID    = protocol.SessionID("ses_b")
	otherPID    = protocol.PTYID("pty_b")
	customHost  = "api.example.com"
	terminalUID = 2001
)

// certificate is made once: it stands for all providers and example.com.
var certificate = sync.OnceValues(func() (tls.Certificate, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return tls.Certificate{}, err
	}
	names := []string{"*.example.com", "example.com", "other.example"}
	for _, p := range providers {
		names = append(names, p.host)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "test"}, DNSNames: names,
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		return tls.Certificate{}, err
	}
	leaf, err := x509.ParseCertificate(der)
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key, Leaf: leaf}, err
})

// upstream is a TLS server that answers for every name.
func upstream(t testing.TB, handler http.Handler) netip.AddrPort {
	t.Helper()
	cert, err := certificate()
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewUnstartedServer(handler)
	server.TLS = &tls.Config{Certificates: []tls.Certificate{cert}}
	server.Config.ErrorLog = log.New(io.Discard, "", 0)
	server.StartTLS()
	t.Cleanup(server.Close)
	return server.Listener.Addr().(*net.TCPAddr).AddrPort()
}

// roots are those that the certificate is verified by.
func roots(t testing.TB) *x509.CertPool {
	t.Helper()
	cert, err := certificate()
	if err != nil {
		t.Fatal(err)
	}
	pool := x509.NewCertPool()
	pool.AddCert(cert.Leaf)
	return pool
}

// staticFor sends all providers and names to one address.
func staticFor(t testing.TB, to netip.AddrPort, names ...string) outbound.Static {
	t.Helper()
	seen := make(map[string]bool)
	var entries []string
	for _, p := range providers {
		names = append(names, p.host)
	}
	for _, name := range names {
		if !seen[name] {
			seen[name] = true
			entries = append(entries, name+"="+to.String())
		}
	}
	static, err := outbound.ParseStatic(entries)
	if err != nil {
		t.Fatal(err)
	}
	return static
}

// start runs a server until the test ends.
func start(t testing.TB, opts Options) *Server {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	opts.Listener = l
	if opts.RootCAs == nil {
		opts.RootCAs = roots(t)
	}
	s, err := NewServer(opts)
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() { done <- s.Serve() }()
	t.Cleanup(func() {
		s.Close()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	return s
}

// withUpstream runs a server whose providers and customHost are handler.
func withUpstream(t testing.TB, handler http.Handler, change func(*Options)) *Server {
	t.Helper()
	opts := Options{Dialer: &outbound.Dialer{Static: staticFor(t, upstream(t, handler), customHost)}}
	if change != nil {
		change(&opts)
	}
	s := start(t, opts)
	for _, p := range providers {
		s.PutSecret(sid, "", p.keys[0], realKey)
	}
	s.PutSecret(sid, "", "MY_KEY", customKey)
	return s
}

// env returns what a terminal gets.
func env(t testing.TB, s *Server, session protocol.SessionID, pty protocol.PTYID) map[string]string {
	t.Helper()
	names := []string{"MY_KEY"}
	for _, p := range providers {
		names = append(names, p.keys[0])
	}
	all, err := s.Environ(session, pty, terminalUID, names)
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// client never follows a redirect and keeps no connection.
var client = &http.Client{
	Transport:     &http.Transport{DisableKeepAlives: true, DisableCompression: true},
	CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
}

type answered struct {
	status int
	header http.Header
	body   string
}

// reason returns the error of a refusal.
func (a answered) reason() reason {
	var body struct {
		Error reason `json:"error"`
	}
	json.Unmarshal([]byte(a.body), &body)
	return body.Error
}

func do(t testing.TB, method, url, body string, header http.Header) answered {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), method, url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	if header != nil {
		r.Header = header
	}
	resp, err := client.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	data, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return answered{resp.StatusCode, resp.Header, string(data)}
}

// raw sends bytes as they are and returns the answer.
func raw(t testing.TB, s *Server, request string) answered {
	t.Helper()
	conn, err := net.Dial("tcp", s.opts.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if _, err := io.WriteString(conn, request); err != nil {
		t.Fatal(err)
	}
	data, err := io.ReadAll(conn)
	if err != nil {
		t.Fatal(err)
	}
	resp := string(data)
	var a answered
	if _, rest, ok := strings.Cut(resp, " "); ok && len(rest) >= 3 {
		a.status = int(rest[0]-'0')*100 + int(rest[1]-'0')*10 + int(rest[2]-'0')
	}
	_, a.body, _ = strings.Cut(resp, "\r\n\r\n")
	if i := strings.IndexByte(a.body, '{'); i >= 0 {
		a.body = a.body[i : strings.LastIndexByte(a.body, '}')+1]
	}
	return a
}

// stars masks some secrets in a stream, however it is cut.
type stars struct {
	secrets []string
	held    []byte
}

func newStars(secrets ...string) func() Masker {
	return func() Masker { return &stars{secrets: secrets} }
}

func (m *stars) Write(dst, p []byte) []byte {
	m.held = append(m.held, p...)
	m.mask()
	keep := 0
	for _, secret := range m.secrets {
		for n := min(len(secret)-1, len(m.held)); n > keep; n-- {
			if bytes.HasSuffix(m.held, []byte(secret[:n])) {
				keep = n
			}
		}
	}
	dst = append(dst, m.held[:len(m.held)-keep]...)
	m.held = append([]byte(nil), m.held[len(m.held)-keep:]...)
	return dst
}

func (m *stars) mask() {
	for _, secret := range m.secrets {
		m.held = bytes.ReplaceAll(m.held, []byte(secret), bytes.Repeat([]byte("*"), len(secret)))
	}
}

func (m *stars) Flush(dst []byte) []byte {
	dst = append(dst, bytes.Repeat([]byte("*"), len(m.held))...)
	m.held = nil
	return dst
}
