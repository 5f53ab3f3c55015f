package access

import (
	"net/http"
	"strings"

	"github.com/fairlead/fairlead/protocol"
)

// ExtensionScheme begins the origins of browser extensions.
const ExtensionScheme = "chrome-extension://"

// PanelCookieName is the cookie that opens the side panel's terminal, and
// PanelStreamCookieName the one that opens its streams (seed 000). Chromium sends
// none that is SameSite=Strict with the WebSocket of an extension's page:
// PanelSocketCookieName has the same value without that, for the socket alone, which
// a listed extension must open.
const (
	PanelCookieName       = "gstack_pty"
	PanelSocketCookieName = "gstack_pty_socket"
	PanelStreamCookieName = "gstack_sse"
)

const (
	// What a listed extension may send, to the panel's routes.
	extensionMethods = "GET, HEAD, POST"
	extensionHeaders = "Authorization, Content-Type, Idempotency-Key, Last-Event-ID"
	// extensionIDBytes is the length of an extension's id.
	extensionIDBytes = 32
)

// panelCookies are the only ones of an extension that count.
var panelCookies = []string{PanelCookieName, PanelSocketCookieName, PanelStreamCookieName}

// panelPaths are what a listed extension may use: the side panel's, and what sealed
// sync posts to. One that ends with a slash or a hyphen stands for all that it begins.
var panelPaths = []string{
	"/ws", "/pty-session", "/pty-session/reattach", "/pty-restart", "/pty-dispose", "/claude-available", "/health", "/grants",
	"/chat-session", "/sse-session", "/sidebar-", "/activity/", "/sync/",
}

// extensions are the listed ones, by origin.
type extensions map[string]bool

// listExtensions returns the extensions with these ids.
func listExtensions(ids []string) (extensions, error) {
	all := extensions{}
	for _, id := range ids {
		if !validExtension(id) {
			return nil, protocol.Errorf(protocol.KindInvalid, "extension id %q must be %d letters from a to p", id, extensionIDBytes)
		}
		all[ExtensionScheme+id] = true
	}
	return all, nil
}

// validExtension reports whether Chrome could have given an extension this id.
func validExtension(id string) bool {
	return len(id) == extensionIDBytes && strings.Trim(id, "abcdefghijklmnop") == ""
}

// of returns the origin of the extension that has sent r, empty for any other
// sender, and whether it is listed.
func (e extensions) of(r *http.Request) (origin string, listed bool) {
	values := r.Header.Values("Origin")
	if len(values) != 1 || !strings.HasPrefix(values[0], ExtensionScheme) {
		return "", false
	}
	return values[0], e[values[0]]
}

// may reports whether a listed extension has sent r, to a route that it may use.
func (e extensions) may(r *http.Request) bool {
	if _, listed := e.of(r); !listed {
		return false
	}
	for _, path := range panelPaths {
		if r.URL.Path == path || strings.ContainsRune("/-", rune(path[len(path)-1])) && strings.HasPrefix(r.URL.Path, path) {
			return true
		}
	}
	return false
}
