package jws_test

import (
	"math"
	"slices"
	"testing"
	"time"

	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/protocol/jws"
)

func TestGrantAllows(t *testing.T) {
	const view, shell = protocol.CapView, protocol.CapShell
	whole := jws.Grant{PTYs: []string{"*"}, Caps: []protocol.Capability{view}}
	session := jws.Grant{Session: "ses_1", PTYs: []string{"*"}, Caps: []protocol.Capability{view}}
	listed := jws.Grant{Session: "ses_1", PTYs: []string{"pty_1", "pty_2"}, Caps: []protocol.Capability{view, shell}}
	none := jws.Grant{Session: "ses_1", Caps: []protocol.Capability{view}}
	for _, tt := range []struct {
		name    string
		grant   jws.Grant
		session protocol.SessionID
		pty     protocol.PTYID
		cap     protocol.Capability
		want    bool
	}{
		{"whole dashboard", whole, "ses_1", "pty_1", view, true},
		{"whole dashboard, no session", whole, "", "", view, true},
		{"missing capability", whole, "ses_1", "pty_1", shell, false},
		{"its session", session, "ses_1", "pty_1", view, true},
		{"other session", session, "ses_2", "pty_1", view, false},
		{"no session named", session, "", "", view, false},
		{"listed pty", listed, "ses_1", "pty_2", view, true},
		{"other pty", listed, "ses_1", "pty_3", view, false},
		{"pty is a star", listed, "ses_1", "*", view, false},
		{"no pty named", listed, "ses_1", "", shell, true},
		{"no ptys", none, "ses_1", "pty_1", view, false},
		{"no ptys, none named", none, "ses_1", "", view, true},
		{"empty capability", whole, "ses_1", "", "", false},
	} {
		if got := tt.grant.Allows(tt.session, tt.pty, tt.cap); got != tt.want {
			t.Errorf("%s: %t", tt.name, got)
		}
	}
}

func TestGrantTimes(t *testing.T) {
	const ms = time.Millisecond
	k := newRawKey(t, "k1")
	token := k.typed(jws.TypeGrant, mustJSON(grantPayload())) // for 300 s
	for _, tt := range []struct {
		name string
		at   time.Time
		kind protocol.Kind // KindInternal: accepted
	}{
		{"60.001 s ahead of us", now.Add(-jws.Skew - ms), protocol.KindUnauthenticated},
		{"60 s ahead of us", now.Add(-jws.Skew), protocol.KindInternal},
		{"at the end of skew", now.Add(300*time.Second + jws.Skew), protocol.KindInternal},
		{"1 ms after the end of skew", now.Add(300*time.Second + jws.Skew + ms), protocol.KindExpired},
	} {
		t.Run(tt.name, func(t *testing.T) {
			g, err := k.static(t, tt.at).Grant(t.Context(), token)
			if tt.kind == protocol.KindInternal {
				noError(t, err)
				return
			}
			wantKind(t, err, tt.kind)
			if g != nil {
				t.Fatal("a grant beside an error")
			}
		})
	}
}

func TestGrantMembers(t *testing.T) {
	k := newRawKey(t, "k1")
	iat := now.Unix()
	for _, tt := range []struct {
		name   string
		change func(object) object
		ok     bool
	}{
		{"10 minutes", func(o object) object { return o.with("exp", iat+600) }, true},
		{"10 minutes and a second", func(o object) object { return o.with("exp", iat+601) }, false},
		{"1 second", func(o object) object { return o.with("exp", iat+1) }, true},
		{"no time at all", func(o object) object { return o.with("exp", iat) }, false},
		{"backwards", func(o object) object { return o.with("exp", iat-1) }, false},
		{"exp missing", func(o object) object { return o.with("exp", nil) }, false},
		{"iat missing", func(o object) object { return o.with("iat", nil) }, false},
		{"exp fraction", func(o object) object { return o.with("exp", float64(iat)+0.5) }, false},
		{"overflow", func(o object) object { return o.with("iat", math.MinInt64).with("exp", int64(math.MaxInt64)) }, false},
		{"end of time", func(o object) object {
			return o.with("iat", int64(math.MaxInt64-1)).with("exp", int64(math.MaxInt64))
		}, false},
		{"no session", func(o object) object { return o.with("session", nil) }, true},
		{"bad session", func(o object) object { return o.with("session", "a b") }, false},
		{"sub missing", func(o object) object { return o.with("sub", nil) }, false},
		{"sandbox missing", func(o object) object { return o.with("sandbox", nil) }, false},
		{"jti missing", func(o object) object { return o.with("jti", nil) }, false},
		{"dashboard missing", func(o object) object { return o.with("dashboard", nil) }, true},
		{"listed ptys", func(o object) object { return o.with("ptys", []string{"pty_1", "*"}) }, true},
		{"bad pty", func(o object) object { return o.with("ptys", []string{"pty_1", "p*"}) }, false},
		{"ptys a string", func(o object) object { return o.with("ptys", "*") }, false},
		{"caps a string", func(o object) object { return o.with("caps", "view") }, false},
		{"aud missing", func(o object) object { return o.with("aud", nil) }, false},
		{"iss missing", func(o object) object { return o.with("iss", nil) }, false},
		{"case variant", func(o object) object { return o.with("Caps", []string{"admin"}) }, false},
		{"case variant alone", func(o object) object { return o.with("session", nil).with("Session", "ses_1") }, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			token := k.typed(jws.TypeGrant, mustJSON(tt.change(grantPayload())))
			_, err := k.static(t, now).Grant(t.Context(), token)
			if tt.ok {
				noError(t, err)
				return
			}
			wantKind(t, err, protocol.KindUnauthenticated)
		})
	}
}

func TestGrantUnknownCapabilities(t *testing.T) {
	k := newRawKey(t, "k1")
	token := k.typed(jws.TypeGrant, mustJSON(grantPayload().with("caps", []string{"fly", "view", "VIEW", ""})))
	g, err := k.static(t, now).Grant(t.Context(), token)
	noError(t, err)
	if !slices.Equal(g.Caps, []protocol.Capability{protocol.CapView}) {
		t.Errorf("caps %q", g.Caps)
	}
}

// TestTypesApart presents each object where another is expected.
func TestTypesApart(t *testing.T) {
	s, err := jws.GenerateSigner()
	noError(t, err)
	device, err := jws.GenerateDeviceKey()
	noError(t, err)
	command, err := s.SignCommand(sampleCommand())
	noError(t, err)
	grant, err := s.SignGrant(sampleGrant())
	noError(t, err)
	certificate, err := s.SignCertificate(sampleCertificate(device))
	noError(t, err)
	keys := jws.NewKeys(keySet(t, s), jws.KeysOptions{Now: clock(now)})
	accepted := map[string]string{}
	for name, token := range map[string]string{"command": command, "grant": grant, "certificate": certificate} {
		if _, err := keys.Command(t.Context(), token, jws.AudienceAgent); err == nil {
			accepted[name] += " command"
		}
		if _, err := keys.Grant(t.Context(), token); err == nil {
			accepted[name] += " grant"
		}
		if _, err := keys.Certificate(t.Context(), token); err == nil {
			accepted[name] += " certificate"
		}
		if accepted[name] != " "+name {
			t.Errorf("a %s is taken for:%s", name, accepted[name])
		}
	}
}
