package jws_test

import (
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/protocol/jws"
)

func revocations(number uint64, grants ...protocol.GrantID) jws.Revocations {
	r := jws.Revocations{Number: number, IssuedAt: now.Unix()}
	for _, id := range grants {
		r.Grants = append(r.Grants, jws.RevokedGrant{ID: id, ExpiresAt: now.Unix() + 300})
	}
	return r
}

// keysOf returns Keys that trust signer alone, at the tests' time.
func keysOf(t *testing.T, signer *jws.Signer, revoked *jws.RevocationSet) *jws.Keys {
	t.Helper()
	jwks, err := jws.MarshalKeySet(signer)
	noError(t, err)
	set, err := jws.ParseKeySet(jwks)
	noError(t, err)
	return jws.NewKeys(set, jws.KeysOptions{Now: clock(now), Revoked: revoked})
}

func newSigner(t *testing.T) *jws.Signer {
	t.Helper()
	signer, err := jws.GenerateSigner()
	noError(t, err)
	return signer
}

func TestRevocationsRoundTrip(t *testing.T) {
	signer := newSigner(t)
	want := revocations(7, "gr_a", "gr_b")
	want.Subjects = []jws.RevokedSubject{{Subject: "usr_a", Dashboard: "d", Before: now.Unix(), ExpiresAt: now.Unix() + 600}}
	want.Certificates = []jws.RevokedCertificate{{ID: "crt_a", ExpiresAt: now.Unix() + 900}}
	token, err := signer.SignRevocations(want)
	noError(t, err)
	keys := keysOf(t, signer, nil)
	got, err := keys.Revocations(t.Context(), token)
	noError(t, err)
	if got.Number != 7 || !slices.Equal(got.Grants, want.Grants) || !slices.Equal(got.Subjects, want.Subjects) ||
		!slices.Equal(got.Certificates, want.Certificates) {
		t.Errorf("%+v", got)
	}
	// One object never works in another's place.
	_, err = keys.Grant(t.Context(), token)
	wantKind(t, err, protocol.KindUnauthenticated)
	_, err = keysOf(t, newSigner(t), nil).Revocations(t.Context(), token)
	wantKind(t, err, protocol.KindUnauthenticated)

	early := want
	early.IssuedAt = now.Add(jws.Skew + time.Second).Unix()
	token, err = signer.SignRevocations(early)
	noError(t, err)
	_, err = keys.Revocations(t.Context(), token)
	wantKind(t, err, protocol.KindUnauthenticated)
	_, err = signer.SignRevocations(revocations(1, "no id"))
	wantKind(t, err, protocol.KindInvalid)
}

// TestRevokedIsRefused: what the set names is refused where it is verified.
func TestRevokedIsRefused(t *testing.T) {
	signer, set := newSigner(t), jws.NewRevocationSet()
	keys := keysOf(t, signer, set)
	sign := func(id protocol.GrantID, user protocol.UserID, dashboard string, issued time.Time) string {
		token, err := signer.SignGrant(jws.Grant{
			Subject: user, Dashboard: dashboard, Sandbox: "sb_1", PTYs: []string{jws.AllPTYs},
			Caps: []protocol.Capability{protocol.CapView}, IssuedAt: issued.Unix(), ExpiresAt: issued.Unix() + 300, ID: id,
		})
		noError(t, err)
		return token
	}
	tokens := map[string]string{
		"named":             sign("gr_a", "usr_a", "d1", now),
		"heard of":          sign("gr_b", "usr_a", "d1", now),
		"of the subject":    sign("gr_c", "usr_c", "d1", now.Add(-time.Second)),
		"later":             sign("gr_d", "usr_c", "d1", now),
		"another dashboard": sign("gr_e", "usr_c", "d2", now.Add(-time.Second)),
		"another":           sign("gr_f", "usr_f", "d1", now),
	}
	valid := func() (names []string) {
		for name, token := range tokens {
			_, err := keys.Grant(t.Context(), token)
			if err == nil {
				names = append(names, name)
				continue
			}
			wantKind(t, err, protocol.KindUnauthenticated)
		}
		slices.Sort(names)
		return names
	}
	if got := valid(); len(got) != len(tokens) {
		t.Fatalf("before: %q", got)
	}
	list := revocations(2, "gr_a")
	list.Subjects = []jws.RevokedSubject{{Subject: "usr_c", Dashboard: "d1", Before: now.Unix(), ExpiresAt: now.Unix() + 300}}
	list.Certificates = []jws.RevokedCertificate{{ID: "crt_1", ExpiresAt: now.Unix() + 900}}
	if !set.Apply(&list) {
		t.Fatal("not taken")
	}
	set.Add("gr_b")
	if got := valid(); !slices.Equal(got, []string{"another", "another dashboard", "later"}) {
		t.Errorf("valid: %q", got)
	}

	device, err := jws.GenerateDeviceKey()
	noError(t, err)
	for id, kind := range map[string]protocol.Kind{"crt_1": protocol.KindUnauthenticated, "crt_2": protocol.KindInternal} {
		token, err := signer.SignCertificate(jws.Certificate{
			Subject: "sb_1", JWK: device.PublicJWK(), IssuedAt: now.Unix(), ExpiresAt: now.Unix() + 900, ID: id,
		})
		noError(t, err)
		if _, err = keys.Certificate(t.Context(), token); kind == protocol.KindInternal {
			noError(t, err)
		} else {
			wantKind(t, err, kind)
		}
	}
}

