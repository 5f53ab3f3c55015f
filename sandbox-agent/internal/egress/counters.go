package egress

import (
	"maps"
	"slices"
	"sync/atomic"
	"time"

	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/sandbox-agent/internal/hostname"
)

// A Reason says why a request was allowed, denied or failed. It is the
// counters' label.
type Reason string

// Reasons for allowing a request.
const (
	AllowedLoopback  Reason = "allowed_loopback"  // to this machine
	AllowedByDefault Reason = "allowed_default"   // the built-in allowlist
	AllowedByRule    Reason = "allowed_rule"      // a rule of the session
	AllowedByPerson  Reason = "allowed_by_person" // somebody was asked
)

// Reasons for denying it.
const (
	DeniedByRule        Reason = "denied_rule"
	DeniedByPerson      Reason = "denied_by_person"
	DeniedExpired       Reason = "denied_expired"    // nobody decided in time
	DeniedTooMany       Reason = "denied_too_many"   // too many open questions
	DeniedUnasked       Reason = "denied_unasked"    // nobody could be asked
	DeniedGone          Reason = "denied_gone"       // the client left before the decision
	DeniedPort          Reason = "denied_port"       // a port of the agent itself
	DeniedPrivate       Reason = "denied_private"    // a non-public address
	DeniedNotTLS        Reason = "denied_not_tls"    // port 443 without TLS
	DeniedNoName        Reason = "denied_no_name"    // TLS without a host name
	DeniedOtherName     Reason = "denied_other_name" // TLS for another host
	DeniedHello         Reason = "denied_hello"      // unreadable or oversized ClientHello
	DeniedHelloTimeout  Reason = "denied_hello_timeout"
	DeniedAuthorization Reason = "denied_authorization" // of no terminal, or of another user's process
	DeniedBusy          Reason = "denied_busy"          // too many connections
	DeniedRevoked       Reason = "denied_revoked"       // a rule came while the tunnel was open
)

// Reasons without a verdict.
const (
	Challenged     Reason = "challenged"      // no credentials: many programs send them only when asked
	RefusedInvalid Reason = "refused_invalid" // not HTTP, or HTTP that two programs could read differently
	FailedDial     Reason = "failed_dial"
	FailedUpstream Reason = "failed_upstream" // no answer in HTTP
)

var reasons = []Reason{
	AllowedLoopback, AllowedByDefault, AllowedByRule, AllowedByPerson,
	DeniedByRule, DeniedByPerson, DeniedExpired, DeniedTooMany, DeniedUnasked, DeniedGone, DeniedPort, DeniedPrivate,
	DeniedNotTLS, DeniedNoName, DeniedOtherName, DeniedHello, DeniedHelloTimeout, DeniedAuthorization, DeniedBusy, DeniedRevoked,
	Challenged, RefusedInvalid, FailedDial, FailedUpstream,
}

// Reasons returns all reasons.
func Reasons() []Reason { return slices.Clone(reasons) }

// Allowed reports whether r allows a request.
func (r Reason) Allowed() bool {
	return r == AllowedLoopback || r == AllowedByDefault || r == AllowedByRule || r == AllowedByPerson
}

// An Event is a verdict of the proxy, or the failure of an allowed request.
type Event struct {
	Session protocol.SessionID // "" for an unknown caller
	PTY     protocol.PTYID
	Host    hostname.Host // zero if the request named none
	Tunnel  bool          // CONNECT
	Reason  Reason
	Waited  time.Duration // for a decision
}

// A Snapshot holds a proxy's counters.
type Snapshot struct {
	Reasons     map[Reason]uint64 // all reasons, events since the start
	Connections int64             // of clients, now
	Holding     int64             // requests that wait for a decision, now
	Tunnels     int64             // now
	SentBytes   uint64            // to hosts, counted when a tunnel or request ends
	GotBytes    uint64            // from hosts, likewise
}

type counters struct {
	reasons                       map[Reason]*atomic.Uint64 // static
	connections, holding, tunnels atomic.Int64
	sent, got                     atomic.Uint64
}

func newCounters() *counters {
	c := &counters{reasons: make(map[Reason]*atomic.Uint64, len(reasons))}
	for _, reason := range reasons {
		c.reasons[reason] = new(atomic.Uint64)
	}
	return c
}

func (c *counters) snapshot() Snapshot {
	s := Snapshot{
		Reasons: make(map[Reason]uint64, len(c.reasons)), Connections: c.connections.Load(), Holding: c.holding.Load(),
		Tunnels: c.tunnels.Load(), SentBytes: c.sent.Load(), GotBytes: c.got.Load(),
	}
	for reason, n := range maps.All(c.reasons) {
		s.Reasons[reason] = n.Load()
	}
	return s
}
