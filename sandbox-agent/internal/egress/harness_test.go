package egress

import (
	"bufio"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"testing"

	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/sandbox-agent/internal/hostname"
)

const (
	pty        = protocol.PTYID("pty_1")
	capability = "capability-of-a-test"
)

// A question is what the approver was asked.
type question struct {
	host   hostname.Host
	answer chan<- any // a protocol.Decision or an error
}

// people are an approver whose answers a test gives.
type people struct{ asked chan question }

func (p *people) AskEgress(ctx context.Context, _ protocol.SessionID, _ protocol.PTYID, host hostname.Host) (protocol.Decision, error) {
	answer := make(chan any, 1)
	select {
	case p.asked <- question{host, answer}:
	case <-ctx.Done():
		return "", ctx.Err()
	}
	select {
	case a := <-answer:
		if d, ok := a.(protocol.Decision); ok {
			return d, nil
		}
		if err, ok := a.(error); ok {
			return "", err
		}
		return "", nil
	case <-ctx.Done():
		return "", ctx.Err()
	}
}

// A harness is a proxy with an internet of its own, by names.
type harness struct {
	*Proxy
	rules  *Rules
	people *people

	// Guarded by mu.
	mu     sync.Mutex
	hosts  map[string]string // "name:port" to an address on loopback
	dialed []string
	events []Event
}

func (h *harness) DialHost(ctx context.Context, host hostname.Host, _ int) (net.Conn, error) {
	h.mu.Lock()
	h.dialed = append(h.dialed, host.String())
	address, ok := h.hosts[host.String()]
	h.mu.Unlock()
	switch {
	case !ok:
		return nil, protocol.Errorf(protocol.KindUpstream, "%s can't be resolved", host.Hostname())
	case address == "private":
		return nil, protocol.Errorf(protocol.KindForbidden, "%s is not on the internet", host.Hostname())
	}
	return new(net.Dialer).DialContext(ctx, "tcp", address)
}

func (*harness) Check(host hostname.Host, _ int) error {
	if host.IsIP() && host.IP.IsPrivate() {
		return errors.New("private")
	}
	return nil
}

// serve makes a host of the harness's internet reachable.
func (h *harness) serve(host, address string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.hosts[host] = address
}

func (h *harness) reasons() (all []Reason) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, e := range h.events {
		all = append(all, e.Reason)
	}
	return all
}

// newHarness returns a harness that isn't run, for tests with pipes.
func newHarness(t testing.TB, l net.Listener, edit func(*Config)) *harness {
	t.Helper()
	rules, err := OpenRules(t.TempDir()+"/egress.json", true)
	if err != nil {
		t.Fatal(err)
	}
	h := &harness{rules: rules, people: &people{asked: make(chan question)}, hosts: map[string]string{}}
	cfg := Config{
		Listener: l, Rules: rules, Approver: h.people, Dialer: h,
		OnEvent: func(e Event) {
			h.mu.Lock()
			defer h.mu.Unlock()
			h.events = append(h.events, e)
		},
	}
	if edit != nil {
		edit(&cfg)
	}
	if h.Proxy, err = New(cfg); err != nil {
		t.Fatal(err)
	}
	h.Environ(ses, pty, 0, capability)
	return h
}

// start returns a harness whose proxy runs until the test ends.
func start(t testing.TB, edit func(*Config)) *harness {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	h := newHarness(t, l, edit)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- h.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
		s := h.Snapshot()
		if s.Connections != 0 || s.Holding != 0 || s.Tunnels != 0 {
			t.Errorf("left: %+v", s)
		}
	})
	return h
}

// listen serves connections on loopback until the test ends, and returns the
// address.
func listen(t testing.TB, serve func(net.Conn)) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var all sync.WaitGroup
	all.Go(func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			all.Go(func() {
				defer conn.Close()
				serve(conn)
			})
		}
	})
	t.Cleanup(func() {
		l.Close()
		all.Wait()
	})
	return l.Addr().String()
}

var authorization = "Basic " + base64.StdEncoding.EncodeToString([]byte(string(pty)+":"+capability))

// A socket is a raw connection to the proxy.
type socket struct {
	net.Conn
	t  testing.TB
	br *bufio.Reader
}

func (h *harness) socket(t testing.TB) *socket {
	t.Helper()
	conn, err := net.Dial("tcp", h.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	return &socket{conn, t, bufio.NewReader(conn)}
}

// say sends lines, each with CRLF; "$AUTH" stands for the credentials.
func (s *socket) say(lines ...string) {
	s.t.Helper()
	text := strings.ReplaceAll(strings.Join(lines, "\r\n")+"\r\n", "$AUTH", "Proxy-Authorization: "+authorization)
	if _, err := s.Write([]byte(text)); err != nil {
		s.t.Error(err)
	}
}

// response reads the head of a response.
func (s *socket) response(method string) *http.Response {
	s.t.Helper()
	response, err := http.ReadResponse(s.br, &http.Request{Method: method})
	if err != nil {
		s.t.Fatal(err)
	}
	return response
}

// open makes a tunnel.
func (h *harness) open(t testing.TB, target string) *socket {
	t.Helper()
	s := h.socket(t)
	s.say("CONNECT "+target+" HTTP/1.1", "Host: "+target, "$AUTH", "")
	if response := s.response("CONNECT"); response.StatusCode != http.StatusOK {
		t.Fatalf("%s: %s", target, response.Status)
	}
	return s
}

// client returns an HTTP client that uses the proxy as programs do.
func (h *harness) client(t testing.TB) *http.Client {
	t.Helper()
	proxy, err := url.Parse(fmt.Sprintf("http://%s:%s@%s", pty, capability, h.Addr()))
	if err != nil {
		t.Fatal(err)
	}
	transport := &http.Transport{Proxy: http.ProxyURL(proxy), DisableCompression: true}
	t.Cleanup(transport.CloseIdleConnections)
	return &http.Client{Transport: transport}
}

// onePort is a port of the agent.
type onePort int

func (p onePort) Owns(port int) bool { return port == int(p) }

// A pipeDialer reaches the same connection wherever it dials.
type pipeDialer struct {
	Dialer
	conn net.Conn
}

func (d pipeDialer) DialHost(context.Context, hostname.Host, int) (net.Conn, error) {
	return d.conn, nil
}
