package op

import (
	"encoding/base64"
	"slices"
	"strings"
	"unicode"

	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/protocol/seal"
)

// Kinds of operations on sealed sync: a session's browser is signed in where
// somebody's own is.
const (
	KindSyncPair   = "sync.pair"
	KindSyncAccept = "sync.accept"
	KindSyncUnpair = "sync.unpair"
	KindSyncPolicy = "sync.policy"
)

var syncs = []Spec{
	{Kind: KindSyncPair, Needs: protocol.CapSync, Target: TargetSession, Lane: LaneFree, Body: (*SyncPairSealed)(nil), Asked: (*SyncPair)(nil)},
	{Kind: KindSyncAccept, Needs: protocol.CapSync, Target: TargetSession, Lane: LaneFree, Body: (*SyncAccept)(nil)},
	{Kind: KindSyncUnpair, Needs: protocol.CapSync, Target: TargetSession, Lane: LaneFree, Body: (*SyncUnpair)(nil)},
	{Kind: KindSyncPolicy, Needs: protocol.CapSync, Target: TargetSession, Lane: LaneFree, Body: (*SyncPolicy)(nil)},
}

// Steps of sync.pair. A pairing takes begin and finish; secret is instead of
// both.
const (
	SyncBegin  = "begin"  // the sandbox makes a key
	SyncFinish = "finish" // it learns the other one, and the code
	SyncSecret = "secret" // it is told a secret that both sides have
)

const (
	maxSyncName      = 128    // bytes
	maxSharedSecret  = 1024   // bytes
	maxSyncPolicy    = 16_000 // bytes of patterns and descriptions: it travels in one command
	maxSyncDomains   = 1_000
	maxSyncDescribed = 200 // bytes
	fingerprintHex   = 8
)

// SyncPair is the body of sync.pair in a person's request. The signed form is
// [SyncPairSealed], whose secrets its carriers can't read.
type SyncPair struct {
	Step            string             `json:"step"`
	Name            string             `json:"name,omitempty"`            // what people call the other side; of begin and secret
	Pairing         protocol.PairingID `json:"pairing,omitempty"`         // of finish
	SourcePublicKey []byte             `json:"sourcePublicKey,omitempty"` // X25519, 32 B; of finish
	SourceHostname  string             `json:"sourceHostname,omitempty"`  // of finish
	Fingerprint     string             `json:"fingerprint,omitempty"`     // as the other side has it; of finish
	Code            string             `json:"code,omitempty"`            // of finish
	SharedSecret    string             `json:"sharedSecret,omitempty"`    // of secret
}

// SyncPairSealed is the body of sync.pair in its signed form.
type SyncPairSealed struct {
	Step            string             `json:"step"`
	Name            string             `json:"name,omitempty"`
	Pairing         protocol.PairingID `json:"pairing,omitempty"`
	SourcePublicKey []byte             `json:"sourcePublicKey,omitempty"`
	SourceHostname  string             `json:"sourceHostname,omitempty"`
	Fingerprint     string             `json:"fingerprint,omitempty"`
	Sealed          []byte             `json:"sealed,omitempty"` // SyncSecrets, see package envseal; not of begin
}

// SyncSecrets are the sealed values of a sync.pair.
type SyncSecrets struct {
	Code         string `json:"code,omitempty"`
	SharedSecret string `json:"sharedSecret,omitempty"`
}

// Check reports what is wrong with a sync.pair. Its errors quote no secret.
func (b *SyncPair) Check() error {
	signed := b.signed()
	if err := signed.members(); err != nil {
		return err
	}
	return SyncSecrets{b.Code, b.SharedSecret}.Check(b.Step)
}

// Check reports whether s are the secrets that a step has.
func (s SyncSecrets) Check(step string) error {
	if (s.Code != "") != (step == SyncFinish) {
		return protocol.Errorf(protocol.KindInvalid, "code: it belongs to the step %s", SyncFinish)
	}
	if (s.SharedSecret != "") != (step == SyncSecret) {
		return protocol.Errorf(protocol.KindInvalid, "sharedSecret: it belongs to the step %s", SyncSecret)
	}
	if s.Code != "" {
		if _, err := seal.ParseCode(s.Code); err != nil {
			return err
		}
	}
	if n := len(s.SharedSecret); n > 0 && (n < seal.MinSecret || n > maxSharedSecret) {
		return protocol.Errorf(protocol.KindInvalid, "sharedSecret: it has %d to %d bytes", seal.MinSecret, maxSharedSecret)
	}
	return nil
}

func (b *SyncPair) signed() *SyncPairSealed {
	return &SyncPairSealed{
		Step: b.Step, Name: b.Name, Pairing: b.Pairing, SourcePublicKey: b.SourcePublicKey, SourceHostname: b.SourceHostname,
		Fingerprint: b.Fingerprint,
	}
}

// Conceal implements [Concealer].
func (b *SyncPair) Conceal() (values any, signed func(box []byte) Body) {
	if b.Step != SyncBegin {
		values = SyncSecrets{b.Code, b.SharedSecret}
	}
	return values, func(box []byte) Body {
		signed := b.signed()
		signed.Sealed = box
		return signed
	}
}

// Check reports what is wrong, but for what is in the box: only the sandbox can
// open that.
func (b *SyncPairSealed) Check() error {
	if err := b.members(); err != nil {
		return err
	}
	if (len(b.Sealed) > 0) == (b.Step == SyncBegin) {
		return protocol.Errorf(protocol.KindInvalid, "sealed: each step but %s has it", SyncBegin)
	}
	return nil
}

