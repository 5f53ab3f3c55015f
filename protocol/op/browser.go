package op

import (
	"encoding/json"
	"strings"

	"github.com/fairlead/fairlead/protocol"
)

// KindCDPSend sends a message of the DevTools protocol to a browser.
const KindCDPSend = "cdp.send"

var browser = []Spec{
	{Kind: KindCDPSend, Needs: protocol.CapMCP, Target: TargetBrowser, Body: (*CDPSend)(nil)},
}

// CDPSend is the body of cdp.send (seed 003 §6.1).
type CDPSend struct {
	Method string          `json:"method"`
	Params json.RawMessage `json:"params,omitempty"`
	Tab    int             `json:"tab,omitempty"` // of a sandbox's own browser; 0: its active one
}

// Check requires a method of the DevTools protocol, "Domain.method". [CheckCDP]
// says which ones are allowed.
func (b *CDPSend) Check() error {
	if !validCDPMethod(b.Method) {
		return protocol.Errorf(protocol.KindInvalid, "op.method must have the form Domain.method")
	}
	if b.Tab < 0 {
		return protocol.Errorf(protocol.KindInvalid, "op.tab must be the number of a tab")
	}
	return nil
}

// AskedBy refuses what executors refuse, so that nothing is signed that no
// browser may do.
func (b *CDPSend) AskedBy(protocol.UserID) ([]protocol.Capability, error) {
	if _, err := CheckCDP(b.Method, b.Params); err != nil {
		return nil, protocol.Errorf(protocol.KindOf(err), "op: %v", err)
	}
	return nil, nil
}

// Browsers are those of a person whose pages listen at a relay, by their ids.
type Browsers struct {
	Browsers []string `json:"browsers"`
}

// ValidBrowserID reports whether id is one that an installation of the extension
// gives itself: "br_" and 26 characters of lower-case base32.
func ValidBrowserID(id string) bool {
	rest, named := strings.CutPrefix(id, "br_")
	return named && len(rest) == browserIDLength && strings.Trim(rest, "abcdefghijklmnopqrstuvwxyz234567") == ""
}

const browserIDLength = 26

const maxCDPMethod = 128

func validCDPMethod(method string) bool {
	dots := 0
	for i := range len(method) {
		switch c := method[i]; {
		case 'a' <= c && c <= 'z', 'A' <= c && c <= 'Z', '0' <= c && c <= '9' && i > 0:
		case c == '.' && i > 0 && i < len(method)-1:
			dots++
		default:
			return false
		}
	}
	return dots == 1 && len(method) <= maxCDPMethod
}

// BrowserStatus is the answer of GET /sessions/{sid}/browser: the state of the
// session's Chromium.
type BrowserStatus struct {
	State string `json:"state"` // stopped, starting or running
	URL   string `json:"url,omitempty"`
	Title string `json:"title,omitempty"`
	Error string `json:"error,omitempty"` // why the last start failed

	Tabs []BrowserTab `json:"tabs,omitempty"` // URL and Title are the active one's
}

// A BrowserTab is one of the session's Chromium. Its ID is never another one's.
type BrowserTab struct {
	ID     int    `json:"id"`
	URL    string `json:"url"`
	Title  string `json:"title"`
	Active bool   `json:"active"`
}
