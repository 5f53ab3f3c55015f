// Package envseal seals values in commands to their one sandbox, so that a relay
// can carry them and a control plane keep them without reading them.
//
// A box is HPKE (RFC 9180) in base mode, DHKEM(P-256, HKDF-SHA256), HKDF-SHA256
// and AES-256-GCM, to the sandbox's device key. Its info is its [Purpose] and the
// sandbox's id, each preceded by its length in 4 B. The device key also signs, but
// never anything with these prefixes.
package envseal

import (
	"crypto/ecdh"
	"crypto/hpke"
	"encoding/binary"
	"encoding/json"
	"fmt"

	"github.com/fairlead/fairlead/protocol"
)

// A Purpose keeps a box from being taken for one of another kind.
type Purpose string

// The purposes.
const (
	Env  Purpose = "fairlead/1 env"  // [protocol.EnvValues] of env.apply
	Sync Purpose = "fairlead/1 sync" // op.SyncSecrets of sync.pair
)

// Seal returns the box of values, as JSON, for sandbox, whose device key is
// public.
func Seal(public *ecdh.PublicKey, purpose Purpose, sandbox protocol.SandboxID, values any) ([]byte, error) {
	key, err := hpke.NewDHKEMPublicKey(public)
	if err != nil {
		return nil, fmt.Errorf("envseal: %w", err)
	}
	plain, err := json.Marshal(values)
	if err != nil {
		return nil, fmt.Errorf("envseal: %w", err)
	}
	box, err := hpke.Seal(key, hpke.HKDFSHA256(), hpke.AES256GCM(), info(purpose, sandbox), plain)
	if err != nil {
		return nil, fmt.Errorf("envseal: %w", err)
	}
	return box, nil
}

// Open returns the values in box. For a box sealed to another sandbox, key or
// purpose it fails with kind invalid; the error reveals nothing of the content.
func Open[T any](private *ecdh.PrivateKey, purpose Purpose, sandbox protocol.SandboxID, box []byte) (T, error) {
	var values, none T
	key, err := hpke.NewDHKEMPrivateKey(private)
	if err != nil {
		return none, fmt.Errorf("envseal: %w", err)
	}
	plain, err := hpke.Open(key, hpke.HKDFSHA256(), hpke.AES256GCM(), info(purpose, sandbox), box)
	if err != nil {
		return none, protocol.Errorf(protocol.KindInvalid, "the values are not sealed to this sandbox")
	}
	if err := json.Unmarshal(plain, &values); err != nil {
		return none, protocol.Errorf(protocol.KindInvalid, "the sealed values are malformed")
	}
	return values, nil
}

func info(purpose Purpose, sandbox protocol.SandboxID) []byte {
	b := binary.BigEndian.AppendUint32(nil, uint32(len(purpose)))
	b = append(b, purpose...)
	b = binary.BigEndian.AppendUint32(b, uint32(len(sandbox)))
	return append(b, sandbox...)
}
