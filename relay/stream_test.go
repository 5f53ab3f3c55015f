package relay

import (
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/fairlead/fairlead/protocol/jws"
)

// request sends one to the relay at url, under its public name.
func request(t *testing.T, method, url, bearer, body string) *http.Response {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), method, url, strings.NewReader(body))
	must(t, err)
	r.Host = "one.example"
	if bearer != "" {
		r.Header.Set("Authorization", "Bearer "+bearer)
	}
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	resp, err := client.Do(r)
	must(t, err)
	t.Cleanup(func() { resp.Body.Close() })
	return resp
}

// ends waits for the end of a stream of events.
func ends(t *testing.T, stream *http.Response) {
	t.Helper()
	ended := make(chan error, 1)
	go func() { // ends with the stream
		_, err := io.Copy(io.Discard, stream.Body)
		ended <- err
	}()
	select {
	case err := <-ended:
		must(t, err)
	case <-time.After(slowly):
		t.Errorf("the stream is still open after %v", slowly)
	}
}

// The streams of pages end with the relay, and hold it up no more than others.
func TestDrainEndsStreams(t *testing.T) {
	w := newWorld(t, longDrain)
	at := <-w.addresses
	_, token := w.authority.Grant(nil)
	stream := request(t, http.MethodGet, at.URL+"/control/stream", token, "")
	if stream.StatusCode != http.StatusOK {
		t.Fatalf("status %d", stream.StatusCode)
	}
	w.stop()
	ends(t, stream)
	if took := w.finish(); took > slowly {
		t.Errorf("ended after %v", took)
	}
}

// A revocation ends the open streams of its grants, long before they would end
// by themselves, and no other's.
func TestRevocationEndsStreams(t *testing.T) {
	w := newWorld(t, longDrain)
	at := <-w.addresses
	grant, token := w.authority.Grant(nil)
	_, other := w.authority.Grant(nil)
	stream := request(t, http.MethodGet, at.URL+"/control/stream", token, "")
	kept := request(t, http.MethodGet, at.URL+"/control/stream", other, "")
	list, err := w.authority.Signer.SignRevocations(jws.Revocations{
		Number: 1, IssuedAt: time.Now().Unix(), Grants: []jws.RevokedGrant{{ID: grant.ID, ExpiresAt: grant.ExpiresAt}},
	})
	must(t, err)
	if resp := request(t, http.MethodPost, at.URL+"/control/revocations", "", list); resp.StatusCode != http.StatusNoContent {
		t.Fatalf("status %d", resp.StatusCode)
	}
	ends(t, stream)
	if resp := request(t, http.MethodGet, at.URL+"/control/stream", token, ""); resp.StatusCode != http.StatusUnauthorized {
		t.Errorf("a revoked grant opens a stream: %d", resp.StatusCode)
	}
	buf := make([]byte, len("retry: 2000\n\n"))
	if _, err := io.ReadFull(kept.Body, buf); err != nil {
		t.Errorf("the other stream: %v", err)
	}
	w.stop()
	ends(t, kept)
	w.finish()
}

// TestSocketsElsewhere: a WebSocket is refused at every path that has none, and
// where it lacks a credential, and the connection closed at once.
func TestSocketsElsewhere(t *testing.T) {
	w := newWorld(t, longDrain)
	at := <-w.addresses
	_, token := w.authority.Grant(nil)
	for _, path := range []string{"/", "/ws/", "/ws/x", "/WS", "/ws2", "/shell/x", "/x", "/health", "/app-session", "/api/auth/status", "/ws"} {
		credential := "Authorization: Bearer " + token + "\r\n"
		if path == "/ws" {
			credential = ""
		}
		conn, err := net.Dial("tcp", strings.TrimPrefix(at.URL, "http://"))
		must(t, err)
		must(t, conn.SetDeadline(time.Now().Add(slowly)))
		_, err = io.WriteString(conn, "GET "+path+" HTTP/1.1\r\nHost: one.example\r\nOrigin: https://one.example\r\n"+credential+
			"Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n\r\n")
		must(t, err)
		answer, err := io.ReadAll(conn) // until the relay closes it
		if status := strings.Fields(string(answer) + " none none")[1]; err != nil || status == "101" || status == "none" {
			t.Errorf("%s: %s, %v", path, status, err)
		}
		must(t, conn.Close())
	}
}