// members checks what of a step isn't secret.
func (b *SyncPairSealed) members() error {
	finishes := b.Step == SyncFinish
	if !finishes && b.Step != SyncBegin && b.Step != SyncSecret {
		return protocol.Errorf(protocol.KindInvalid, "step: want %s, %s or %s", SyncBegin, SyncFinish, SyncSecret)
	}
	if finishes != (b.Pairing != "") || finishes != (len(b.SourcePublicKey) > 0) || finishes != (b.SourceHostname != "") || finishes != (b.Fingerprint != "") {
		return protocol.Errorf(protocol.KindInvalid, "pairing, sourcePublicKey, sourceHostname and fingerprint: the step %s has all of them, no other has any", SyncFinish)
	}
	switch {
	case len(b.Name) > maxSyncName || !printable(b.Name):
		return protocol.Errorf(protocol.KindInvalid, "name: it has at most %d bytes, without control characters", maxSyncName)
	case finishes && b.Name != "":
		return protocol.Errorf(protocol.KindInvalid, "name: it was said at the step %s", SyncBegin)
	case !finishes:
		return nil
	case !protocol.ValidID(b.Pairing):
		return protocol.Errorf(protocol.KindInvalid, "pairing: not an id")
	case len(b.SourcePublicKey) != seal.PublicBytes:
		return protocol.Errorf(protocol.KindInvalid, "sourcePublicKey: an X25519 key has %d bytes, as %d characters of base64", seal.PublicBytes, base64.StdEncoding.EncodedLen(seal.PublicBytes))
	case len(b.SourceHostname) > seal.MaxHostname || !printable(b.SourceHostname):
		return protocol.Errorf(protocol.KindInvalid, "sourceHostname: it has at most %d bytes, without control characters", seal.MaxHostname)
	case len(b.Fingerprint) != fingerprintHex || strings.Trim(b.Fingerprint, "0123456789abcdef") != "":
		return protocol.Errorf(protocol.KindInvalid, "fingerprint: want %d digits of lower-case hexadecimal", fingerprintHex)
	}
	return nil
}

func printable(s string) bool { return !strings.ContainsFunc(s, unicode.IsControl) }

// SyncAccept is the body of sync.accept.
type SyncAccept struct {
	Pairing  protocol.PairingID `json:"pairing"`
	Versions []int              `json:"versions"` // of envelopes: [1] or [1,2]
}

// Check reports what is wrong with a sync.accept.
func (b *SyncAccept) Check() error {
	if !slices.Equal(b.Versions, []int{seal.Version}) && !slices.Equal(b.Versions, []int{seal.Version, seal.LaterVersion}) {
		return protocol.Errorf(protocol.KindInvalid, "versions: want [%d] or [%d,%d]", seal.Version, seal.Version, seal.LaterVersion)
	}
	return checkPairing(b.Pairing)
}

// SyncUnpair is the body of sync.unpair.
type SyncUnpair struct {
	Pairing protocol.PairingID `json:"pairing"`
}

// Check reports what is wrong with a sync.unpair.
func (b *SyncUnpair) Check() error { return checkPairing(b.Pairing) }

func checkPairing(id protocol.PairingID) error {
	if !protocol.ValidID(id) {
		return protocol.Errorf(protocol.KindInvalid, "pairing: not an id")
	}
	return nil
}

// SyncPolicy is the body of sync.policy: blocklist.yaml of seed 004.
type SyncPolicy struct {
	Policy  string       `json:"policy"` // blocklist or allowlist
	Domains []SyncDomain `json:"domains"`
}

// A SyncDomain is one pattern of a policy.
type SyncDomain struct {
	Pattern     string `json:"pattern"` // of host_key, as in SQLite's LIKE
	Description string `json:"description,omitempty"`
}

// Check reports what is wrong with a sync.policy.
func (b *SyncPolicy) Check() error {
	if b.Policy != "blocklist" && b.Policy != "allowlist" {
		return protocol.Errorf(protocol.KindInvalid, "policy: want blocklist or allowlist")
	}
	if len(b.Domains) > maxSyncDomains {
		return protocol.Errorf(protocol.KindTooLarge, "domains: %d, and %d are allowed", len(b.Domains), maxSyncDomains)
	}
	patterns, bytes := make([]string, len(b.Domains)), 0
	for i, d := range b.Domains {
		patterns[i] = d.Pattern
		bytes += len(d.Pattern) + len(d.Description)
		if len(d.Description) > maxSyncDescribed || !printable(d.Pattern) || !printable(d.Description) {
			return protocol.Errorf(protocol.KindInvalid, "domains: a description has at most %d bytes; neither it nor a pattern has control characters", maxSyncDescribed)
		}
	}
	if bytes > maxSyncPolicy {
		return protocol.Errorf(protocol.KindTooLarge, "domains: %d bytes, and %d are allowed", bytes, maxSyncPolicy)
	}
	_, err := seal.NewPolicy(b.Policy == "allowlist", patterns)
	return err
}

// SyncPath is where the envelopes of a pairing are posted, below a relay's public
// origin.
func SyncPath(sandbox protocol.SandboxID, address string) string {
	return "/sync/" + string(sandbox) + "/" + address
}

// ValidSyncAddress reports whether a pairing's address can be this one: 26
// characters of lower-case base32.
func ValidSyncAddress(address string) bool {
	return len(address) == syncAddressLength && strings.Trim(address, "abcdefghijklmnopqrstuvwxyz234567") == ""
}

const syncAddressLength = 26
