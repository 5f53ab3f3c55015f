package jws

import (
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/fairlead/fairlead/protocol"
)

// Revocations list what is revoked. Number rises with every change. Lists are
// only ever added up: an entry counts until its exp wherever it was seen, even
// if later lists omit it. So a list that is too large for one object is split
// into several with the same number, and expired entries may be left out.
type Revocations struct {
	Issuer       string               `json:"iss"`
	Audience     string               `json:"aud"`
	Number       uint64               `json:"number"`
	IssuedAt     int64                `json:"iat"` // Unix seconds
	Grants       []RevokedGrant       `json:"grants"`
	Subjects     []RevokedSubject     `json:"subjects"`
	Certificates []RevokedCertificate `json:"certificates"`
}

// A RevokedGrant is one revoked grant.
type RevokedGrant struct {
	ID        protocol.GrantID `json:"jti"`
	ExpiresAt int64            `json:"exp"` // Unix seconds: of the grant
}

// A RevokedSubject is a user whose grants issued before a moment are revoked.
type RevokedSubject struct {
	Subject   protocol.UserID `json:"sub"`
	Dashboard string          `json:"dashboard,omitempty"` // empty: in every dashboard
	Before    int64           `json:"before"`              // Unix seconds: grants with a smaller iat
	ExpiresAt int64           `json:"exp"`                 // Unix seconds: when the last of them expires
}

// A RevokedCertificate is a sandbox's revoked certificate.
type RevokedCertificate struct {
	ID        string `json:"jti"`
	ExpiresAt int64  `json:"exp"` // Unix seconds: of the certificate
}

var revocationNames = vocabularyOf(protocol.MemberNames(Revocations{}))

// Revokes reports whether g is revoked.
func (r *Revocations) Revokes(g *Grant) bool {
	return slices.ContainsFunc(r.Grants, func(v RevokedGrant) bool { return v.ID == g.ID }) ||
		slices.ContainsFunc(r.Subjects, func(v RevokedSubject) bool { return v.covers(g) })
}

func (v RevokedSubject) covers(g *Grant) bool {
	return v.Subject == g.Subject && g.IssuedAt < v.Before && (v.Dashboard == "" || v.Dashboard == g.Dashboard)
}

// RevokesCertificate reports whether c is revoked.
func (r *Revocations) RevokesCertificate(c *Certificate) bool {
	return slices.ContainsFunc(r.Certificates, func(v RevokedCertificate) bool { return v.ID == c.ID })
}

// check applies the rules that need nothing but the list.
func (r *Revocations) check() error {
	for _, v := range r.Grants {
		if !protocol.ValidID(v.ID) {
			return errors.New("grants has a jti that is not an id")
		}
	}
	for _, v := range r.Subjects {
		if !protocol.ValidID(v.Subject) || !validOrEmpty(v.Dashboard) {
			return errors.New("subjects has a member that is not an id")
		}
	}
	for _, v := range r.Certificates {
		if !protocol.ValidID(v.ID) {
			return errors.New("certificates has a jti that is not an id")
		}
	}
	if r.IssuedAt < 0 || r.IssuedAt > maxUnixSeconds {
		return errors.New("iat is out of range")
	}
	return nil
}

// openRevocations applies steps 8 to 14 of README.md to a token that passed the
// profile. A list doesn't expire, its entries do.
func openRevocations(t Token, now time.Time) (*Revocations, error) {
	var r Revocations
	if err := openObject(t, TypeRevocations, revocationNames, &r); err != nil {
		return nil, refused("revocations: %s", err)
	}
	if err := r.check(); err != nil {
		return nil, refused("revocations: %s", err)
	}
	if time.Unix(r.IssuedAt, 0).After(now.Add(Skew)) {
		return nil, refused("revocations: issued in the future")
	}
	return &r, nil
}

// SignRevocations signs r with iss and aud filled in; lists are never null.
func (s *Signer) SignRevocations(r Revocations) (string, error) {
	r.Issuer, r.Audience = Issuer, AudienceFairlead
	if err := r.check(); err != nil {
		return "", protocol.Errorf(protocol.KindInvalid, "revocations: %s", err)
	}
	r.Grants, r.Subjects, r.Certificates = present(r.Grants), present(r.Subjects), present(r.Certificates)
	return s.signObject(TypeRevocations, r)
}

func present[T any](list []T) []T {
	if list == nil {
		return []T{}
	}
	return list
}

// RevocationLists verifies the objects of a revocation list, one per line of
// text. It returns the valid ones besides the errors of the others, as a valid
// one counts whatever the rest is.
func (k *Keys) RevocationLists(ctx context.Context, text string) (lists []*Revocations, err error) {
	for token := range strings.FieldsSeq(text) {
		list, e := k.Revocations(ctx, token)
		if e != nil {
			err = errors.Join(err, e)
			continue
		}
		lists = append(lists, list)
	}
	if len(lists) == 0 && err == nil {
		err = refused("revocations: there is no list")
	}
	return lists, err
}

// Revocations verifies one object of a revocation list. Failures are of kind
// unauthenticated or unavailable.
func (k *Keys) Revocations(ctx context.Context, token string) (*Revocations, error) {
	t, err := k.verify(ctx, token)
	if err != nil {
		return nil, err
	}
	return openRevocations(t, k.opts.Now())
}