// TestFound02ListsAreMerged: nothing that was void is valid again, whatever
// later and earlier lists leave out.
func TestFound02ListsAreMerged(t *testing.T) {
	set, changes := jws.NewRevocationSet(), 0
	set.OnChange(func() { changes++ })
	if _, known := set.Number(); known {
		t.Error("an empty set has a number")
	}
	subject := func(number uint64, before int64) jws.Revocations {
		r := revocations(number)
		r.Subjects = []jws.RevokedSubject{{Subject: "usr_a", Dashboard: "d1", Before: before, ExpiresAt: now.Unix() + 300}}
		r.Certificates = []jws.RevokedCertificate{{ID: "crt_a", ExpiresAt: now.Unix() + 900}}
		return r
	}
	for _, tt := range []struct {
		list jws.Revocations
		news bool
	}{
		{revocations(5, "gr_a"), true}, {revocations(5, "gr_a"), false}, {revocations(6), false},
		{revocations(4, "gr_b"), true}, // late, and true all the same
		{subject(6, 100), true}, {subject(7, 90), false}, {subject(8, 101), true}, {revocations(9), false},
	} {
		if got := set.Apply(&tt.list); got != tt.news {
			t.Errorf("%+v: news is %t", tt.list, got)
		}
		if !set.Grant(&jws.Grant{ID: "gr_a"}) {
			t.Errorf("after list %d it is valid again", tt.list.Number)
		}
	}
	if n, _ := set.Number(); n != 9 || changes != 4 {
		t.Errorf("number %d after %d changes", n, changes)
	}
	of := func(user protocol.UserID, dashboard string, issued int64) *jws.Grant {
		return &jws.Grant{ID: "gr_x", Subject: user, Dashboard: dashboard, IssuedAt: issued}
	}
	if !set.Grant(of("usr_a", "d1", 100)) || set.Grant(of("usr_a", "d1", 101)) || set.Grant(of("usr_a", "d2", 1)) || set.Grant(of("usr_b", "d1", 1)) {
		t.Error("the subject's entry covers something else")
	}
	if !set.Grant(&jws.Grant{ID: "gr_b"}) || !set.Certificate(&jws.Certificate{ID: "crt_a"}) {
		t.Error("forgotten")
	}
	for range 5000 { // whoever is told of many forgets none
		set.Add(protocol.NewGrantID())
	}
	if n := len(set.Known().Grants); n != 5002 {
		t.Errorf("%d grants are remembered", n)
	}
	next := jws.NewRevocationSet()
	next.Apply(set.Known())
	if n, _ := next.Number(); n != 9 || !next.Grant(of("usr_a", "d1", 100)) || !next.Certificate(&jws.Certificate{ID: "crt_a"}) || len(next.Known().Grants) != 5002 {
		t.Error("a copy knows something else")
	}
}

