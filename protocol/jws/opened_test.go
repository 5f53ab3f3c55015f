package jws_test

import (
	"context"
	"testing"
	"time"

	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/protocol/jws"
)

// A grant whose signature was looked at once still ends: by its time, by a
// revocation, and with the key that signed it. What one caller does to it is
// nobody else's.
func TestKnownGrantEnds(t *testing.T) {
	signer, next := newSigner(t), newSigner(t)
	at := now
	revoked := jws.NewRevocationSet()
	published := []*jws.Signer{signer}
	keys := jws.NewKeys(keySet(t, signer), jws.KeysOptions{
		Now: func() time.Time { return at }, Revoked: revoked,
		Fetch: func(context.Context) ([]byte, error) { return jws.MarshalKeySet(published...) },
	})
	token, err := signer.SignGrant(sampleGrant())
	noError(t, err)
	for range 3 {
		grant, err := keys.Grant(t.Context(), token)
		noError(t, err)
		if !grant.Allows("ses_1", "pty_1", protocol.CapView) || grant.Kid == "" {
			t.Fatalf("%+v", grant)
		}
		grant.Caps[0], grant.PTYs[0] = protocol.CapAdmin, "pty_2"
	}
	at = now.Add(protocol.MaxGrantTTL + 2*jws.Skew)
	_, err = keys.Grant(t.Context(), token)
	wantKind(t, err, protocol.KindExpired)
	at = now
	published = []*jws.Signer{next}
	noError(t, keys.Refresh(t.Context()))
	_, err = keys.Grant(t.Context(), token)
	wantKind(t, err, protocol.KindUnauthenticated)

	published = []*jws.Signer{signer}
	noError(t, keys.Refresh(t.Context()))
	_, err = keys.Grant(t.Context(), token)
	noError(t, err)
	revoked.Add("gr_1")
	_, err = keys.Grant(t.Context(), token)
	wantKind(t, err, protocol.KindUnauthenticated)
}
