package jws

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"strings"
	"unicode/utf8"

	"github.com/go-jose/go-jose/v4"

	"github.com/fairlead/fairlead/protocol"
)

// algorithm is the only one: every browser since Chrome 120 supports it.
const algorithm = jose.ES256

// signatureBytes is the length of an ES256 signature: r and s, 32 bytes each.
const signatureBytes = 64

// base64url is unpadded and strict, so that a token has only one spelling. It
// skips line breaks, which split refuses first.
var base64url = base64.RawURLEncoding.Strict()

// A Token is a compact JWS that passed the profile. Its payload is authentic
// but otherwise unchecked.
type Token struct {
	Kid     string
	Type    string // header member "typ", empty when absent
	Payload []byte // valid UTF-8, perhaps empty, perhaps not JSON
}

// Verify applies the closed profile (README.md, steps 1 to 7) to a compact JWS.
// Every failure is of kind unauthenticated; if the set has no key with the kid,
// [ErrUnknownKey] is in the chain.
func (ks *KeySet) Verify(token string) (Token, error) {
	header, payload, signature, err := split(token)
	if err != nil {
		return Token{}, err
	}
	kid, typ, err := parseHeader(header)
	if err != nil {
		return Token{}, err
	}
	if !utf8.Valid(payload) {
		return Token{}, refused("token: payload is not valid UTF-8")
	}
	if len(signature) != signatureBytes {
		return Token{}, refused("token: signature must have %d bytes", signatureBytes)
	}
	key, ok := ks.keys[kid]
	if !ok {
		return Token{}, refused("token: %w", ErrUnknownKey)
	}
	signed, err := jose.ParseSignedCompact(token, []jose.SignatureAlgorithm{algorithm})
	if err != nil {
		return Token{}, refused("token: malformed")
	}
	if _, err := signed.Verify(key); err != nil {
		return Token{}, refused("token: %w", errSignature)
	}
	return Token{Kid: kid, Type: typ, Payload: payload}, nil
}

// split splits a compact JWS and decodes its parts.
func split(token string) (header, payload, signature []byte, err error) {
	if len(token) > protocol.MaxTokenBytes {
		return nil, nil, nil, refused("token: larger than %d bytes", protocol.MaxTokenBytes)
	}
	for i := range len(token) {
		if !alphabet(token[i]) && token[i] != '.' {
			return nil, nil, nil, refused("token: not a compact JWS")
		}
	}
	parts := strings.Split(token, ".")
	if len(parts) != 3 || parts[0] == "" || parts[2] == "" {
		return nil, nil, nil, refused("token: not a compact JWS")
	}
	var decoded [3][]byte
	for i, part := range parts {
		if decoded[i], err = base64url.DecodeString(part); err != nil {
			return nil, nil, nil, refused("token: not canonical base64url")
		}
	}
	return decoded[0], decoded[1], decoded[2], nil
}

// alphabet reports whether c is a digit of base64url.
func alphabet(c byte) bool {
	return 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9' || c == '-' || c == '_'
}

// parseHeader checks a protected header. It refuses unknown members, so crit,
// jku and b64 need no rules.
func parseHeader(header []byte) (kid, typ string, err error) {
	members, err := parseObject(header)
	if err != nil {
		return "", "", refused("token: header: %s", err)
	}
	if err := closedHeader(members); err != nil {
		return "", "", refused("token: header: %s", err)
	}
	kid, _ = stringMember(members, "kid")
	typ, _ = stringMember(members, "typ")
	return kid, typ, nil
}

func closedHeader(members map[string]json.RawMessage) error {
	for name := range members {
		switch name {
		case "alg", "kid", "typ":
		default:
			return errors.New("only alg, kid and typ are allowed")
		}
	}
	if alg, _ := stringMember(members, "alg"); alg != string(algorithm) {
		return errors.New("alg must be " + string(algorithm))
	}
	if kid, _ := stringMember(members, "kid"); !validKid(kid) {
		return errors.New("kid is missing or unusable")
	}
	if _, present := members["typ"]; present {
		if typ, _ := stringMember(members, "typ"); typ == "" {
			return errors.New("typ must be a string")
		}
	}
	return nil
}

// validKid bounds key ids, which are opaque.
func validKid(kid string) bool { return kid != "" && len(kid) <= protocol.MaxIDBytes }