// TestFound02EntriesLiveUntilTheirExp: not shorter, also where the clock jumps,
// and not for ever.
func TestFound02EntriesLiveUntilTheirExp(t *testing.T) {
	at := now
	set := jws.NewRevocationSetBy(func() time.Time { return at })
	list := revocations(1, "gr_a") // for 300 s
	list.Subjects = []jws.RevokedSubject{{Subject: "usr_a", Before: now.Unix(), ExpiresAt: now.Unix() + 600}}
	list.Certificates = []jws.RevokedCertificate{{ID: "crt_a", ExpiresAt: now.Unix() + 86400}}
	set.Apply(&list)
	set.Add("gr_b")
	subject := &jws.Grant{ID: "gr_c", Subject: "usr_a", Dashboard: "d", IssuedAt: now.Unix() - 1}
	const hold = protocol.MaxGrantTTL + 2*jws.Skew
	for _, tt := range []struct {
		after                       time.Duration
		grant, other, subject, cert bool
	}{
		{299 * time.Second, true, true, true, true},
		{hold, true, true, true, true},
		{hold + 2*time.Minute, false, false, false, true},
		{86400*time.Second + 2*jws.Skew, false, false, false, true},
		{86400*time.Second + 2*jws.Skew + 2*time.Minute, false, false, false, false},
	} {
		at = now.Add(tt.after)
		set.Apply(&jws.Revocations{Number: 2})
		if a, b, c, d := set.Grant(&jws.Grant{ID: "gr_a"}), set.Grant(&jws.Grant{ID: "gr_b"}), set.Grant(subject), set.Certificate(&jws.Certificate{ID: "crt_a"}); a != tt.grant || b != tt.other || c != tt.subject || d != tt.cert {
			t.Errorf("after %v: %t %t %t %t, want %+v", tt.after, a, b, c, d, tt)
		}
	}
	if known := set.Known(); len(known.Grants)+len(known.Subjects)+len(known.Certificates) != 0 {
		t.Errorf("left: %+v", known)
	}
	synctest.Test(t, func(t *testing.T) { // wall and monotonic time, apart
		set, ahead := jws.NewRevocationSet(), jws.Revocations{Number: 1, Grants: []jws.RevokedGrant{{ID: "gr_a", ExpiresAt: time.Now().Unix() - 3600}}}
		set.Apply(&ahead) // for our clock it has expired an hour ago
		time.Sleep(protocol.MaxGrantTTL)
		set.Apply(&jws.Revocations{Number: 2})
		if !set.Grant(&jws.Grant{ID: "gr_a"}) {
			t.Error("a clock that is ahead brought a grant back")
		}
	})
}

// TestFound02SeveralObjects: a list may stand in several objects; one that is
// spoilt doesn't hold up the others.
func TestFound02SeveralObjects(t *testing.T) {
	signer := newSigner(t)
	keys := keysOf(t, signer, nil)
	token := func(s *jws.Signer, id protocol.GrantID) string {
		token, err := s.SignRevocations(revocations(3, id))
		noError(t, err)
		return token
	}
	lists, err := keys.RevocationLists(t.Context(), token(signer, "gr_a")+"\n"+token(signer, "gr_b")+"\n")
	noError(t, err)
	if len(lists) != 2 || lists[1].Grants[0].ID != "gr_b" {
		t.Errorf("%+v", lists)
	}
	lists, err = keys.RevocationLists(t.Context(), token(newSigner(t), "gr_a")+"\n"+token(signer, "gr_b"))
	wantKind(t, err, protocol.KindUnauthenticated)
	if len(lists) != 1 || lists[0].Grants[0].ID != "gr_b" {
		t.Errorf("%+v", lists)
	}
	_, err = keys.RevocationLists(t.Context(), "\n")
	wantKind(t, err, protocol.KindUnauthenticated)
}

// TestKeyThatIsGone: with a key goes all that it signed, also what was verified
// before and is held open since.
func TestKeyThatIsGone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		before, after := newRawKey(t, "k1"), newRawKey(t, "k2")
		src := &source{jwks: keySetOf(before.jwk(nil), after.jwk(nil))}
		set, changes := jws.NewRevocationSet(), 0
		set.OnChange(func() { changes++ })
		keys := jws.NewKeys(nil, jws.KeysOptions{Fetch: src.fetch, Revoked: set})
		noError(t, keys.Refresh(t.Context()))
		old, err := keys.Grant(t.Context(), before.grantBy())
		noError(t, err)
		other, err := keys.Grant(t.Context(), after.grantBy())
		noError(t, err)
		if set.Grant(old) || set.Grant(other) || changes != 0 {
			t.Fatalf("void at once; %d changes", changes)
		}
		src.publish(keySetOf(after.jwk(nil)), nil)
		noError(t, keys.Refresh(t.Context()))
		if !set.Grant(old) || set.Grant(other) || changes != 1 {
			t.Errorf("void: %t, %t; %d changes", set.Grant(old), set.Grant(other), changes)
		}
		if !set.Certificate(&jws.Certificate{ID: "crt_1", Kid: "k1"}) || set.Certificate(&jws.Certificate{ID: "crt_1", Kid: "k2"}) {
			t.Error("certificates don't follow")
		}
	})
}
