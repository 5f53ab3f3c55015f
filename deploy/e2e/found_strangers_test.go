package e2e

import (
	"bufio"
	"context"
	"fmt"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

// A slow is a connection from an address of loopback with a request whose body
// never comes. It counts among open until the relay ends it.
func slow(t *testing.T, from net.IP, host, path string, open *atomic.Int64) net.Conn {
	t.Helper()
	dialer := net.Dialer{LocalAddr: &net.TCPAddr{IP: from}}
	conn, err := dialer.Dial("tcp", host)
	must(t, err)
	fmt.Fprintf(conn, "POST %s HTTP/1.1\r\nHost: %s\r\nAuthorization: Bearer x\r\nContent-Length: 200\r\n\r\n{", path, host)
	open.Add(1)
	go func() { // ends with the connection
		defer conn.Close()
		_, _ = http.ReadResponse(bufio.NewReader(conn), nil)
		open.Add(-1)
	}()
	return conn
}

// TestFound13SlowBodies: one address can't hold a relay by requests that it
// begins and doesn't finish, on any route. Others are served meanwhile, and so
// is that address itself.
func TestFound13SlowBodies(t *testing.T) {
	s := shared(t)
	ctx := within(t)
	host := strings.TrimPrefix(s.Ready.Relays[0].URL, "http://")
	routes := []string{
		"/control/commands", "/control/callback", "/pty-session", "/control/revocations", "/control-session",
		"/grants", "/auth/logout", "/sessions/" + string(s.Ready.SessionID) + "/ptys", "/",
	}
	const each, most = 40, 64
	var open atomic.Int64
	for range each {
		for _, route := range routes {
			conn := slow(t, net.IPv4(127, 0, 0, 2), host, route, &open)
			t.Cleanup(func() { conn.Close() })
		}
	}
	// Long before a body's time is over.
	began := time.Now()
	until(t, 8*time.Second, func() bool { return open.Load() <= most })
	t.Logf("%d of %d are open after %v", open.Load(), each*len(routes), time.Since(began))
	if n := open.Load(); n > most {
		t.Errorf("%d of %d are open, want %d at most", n, each*len(routes), most)
	}
	alice := s.Ready.User("alice")
	grant, err := alice.Grant(ctx, s.Ready.SessionID)
	must(t, err)
	_, err = alice.Ticket(ctx, grant, s.Ready.SessionID, s.Ready.PTYID)
	must(t, err)
	client := &http.Client{Transport: &http.Transport{DialContext: (&net.Dialer{LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 0, 0, 2)}}).DialContext}}
	defer client.CloseIdleConnections()
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, alice.Base+"/grants", strings.NewReader(`{"session_id":"`+string(s.Ready.SessionID)+`"}`))
	must(t, err)
	request.Header.Set("Authorization", "Bearer "+alice.Token)
	request.Header.Set("Content-Type", "application/json")
	answer, err := client.Do(request)
	must(t, err)
	answer.Body.Close()
	if answer.StatusCode != http.StatusOK {
		t.Errorf("the same address, and all of the body: %d", answer.StatusCode)
	}
}

// until waits for done, so long at most.
func until(t *testing.T, most time.Duration, done func() bool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), most)
	defer cancel()
	look := time.NewTicker(20 * time.Millisecond)
	defer look.Stop()
	for !done() {
		select {
		case <-look.C:
		case <-ctx.Done():
			return
		}
	}
}

// TestFound13StrangersCallbacks: what strangers post as callbacks never gets to
// the control plane, which would log that it refuses them.
func TestFound13StrangersCallbacks(t *testing.T) {
	s := shared(t)
	ctx := within(t)
	url := s.Ready.Relays[0].URL + "/control/callback"
	for i := range 10 {
		status, body, err := Call(ctx, http.MethodPost, url, "ct_stranger", map[string]any{
			"type": "control.callback", "commandId": fmt.Sprintf("cmd_stranger%d", i), "status": "ok",
		})
		must(t, err)
		if status != http.StatusNotFound && status != http.StatusTooManyRequests {
			t.Errorf("callback %d: %d %s", i, status, body)
		}
	}
	if log := s.Logs("controlplane"); strings.Contains(log, "POST /internal/callback") {
		t.Error("the control plane was asked about strangers' callbacks")
	}
}
