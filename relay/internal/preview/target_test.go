package preview

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"

	"github.com/fairlead/fairlead/protocol"
)

// oddTargets are what a mux or a URL would make another target of.
var oddTargets = []string{
	"/proxy/https://example.com/x", "//", "//a", "///a//b", "/a/../b", "/..", "/../../x", "/./a/.", "/a%2Fb%2f..%2F", "/%2e%2e/a", "/%41",
	"/a|b%2Fc", "//a|b%2Fc", "/a\"<>`{}^\\[]", "/caf\xc3\xa9/%C3%A9", "/a;b=c,d", "/a?", "/a??", "/?x=%zz;y&z=//..", "/a#b",
	"/sessions/ses_1/preview/1//", "//a%2Fb?c=/../d", "/a:b@c", "/*", "/" + strings.Repeat("a/", 3000),
}

// The sandbox is asked for what was sent, byte for byte, by WebSockets too.
func TestOddTargets(t *testing.T) {
	w := newWorld(t, func(rw http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Upgrade") == "" {
			io.WriteString(rw, r.RequestURI)
			return
		}
		conn, buf, err := http.NewResponseController(rw).Hijack()
		if err != nil {
			return
		}
		defer conn.Close()
		fmt.Fprintf(buf, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nX-Target: %s\r\n\r\n", r.RequestURI)
		buf.Flush()
	})
	_, token := w.grant()
	_, host, cookie := w.open(token)
	ask := func(target, header string) (*http.Response, string) {
		conn, err := net.Dial("tcp", w.server.Listener.Addr().String())
		must(t, err)
		defer conn.Close()
		fmt.Fprintf(conn, "GET %s HTTP/1.1\r\nHost: %s\r\nCookie: %s\r\n%s\r\n", target, strings.TrimPrefix(host, "http://"), cookie, header)
		resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
		must(t, err)
		defer resp.Body.Close()
		return resp, text(resp)
	}
	const prefix = "/sessions/ses_1/preview/3000"
	for _, target := range oddTargets {
		if resp, body := ask(target, "Connection: close\r\n"); resp.StatusCode != http.StatusOK || body != prefix+target {
			t.Errorf("%.60q: %d, %.60q", target, resp.StatusCode, body)
		}
		resp, _ := ask(target, "Connection: Upgrade\r\nUpgrade: websocket\r\n")
		if got := resp.Header.Get("X-Target"); resp.StatusCode != http.StatusSwitchingProtocols || got != prefix+target {
			t.Errorf("a WebSocket at %.60q: %d, %.60q", target, resp.StatusCode, got)
		}
	}
	if _, body := ask(host+"//a/../b?", "Connection: close\r\n"); body != prefix+"//a/../b?" {
		t.Errorf("with the host: %q", body)
	}
}

// What opens a preview while others have it go on finds its ticket good, and
// tickets whose time is over take nobody's place.
func TestTicketAmongRenewals(t *testing.T) {
	w := newWorld(t, func(rw http.ResponseWriter, r *http.Request) {})
	_, token := w.grant()
	o := w.post(token, `{"port":3000}`)
	renew := `{"port":3000,"id":"` + o.ID + `"}`
	for range 20 {
		w.post(token, renew)
	}
	if resp := w.get(o.URL); resp.StatusCode != http.StatusSeeOther || len(resp.Cookies()) != 1 {
		t.Errorf("after renewals: %d %v", resp.StatusCode, resp.Cookies())
	}
	w.later(protocol.TicketTTL)
	w.post(token, renew)
	if n := len(w.previews.registry.byID[o.ID].tickets); n != 1 {
		t.Errorf("%d tickets are kept", n)
	}
}
