// Package jws signs and verifies the control plane's objects: commands, grants,
// certificates and revocations, in a closed profile of JSON Web Signature.
//
// The profile is narrower than RFC 7515: compact serialization, ES256, exactly
// the header members alg, kid and typ, one spelling of every token. README.md
// beside this file lists the checks in their order; the tests follow it. No
// other package of this module imports go-jose.
// made; the tests follow it. No other package of this module imports go-jose.
package jws

import (
	"errors"

	"github.com/fairlead/fairlead/protocol"
)

// Skew is how far the signer's clock and ours may differ.
const Skew = protocol.ClockSkew

// Issuer is the "iss" of everything that the control plane signs (seed 003).
const Issuer = "control-server"

// Audiences of the objects. Several programs read grants and certificates,
// which carry AudienceFairlead.
const (
	AudienceAgent     = "sandbox-agent"     // commands to a sandbox
	AudienceExtension = "browser-extension" // commands to a browser (seed 003)
	AudienceFairlead  = "fairlead"          // grants, certificates
)

// Types: the header member "typ", which tells the objects apart.
const (
	TypeCommand     = "command+jws"
	TypeGrant       = "grant+jws"
	TypeCertificate = "certificate+jws"
	TypeRevocations = "revocations+jws"
)

// ErrUnknownKey is in the chain of a verification error if the set has no key
// with the token's kid: the set may be out of date.
var ErrUnknownKey = errors.New("signed by an unknown key")

// errSignature is in the chain if the signature is wrong: the key may have been
// replaced under the same kid.
var errSignature = errors.New("wrong signature")

// refused returns an AuthError. It must not quote the token, only say what is
// wrong with it.
func refused(format string, args ...any) *protocol.Error {
	return protocol.Errorf(protocol.KindUnauthenticated, format, args...)
}
