package protocol

import (
	"crypto/rand"
	"strings"
)

// Each id has its own type, so that ids can't be mixed up. All share one
// syntax, checked by [ValidID].
type (
	SandboxID string // a sandbox VM, "sb_…"
	SessionID string // a session inside a sandbox, "ses_…"
	PTYID     string // a terminal of a session, "pty_…"
	UserID    string // a person, "usr_…"
	CommandID string // one signed action, "cmd_…"
	TraceID   string // follows one action through every program, "tr_…"
	GrantID   string // the jti of a grant, "gr_…"
	RelayID   string // a relay, "rl_…"
	PairingID string // of a laptop's browser and a session's, "pr_…"
)

// MaxIDBytes is the longest id that is accepted anywhere.
const MaxIDBytes = 128

// ValidID reports whether s is an acceptable id: [A-Za-z0-9][A-Za-z0-9_-]{0,127}
// (seed 001's rule for proposed PTY ids, applied everywhere).
func ValidID[T ~string](s T) bool {
	if len(s) == 0 || len(s) > MaxIDBytes {
		return false
	}
	for i := 0; i < len(s); i++ {
		switch c := s[i]; {
		case 'a' <= c && c <= 'z', 'A' <= c && c <= 'Z', '0' <= c && c <= '9':
		case (c == '_' || c == '-') && i > 0:
		default:
			return false
		}
	}
	return true
}

// RelayPrefix begins the ids of relays.
const RelayPrefix = "rl_"

func NewSandboxID() SandboxID { return SandboxID(newID("sb_")) }
func NewSessionID() SessionID { return SessionID(newID("ses_")) }
func NewPTYID() PTYID         { return PTYID(newID("pty_")) }
func NewUserID() UserID       { return UserID(newID("usr_")) }
func NewCommandID() CommandID { return CommandID(newID("cmd_")) }
func NewTraceID() TraceID     { return TraceID(newID("tr_")) }
func NewGrantID() GrantID     { return GrantID(newID("gr_")) }
func NewRelayID() RelayID     { return RelayID(newID(RelayPrefix)) }
func NewPairingID() PairingID { return PairingID(newID("pr_")) }

// newID returns prefix and 26 random characters of lower-case base32 (130 bits).
func newID(prefix string) string { return prefix + strings.ToLower(rand.Text()) }
