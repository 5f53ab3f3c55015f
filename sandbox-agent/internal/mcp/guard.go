package mcp

import (
	"crypto/sha256"
	"crypto/subtle"
	"mime"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"os"
	"strconv"
	"strings"

	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/sandbox-agent/internal/route"
	"github.com/fairlead/fairlead/sandbox-agent/internal/toolbox"
)

// Reasons for which requests are refused, as they are counted.
const (
	refusedHost    = "host"
	refusedOrigin  = "origin"
	refusedRequest = "request" // malformed
	refusedSecret  = "secret"
	refusedUser    = "user" // of another uid than the terminal's
	refusedGrant   = "grant"
	refusedType    = "content_type"
	refusedSize    = "size"
	refusedMessage = "message" // of MCP
	refusedSession = "session" // that the caller has not
	refusedLimit   = "limit"
)

var refusals = []string{
	refusedHost, refusedOrigin, refusedRequest, refusedSecret, refusedUser, refusedGrant, refusedType, refusedSize,
	refusedMessage, refusedSession, refusedLimit,
}

// A fault is a refusal before anything was done.
type fault struct {
	reason  string
	status  int
	message string
}

func (f *fault) Error() string { return f.message }

var (
	errHost   = &fault{refusedHost, http.StatusForbidden, "the Host header names another host than this one"}
	errOrigin = &fault{refusedOrigin, http.StatusForbidden, "requests of web pages are not answered"}
	errPTY    = &fault{refusedRequest, http.StatusBadRequest, "pty_id is missing, or no id"}
	errID     = &fault{refusedRequest, http.StatusBadRequest, "the session's id is none"}
	errSecret = &fault{refusedSecret, http.StatusForbidden, "the secret is not that of this terminal"}
	errUser   = &fault{refusedUser, http.StatusForbidden, errSecret.message} // a guess learns nothing
	errEnded  = &fault{refusedRequest, http.StatusNotFound, "there is no such terminal"}
	errGrant  = &fault{refusedGrant, http.StatusForbidden, "the grant does not allow mcp here"}
	errType   = &fault{refusedType, http.StatusUnsupportedMediaType, "the body must be application/json"}
	errSize   = &fault{refusedSize, http.StatusRequestEntityTooLarge, "the body has more than " + strconv.Itoa(protocol.MaxMCPBody) + " bytes"}
	errBody   = &fault{refusedRequest, http.StatusBadRequest, "the body did not come whole"}
)

// admit returns the terminal whose program sent a request on loopback. inPath
// says that the path names the terminal, rather than the query.
func (s *Server) admit(r *http.Request, inPath bool) (toolbox.Caller, error) {
	if !ownHost(r.Host, s.port) {
		return toolbox.Caller{}, errHost
	}
	for _, origin := range r.Header.Values("Origin") {
		if !ownOrigin(origin, s.port) {
			return toolbox.Caller{}, errOrigin
		}
	}
	caller := toolbox.Caller{Session: protocol.SessionID(r.PathValue("sid")), PTY: protocol.PTYID(r.PathValue("pid"))}
	if !inPath {
		caller.PTY = protocol.PTYID(r.URL.Query().Get("pty_id"))
	}
	if !protocol.ValidID(caller.PTY) {
		return toolbox.Caller{}, errPTY
	}
	if !protocol.ValidID(caller.Session) {
		return toolbox.Caller{}, errID
	}
	want, known := s.known.secret(caller.Session, caller.PTY)
	if !sameSecret(want, known, r.Header.Get(protocol.MCPSecretHeader)) {
		return toolbox.Caller{}, errSecret
	}
	if !s.ownUser(r, caller) {
		return toolbox.Caller{}, errUser
	}
	caller.Tab = toolbox.ParseTab(r.Header.Get(toolbox.TabHeader))
	return caller, nil
}

// sameSecret compares hashes, so that its time shows neither a secret's length
// nor whether there is one.
func sameSecret(want string, known bool, got string) bool {
	wanted, shown := sha256.Sum256([]byte(want)), sha256.Sum256([]byte(got))
	same := subtle.ConstantTimeCompare(wanted[:], shown[:]) == 1
	return same && known && want != ""
}

// ownUser reports whether the request comes from a process of the caller's
// user, if it has one, or of this program's user, who may read all secrets.
func (s *Server) ownUser(r *http.Request, caller toolbox.Caller) bool {
	if s.opts.Peers == nil {
		return true
	}
	want, ok := s.opts.Terminals.UID(caller.Session, caller.PTY)
	if !ok {
		return true
	}
	local, _ := r.Context().Value(http.LocalAddrContextKey).(*net.TCPAddr)
	remote, err := netip.ParseAddrPort(r.RemoteAddr)
	if local == nil || err != nil {
		return false
	}
	uid, err := s.opts.Peers.UID(local.AddrPort(), remote)
	return err == nil && (uid == want || uid == os.Geteuid())
}

// ownHost reports whether a Host header names this listener; port 0 stands for
// any.
func ownHost(host string, port int) bool {
	name, at, err := net.SplitHostPort(host)
	if err != nil {
		name, at = strings.TrimSuffix(strings.TrimPrefix(host, "["), "]"), "80"
	}
	if port != 0 && at != strconv.Itoa(port) {
		return false
	}
	if strings.EqualFold(name, "localhost") {
		return true
	}
	addr, err := netip.ParseAddr(name)
	return err == nil && addr.Zone() == "" && addr.Unmap().IsLoopback()
}

// ownOrigin reports whether an Origin header is that of a page of this
// listener's.
func ownOrigin(origin string, port int) bool {
	u, err := url.Parse(origin)
	return err == nil && u.Scheme == "http" && u.User == nil && u.Path == "" && ownHost(u.Host, port)
}

// isJSON reports whether a request's body says that it is JSON.
func isJSON(r *http.Request) bool {
	kind, _, err := mime.ParseMediaType(r.Header.Get("Content-Type"))
	return err == nil && kind == "application/json"
}

// granted returns the caller of a request through a relay.
func (s *Server) granted(r *http.Request) (toolbox.Caller, error) {
	caller := toolbox.Caller{
		Session: protocol.SessionID(r.PathValue("sid")), PTY: protocol.PTYID(r.URL.Query().Get("pty_id")),
	}
	if !protocol.ValidID(caller.Session) {
		return toolbox.Caller{}, errID
	}
	if caller.PTY != "" && !protocol.ValidID(caller.PTY) {
		return toolbox.Caller{}, errPTY
	}
	caller.Grant = route.GrantOf(r)
	if caller.Grant == nil || !caller.Grant.Allows(caller.Session, caller.PTY, protocol.CapMCP) {
		return toolbox.Caller{}, errGrant
	}
	if caller.PTY != "" {
		if _, known := s.known.secret(caller.Session, caller.PTY); !known {
			return toolbox.Caller{}, errEnded // invented terminals would fill the table of callers
		}
	}
	return caller, nil
}
