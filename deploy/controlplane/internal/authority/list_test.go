package authority

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/fairlead/fairlead/deploy/controlplane/internal/keyring"
	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/protocol/jws"
)

// TestFound02LongList: a list of any length is signed whole, in objects that
// readers take one by one.
func TestFound02LongList(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "keys")
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	ring, err := keyring.Open(dir, keyring.Options{})
	if err != nil {
		t.Fatal(err)
	}
	set, err := jws.ParseKeySet(ring.JWKS())
	if err != nil {
		t.Fatal(err)
	}
	keys := jws.NewKeys(set, jws.KeysOptions{})
	const far = 99_999_999_999
	list := jws.Revocations{Number: 1 << 60, IssuedAt: time.Now().Unix()}
	id := strings.Repeat("a", 127) // the longest kind
	for i := range 1000 {
		list.Subjects = append(list.Subjects, jws.RevokedSubject{
			Subject: protocol.NewUserID(), Dashboard: "d" + id, Before: far, ExpiresAt: far,
		})
		list.Grants = append(list.Grants, jws.RevokedGrant{ID: protocol.NewGrantID(), ExpiresAt: far})
		list.Certificates = append(list.Certificates, jws.RevokedCertificate{ID: fmt.Sprint("c", i), ExpiresAt: far})
	}
	tokens, err := signParts(ring.Signer(), list)
	if err != nil {
		t.Fatal(err)
	}
	read, err := keys.RevocationLists(t.Context(), strings.Join(tokens, "\n"))
	if err != nil {
		t.Fatal(err)
	}
	var all jws.Revocations
	for _, part := range read {
		if part.Number != list.Number {
			t.Errorf("a part has number %d", part.Number)
		}
		all.Subjects, all.Grants, all.Certificates = append(all.Subjects, part.Subjects...), append(all.Grants, part.Grants...), append(all.Certificates, part.Certificates...)
	}
	if !slices.Equal(all.Subjects, list.Subjects) || !slices.Equal(all.Grants, list.Grants) || !slices.Equal(all.Certificates, list.Certificates) {
		t.Errorf("of %d, %d and %d entries %d, %d and %d are left", len(list.Subjects), len(list.Grants), len(list.Certificates), len(all.Subjects), len(all.Grants), len(all.Certificates))
	}
	t.Logf("%d objects", len(tokens))
	if tokens, err := signParts(ring.Signer(), jws.Revocations{}); err != nil || len(tokens) != 1 {
		t.Errorf("an empty list: %d objects, %v", len(tokens), err)
	}
}
