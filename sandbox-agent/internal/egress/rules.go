package egress

import (
	"maps"
	"slices"
	"sync"

	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/sandbox-agent/internal/hostname"
)

const (
	// MaxSessionRules bounds the rules of one session.
	MaxSessionRules = 1000
	// MaxRules bounds a sandbox's rules, and its sessions that have rules or an
	// own setting of egress.
	MaxRules = 20_000
)

// Rules say which hosts the sessions of a sandbox may reach, and which
// sessions' terminals use the proxy. Every change is on disk when it returns.
// They are safe for concurrent use.
//
// A rule is a host or "*.domain", with or without a port. Denying rules beat
// allowing ones, and the session's own beat the built-in allowlist. Denying a
// host also denies the names below it; without a port it denies all ports,
// while allowing without a port allows 80 and 443.
type Rules struct {
	// Static after construction.
	path     string
	on       bool // the default for sessions
	defaults *allowlist

	// Guarded by mu.
	mu       sync.Mutex
	sessions map[protocol.SessionID]*sessionRules
	changed  chan struct{} // closed at the next change
}

// sessionRules are immutable; changes replace them.
type sessionRules struct {
	on          *bool // nil: the sandbox's default
	allow, deny []hostname.Pattern
}

// OpenRules reads the rules in the file at path, which may be missing; its
// folder must exist. on is the default for sessions. An unreadable or malformed
// file is an error, as it contains somebody's denials.
func OpenRules(path string, on bool) (*Rules, error) {
	builtIn, err := defaults()
	if err != nil {
		return nil, err
	}
	sessions, err := loadRules(path)
	if err != nil {
		return nil, err
	}
	return &Rules{path: path, on: on, defaults: builtIn, sessions: sessions, changed: make(chan struct{})}, nil
}

// Enabled reports whether a session's terminals use the proxy.
func (r *Rules) Enabled(session protocol.SessionID) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if s := r.sessions[session]; s != nil && s.on != nil {
		return *s.on
	}
	return r.on
}

// SetEnabled says whether new terminals of a session use the proxy; nil: the
// sandbox's default.
func (r *Rules) SetEnabled(session protocol.SessionID, on *bool) error {
	return r.change(session, func(s *sessionRules) error {
		s.on = on
		return nil
	})
}

// Defaults returns the built-in allowlist, which must not be changed.
func (r *Rules) Defaults() []protocol.EgressCategory { return r.defaults.categories }

// List returns the rules of a session in canonical form, sorted.
func (r *Rules) List(session protocol.SessionID) (allow, deny []string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	s := r.sessions[session]
	if s == nil {
		return []string{}, []string{}
	}
	return texts(s.allow), texts(s.deny)
}

func texts(patterns []hostname.Pattern) []string {
	all := make([]string, 0, len(patterns))
	for _, p := range patterns {
		all = append(all, p.String())
	}
	slices.Sort(all)
	return all
}

// Decide makes a rule of a session: [protocol.AllowAlways] or
// [protocol.DenyAlways] for a pattern, replacing the opposite rule for exactly
// that pattern. Other decisions change nothing. It fails with KindInvalid for a
// malformed pattern, KindConflict if another rule denies what is to be allowed,
// KindTooMany at [MaxSessionRules] or [MaxRules], and KindUnavailable if the
// disk fails; then nothing has changed.
func (r *Rules) Decide(session protocol.SessionID, pattern string, decision protocol.Decision) error {
	if !decision.Lasts() {
		return nil
	}
	p, err := hostname.ParsePattern(pattern)
	if err != nil {
		return protocol.Errorf(protocol.KindInvalid, "pattern: %w", err)
	}
	return r.change(session, func(s *sessionRules) error {
		list, opposite := &s.allow, &s.deny
		if !decision.Allows() {
			list, opposite = opposite, list
		}
		*opposite = without(*opposite, p)
		if decision.Allows() {
			if above := slices.IndexFunc(s.deny, func(d hostname.Pattern) bool { return deniesAll(d, p) }); above >= 0 {
				return protocol.Errorf(protocol.KindConflict, "%s is denied by the rule %s: revoke that first", p, s.deny[above])
			}
		}
		if slices.Contains(*list, p) {
			return nil
		}
		if len(s.allow)+len(s.deny) >= MaxSessionRules {
			return protocol.Errorf(protocol.KindTooMany, "the session has %d rules", MaxSessionRules)
		}
		*list = append(*list, p)
		return nil
	})
}

