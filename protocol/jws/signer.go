package jws

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"encoding/json"
	"fmt"

	"github.com/go-jose/go-jose/v4"

	"github.com/fairlead/fairlead/protocol"
)

// A Signer is a signing key of the control plane. It is immutable and safe for
// concurrent use. It signs nothing that verifiers would refuse.
type Signer struct {
	key *ecdsa.PrivateKey
	kid string
}

// GenerateSigner makes a new P-256 key, whose kid is its RFC 7638 thumbprint.
// The kid doesn't begin with a dash, as people type it on command lines.
func GenerateSigner() (*Signer, error) {
	for {
		key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
		if err != nil {
			return nil, fmt.Errorf("signing key: %w", err)
		}
		signer, err := newSigner(key, "")
		if err != nil || signer.kid[0] != '-' {
			return signer, err
		}
	}
}

// ParseSigner reads a private JWK as [Signer.MarshalPrivate] writes it. A key
// without a kid gets its thumbprint. Errors never quote the key.
func ParseSigner(jwk []byte) (*Signer, error) {
	kid, key, err := parsePrivateJWK(jwk)
	if err != nil {
		return nil, fmt.Errorf("signing key: %w", err)
	}
	return newSigner(key, kid)
}

func newSigner(key *ecdsa.PrivateKey, kid string) (*Signer, error) {
	if kid == "" {
		var err error
		if kid, err = thumbprint(&key.PublicKey); err != nil {
			return nil, fmt.Errorf("signing key: %w", err)
		}
	}
	if !validKid(kid) {
		return nil, fmt.Errorf("signing key: kid longer than %d bytes", protocol.MaxIDBytes)
	}
	return &Signer{key, kid}, nil
}

// Kid returns the id of the public key.
func (s *Signer) Kid() string { return s.kid }

// String names the key and hides its private part from logs.
func (s *Signer) String() string { return "signing key " + s.kid }

// GoString is String: %#v would print the private key.
func (s *Signer) GoString() string { return s.String() }

// MarshalPrivate returns the private JWK, for a file of mode 0600.
func (s *Signer) MarshalPrivate() ([]byte, error) { return marshalPrivateJWK(s.key, s.kid) }

// SignCommand signs c with iss filled in. It fails with kind invalid if an
// executor would refuse it at any time, and with too_large beyond
// [protocol.MaxTokenBytes].
func (s *Signer) SignCommand(c Command) (string, error) {
	c.Issuer = Issuer
	if c.Audience == "" {
		return "", protocol.Errorf(protocol.KindInvalid, "command: aud is missing")
	}
	payload, err := json.Marshal(c)
	if err != nil {
		return "", protocol.Errorf(protocol.KindInvalid, "command: op is not JSON")
	}
	// op may come from a user, so check the JSON as a verifier would.
	members, err := parseObject(payload)
	if err != nil {
		return "", protocol.Errorf(protocol.KindInvalid, "command: %s", err)
	}
	if err := checkCommandNames(members); err != nil {
		return "", protocol.Errorf(protocol.KindInvalid, "command: %s", err)
	}
	if err := c.check(); err != nil {
		return "", err
	}
	return s.sign(TypeCommand, payload)
}

// SignGrant signs g with iss and aud filled in. It fails with kind invalid if
// the grant could never be valid.
func (s *Signer) SignGrant(g Grant) (string, error) {
	g.Issuer, g.Audience = Issuer, AudienceFairlead
	if err := g.check(); err != nil {
		return "", protocol.Errorf(protocol.KindInvalid, "grant: %s", err)
	}
	return s.signObject(TypeGrant, g)
}

// SignCertificate signs c with iss and aud filled in. It fails with kind
// invalid if the certificate could never be valid.
func (s *Signer) SignCertificate(c Certificate) (string, error) {
	c.Issuer, c.Audience = Issuer, AudienceFairlead
	if err := c.check(); err != nil {
		return "", protocol.Errorf(protocol.KindInvalid, "certificate: %s", err)
	}
	return s.signObject(TypeCertificate, c)
}

// signObject signs the JSON of object.
func (s *Signer) signObject(typ string, object any) (string, error) {
	payload, err := json.Marshal(object)
	if err != nil {
		return "", protocol.Errorf(protocol.KindInvalid, "%s: a raw member is not JSON", typ)
	}
	if _, err := parseObject(payload); err != nil {
		return "", protocol.Errorf(protocol.KindInvalid, "%s: %s", typ, err)
	}
	return s.sign(typ, payload)
}

func (s *Signer) sign(typ string, payload []byte) (string, error) {
	key := jose.SigningKey{Algorithm: algorithm, Key: jose.JSONWebKey{Key: s.key, KeyID: s.kid}}
	options := (&jose.SignerOptions{}).WithType(jose.ContentType(typ))
	signer, err := jose.NewSigner(key, options)
	if err != nil {
		return "", fmt.Errorf("sign: %w", err)
	}
	signed, err := signer.Sign(payload)
	if err != nil {
		return "", fmt.Errorf("sign: %w", err)
	}
	token, err := signed.CompactSerialize()
	if err != nil {
		return "", fmt.Errorf("sign: %w", err)
	}
	if len(token) > protocol.MaxTokenBytes {
		return "", protocol.Errorf(protocol.KindTooLarge, "%s: larger than %d bytes", typ, protocol.MaxTokenBytes)
	}
	return token, nil
}
