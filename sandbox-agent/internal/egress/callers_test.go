package egress

import (
	"fmt"
	"net/http"
	"net/netip"
	"slices"
	"testing"

	"github.com/fairlead/fairlead/sandbox-agent/internal/peer"
)

func TestAuthorization(t *testing.T) {
	uid := 2001
	h := start(t, func(c *Config) {
		c.Peers = peer.UsersFunc(func(local, remote netip.AddrPort) (int, error) {
			if local != c.Listener.Addr().(interface{ AddrPort() netip.AddrPort }).AddrPort() || remote == local {
				t.Errorf("asked about %v and %v", local, remote)
			}
			return uid, nil
		})
	})
	h.web(t, "a.com:80", func(http.ResponseWriter, *http.Request) {})
	ask := func(line string) int {
		s := h.socket(t)
		defer s.Close()
		s.say("GET http://a.com/ HTTP/1.1", "Host: a.com", line, "")
		response := s.response("GET")
		if response.StatusCode == http.StatusProxyAuthRequired && response.Header.Get("Proxy-Authenticate") == "" {
			t.Error("no challenge")
		}
		return response.StatusCode
	}
	for _, line := range []string{"X: y", "Proxy-Authorization: Bearer x", "Proxy-Authorization: Basic !", "Proxy-Authorization: Basic eDp5", "Proxy-Authorization: Basic", "Authorization: " + authorization} {
		if got := ask(line); got != http.StatusProxyAuthRequired {
			t.Errorf("%q: %d", line, got)
		}
	}
	if got := ask("$AUTH"); got != http.StatusOK { // a terminal without a user of its own
		t.Errorf("%d", got)
	}
	h.Environ(ses, pty, 2001, capability)
	if got := ask("$AUTH"); got != http.StatusOK {
		t.Errorf("its own user: %d", got)
	}
	uid = 2002
	if got := ask("$AUTH"); got != http.StatusProxyAuthRequired {
		t.Errorf("another user: %d", got)
	}
	h.Environ(ses, pty, 0, capability)
	h.Forget("ses_2", pty)
	if got := ask("$AUTH"); got != http.StatusOK {
		t.Errorf("another session's end: %d", got)
	}
	h.Forget(ses, pty)
	if got := ask("$AUTH"); got != http.StatusProxyAuthRequired {
		t.Errorf("forgotten: %d", got)
	}
}

func TestEnviron(t *testing.T) {
	h := start(t, nil)
	environ := h.Environ(ses, "pty_2", 0, "a/b:c")
	proxy := fmt.Sprintf("http://pty_2:a%%2Fb%%3Ac@%s", h.Addr())
	for _, want := range []string{"HTTP_PROXY=" + proxy, "https_proxy=" + proxy, "all_proxy=" + proxy, "NO_PROXY=" + noProxy, "no_proxy=" + noProxy} {
		if !slices.Contains(environ, want) {
			t.Errorf("%q is not in %q", want, environ)
		}
	}
}