// deniesAll reports whether a rule d denies all that p would allow.
func deniesAll(d, p hostname.Pattern) bool {
	probe := p.Base().WithPort(p.Port())
	if p.Wildcard() {
		probe.Name = "x." + probe.Name
	}
	return (d.Port() == 0 || d.Port() == p.Port()) && d.MatchBelow(probe)
}

// Revoke removes the rules of a session for exactly a pattern. It fails with
// KindInvalid for a malformed pattern, KindNotFound if there is none, and
// KindUnavailable if the disk fails.
func (r *Rules) Revoke(session protocol.SessionID, pattern string) error {
	p, err := hostname.ParsePattern(pattern)
	if err != nil {
		return protocol.Errorf(protocol.KindInvalid, "pattern: %w", err)
	}
	return r.change(session, func(s *sessionRules) error {
		if !slices.Contains(s.allow, p) && !slices.Contains(s.deny, p) {
			return protocol.Errorf(protocol.KindNotFound, "the session has no rule for %s", p)
		}
		s.allow, s.deny = without(s.allow, p), without(s.deny, p)
		return nil
	})
}

// Delete removes everything of a session.
func (r *Rules) Delete(session protocol.SessionID) error {
	return r.change(session, func(s *sessionRules) error {
		*s = sessionRules{}
		return nil
	})
}

// without returns a copy of patterns without p.
func without(patterns []hostname.Pattern, p hostname.Pattern) []hostname.Pattern {
	return slices.DeleteFunc(slices.Clone(patterns), func(other hostname.Pattern) bool { return other == p })
}

// change replaces a session's rules with a copy changed by edit, on disk first.
func (r *Rules) change(session protocol.SessionID, edit func(*sessionRules) error) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	next := &sessionRules{}
	if old := r.sessions[session]; old != nil {
		*next = sessionRules{old.on, slices.Clone(old.allow), slices.Clone(old.deny)}
	}
	if err := edit(next); err != nil {
		return err
	}
	sessions := maps.Clone(r.sessions)
	if next.on == nil && len(next.allow)+len(next.deny) == 0 {
		delete(sessions, session)
	} else {
		sessions[session] = next
	}
	if err := checkBounds(sessions); err != nil {
		return err
	}
	if err := saveRules(r.path, sessions); err != nil {
		return protocol.Fault(protocol.KindUnavailable, err)
	}
	r.sessions = sessions
	close(r.changed)
	r.changed = make(chan struct{})
	return nil
}

func checkBounds(sessions map[protocol.SessionID]*sessionRules) error {
	total := len(sessions)
	for _, s := range sessions {
		total += len(s.allow) + len(s.deny)
	}
	if total > MaxRules {
		return protocol.Errorf(protocol.KindTooMany, "the sandbox has %d rules", MaxRules)
	}
	return nil
}

// verdict returns the reason why the rules allow or deny host, or "" if
// somebody has to be asked.
func (r *Rules) verdict(session protocol.SessionID, host hostname.Host) Reason {
	r.mu.Lock()
	s := r.sessions[session]
	r.mu.Unlock()
	if s != nil {
		if slices.ContainsFunc(s.deny, func(p hostname.Pattern) bool { return p.MatchBelow(host) }) {
			return DeniedByRule
		}
		if slices.ContainsFunc(s.allow, func(p hostname.Pattern) bool { return allows(p, host) }) {
			return AllowedByRule
		}
	}
	if r.defaults.allows(host) {
		return AllowedByDefault
	}
	return ""
}

// Verdict returns whether the rules allow host, and whether they cover it:
// otherwise somebody has to be asked.
func (r *Rules) Verdict(session protocol.SessionID, host hostname.Host) (allowed, known bool) {
	reason := r.verdict(session, host)
	return reason.Allowed(), reason != ""
}

// next returns a channel that is closed at the next change of any rule.
func (r *Rules) next() <-chan struct{} {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.changed
}
