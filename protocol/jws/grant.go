package jws

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/fairlead/fairlead/protocol"
)

// AllPTYs in a grant's ptys stands for every terminal.
const AllPTYs = "*"

// A Grant says what one user may do in one sandbox for some minutes.
type Grant struct {
	Issuer    string                `json:"iss"`
	Audience  string                `json:"aud"`
	Subject   protocol.UserID       `json:"sub"`
	Name      string                `json:"name"`              // how others see the user
	Dashboard string                `json:"dashboard"`         // the dashboard that the sandbox serves
	Sandbox   protocol.SandboxID    `json:"sandbox"`           // where a relay routes it
	Session   protocol.SessionID    `json:"session,omitempty"` // empty: every session of the dashboard
	PTYs      []string              `json:"ptys"`              // terminals, or [AllPTYs]
	Caps      []protocol.Capability `json:"caps"`              // of a verified grant: known ones only
	IssuedAt  int64                 `json:"iat"`               // Unix seconds
	ExpiresAt int64                 `json:"exp"`               // Unix seconds, at most [protocol.MaxGrantTTL] after IssuedAt
	ID        protocol.GrantID      `json:"jti"`
	Confirm   json.RawMessage       `json:"cnf,omitempty"` // RFC 7800: a key that the holder must prove; not used yet

	Kid string `json:"-"` // of a verified grant: the key that signed it
}

var grantNames = vocabularyOf(protocol.MemberNames(Grant{}))

// Allows reports whether g carries capability for terminal pty of session. A
// route without a terminal passes "" for pty, and ptys don't restrict it. A
// route without a session passes "" for session, which a grant for one session
// doesn't allow.
func (g *Grant) Allows(session protocol.SessionID, pty protocol.PTYID, capability protocol.Capability) bool {
	if g.Session != "" && g.Session != session {
		return false
	}
	if pty != "" && !slices.Contains(g.PTYs, AllPTYs) && !slices.Contains(g.PTYs, string(pty)) {
		return false
	}
	return slices.Contains(g.Caps, capability)
}

// Expires returns g's expiry, without the skew.
func (g *Grant) Expires() time.Time { return time.Unix(g.ExpiresAt, 0) }

// Over reports whether g has expired at now, without the skew.
func (g *Grant) Over(now time.Time) bool { return !now.Before(g.Expires()) }

// openGrant applies steps 8 to 14 of README.md to a token that passed the
// profile.
func openGrant(t Token, now time.Time) (*Grant, error) {
	var g Grant
	if err := openObject(t, TypeGrant, grantNames, &g); err != nil {
		return nil, refused("grant: %s", err)
	}
	if err := g.check(); err != nil {
		return nil, refused("grant: %s", err)
	}
	if err := checkLife("grant", g.IssuedAt, g.ExpiresAt, now); err != nil {
		return nil, err
	}
	g.Caps = slices.DeleteFunc(g.Caps, func(c protocol.Capability) bool { return !c.Known() })
	return &g, nil
}

// check applies the rules that need nothing but the grant.
func (g *Grant) check() error {
	switch {
	case !protocol.ValidID(g.Subject):
		return errors.New("sub is not an id")
	case !protocol.ValidID(g.Sandbox):
		return errors.New("sandbox is not an id")
	case !validOrEmpty(g.Dashboard):
		return errors.New("dashboard is not an id")
	case !validOrEmpty(g.Session):
		return errors.New("session is not an id")
	case !protocol.ValidID(g.ID):
		return errors.New("jti is not an id")
	}
	for _, pty := range g.PTYs {
		if pty != AllPTYs && !protocol.ValidID(pty) {
			return errors.New("ptys has a member that is not an id")
		}
	}
	return checkSpan(g.IssuedAt, g.ExpiresAt, protocol.MaxGrantTTL)
}

// openObject decodes the payload of a grant or certificate after the checks
// that both share: typ, strict JSON, iss and aud.
func openObject(t Token, typ string, names vocabulary, object any) error {
	if t.Type != typ {
		return fmt.Errorf("typ must be %s", typ)
	}
	members, err := parseObject(t.Payload)
	if err != nil {
		return fmt.Errorf("payload: %w", err)
	}
	if err := names.check(members); err != nil {
		return fmt.Errorf("payload: %w", err)
	}
	if err := checkParties(members, AudienceFairlead); err != nil {
		return err
	}
	if names.foreign(members) != "" {
		return errors.New("it has a member of no meaning here")
	}
	if err := json.Unmarshal(t.Payload, object); err != nil {
		return errors.New("a member has the wrong type")
	}
	return nil
}

// checkParties compares iss and aud. aud must be one string, since an array
// would widen the audience.
func checkParties(members map[string]json.RawMessage, audience string) error {
	if iss, _ := stringMember(members, "iss"); iss != Issuer {
		return fmt.Errorf("iss must be %s", Issuer)
	}
	if aud, ok := stringMember(members, "aud"); !ok || aud != audience {
		return errors.New("made for another audience")
	}
	return nil
}

// maxUnixSeconds is the end of the year 9999; times up to it can be added and
// compared without overflow.
const maxUnixSeconds = 253402300799

// checkSpan checks that iat and exp, in Unix seconds, are in order and at most
// longest apart; 0 stands for no limit.
func checkSpan(iat, exp int64, longest time.Duration) error {
	if iat < 0 || exp <= iat || exp > maxUnixSeconds {
		return errors.New("iat and exp are not in order")
	}
	if longest > 0 && exp-iat > int64(longest/time.Second) {
		return fmt.Errorf("valid for longer than %s", longest)
	}
	return nil
}

// checkLife compares iat and exp, which passed checkSpan, with now.
func checkLife(what string, iat, exp int64, now time.Time) error {
	if time.Unix(iat, 0).After(now.Add(Skew)) {
		return refused("%s: issued in the future", what)
	}
	if now.After(time.Unix(exp, 0).Add(Skew)) {
		return protocol.Errorf(protocol.KindExpired, "%s: expired", what)
	}
	return nil
}
