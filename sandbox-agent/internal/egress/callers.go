package egress

import (
	"crypto/sha256"
	"encoding/base64"
	"net/netip"
	"net/url"
	"strings"
	"sync"

	"github.com/fairlead/fairlead/protocol"
)

// A caller is a terminal that may use the proxy.
type caller struct {
	session protocol.SessionID
	pty     protocol.PTYID
	uid     int // of its processes; 0 or less: shared with others
}

// callers are the terminals that may use the proxy, by the digest of their
// credentials, so that lookups leak no timing.
type callers struct {
	// Guarded by mu.
	mu       sync.Mutex
	byDigest map[[sha256.Size]byte]caller
}

func digest(user, password string) [sha256.Size]byte {
	return sha256.Sum256([]byte(user + ":" + password))
}

func (c *callers) add(who caller, capability string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.byDigest[digest(string(who.pty), capability)] = who
}

func (c *callers) remove(session protocol.SessionID, pty protocol.PTYID) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for key, who := range c.byDigest {
		if who.session == session && who.pty == pty {
			delete(c.byDigest, key)
		}
	}
}

// find returns the caller for a Proxy-Authorization field.
func (c *callers) find(field string) (caller, bool) {
	scheme, encoded, _ := strings.Cut(field, " ")
	if !strings.EqualFold(scheme, "Basic") {
		return caller{}, false
	}
	text, err := base64.StdEncoding.DecodeString(strings.TrimLeft(encoded, " "))
	if err != nil {
		return caller{}, false
	}
	user, password, _ := strings.Cut(string(text), ":")
	c.mu.Lock()
	defer c.mu.Unlock()
	who, ok := c.byDigest[digest(user, password)]
	return who, ok
}

// noProxy is what terminals reach without the proxy. Programs differ: some
// support networks, some only names and addresses.
const noProxy = "localhost,.localhost,127.0.0.1,::1,127.0.0.0/8"

// Environ lets a terminal use the proxy, until [Proxy.Forget], and returns the
// variables that make its programs do so. capability is this terminal's secret;
// uid is the user of its processes, 0 or less if it is shared. After several
// calls for one terminal all its capabilities stay valid.
//
// curl and others ignore HTTP_PROXY in capitals, because of CGI; other programs
// ignore it in lower case. NODE_USE_ENV_PROXY makes Node.js 24 and later read
// them at all.
func (p *Proxy) Environ(session protocol.SessionID, pty protocol.PTYID, uid int, capability string) []string {
	proxy := p.admit(caller{session, pty, uid}, capability)
	var environ []string
	for _, variable := range []struct{ name, value string }{
		{"HTTP_PROXY", proxy.String()}, {"HTTPS_PROXY", proxy.String()}, {"ALL_PROXY", proxy.String()}, {"NO_PROXY", noProxy},
	} {
		environ = append(environ, variable.name+"="+variable.value, strings.ToLower(variable.name)+"="+variable.value)
	}
	return append(environ, "NODE_USE_ENV_PROXY=1")
}

// admit lets a caller use the proxy with a capability, and returns the proxy's
// URL with it.
func (p *Proxy) admit(who caller, capability string) *url.URL {
	p.callers.add(who, capability)
	return &url.URL{Scheme: "http", User: url.UserPassword(string(who.pty), capability), Host: p.Addr().String()}
}

// Forget ends a terminal's use of the proxy. It doesn't cut open tunnels: they
// end with its processes.
func (p *Proxy) Forget(session protocol.SessionID, pty protocol.PTYID) {
	p.callers.remove(session, pty)
}

// authenticate returns who sent a request over c, or why it is refused:
// Challenged or DeniedAuthorization.
func (c *client) authenticate(h head) (caller, Reason) {
	if h.authorization == "" {
		return caller{}, Challenged
	}
	who, ok := c.p.callers.find(h.authorization)
	if !ok || who.uid > 0 && c.p.cfg.Peers != nil && !c.runsAs(who.uid) {
		return caller{}, DeniedAuthorization
	}
	return who, ""
}

// runsAs reports whether the client is a process of user uid.
func (c *client) runsAs(uid int) bool {
	if !c.uidKnown {
		local, err1 := netip.ParseAddrPort(c.conn.LocalAddr().String())
		remote, err2 := netip.ParseAddrPort(c.conn.RemoteAddr().String())
		if err1 != nil || err2 != nil {
			return false
		}
		peer, err := c.p.cfg.Peers.UID(local, remote)
		if err != nil {
			return false
		}
		c.uid, c.uidKnown = peer, true
	}
	return c.uid == uid
}
