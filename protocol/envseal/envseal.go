// Package envseal seals the values of env.apply to their one sandbox, so that a
// relay can carry them and a control plane keep them without reading them.
//
// A box is HPKE (RFC 9180) in base mode, DHKEM(P-256, HKDF-SHA256), HKDF-SHA256
// and AES-256-GCM, to the sandbox's device key. Its info is "fairlead/1 env"
// and the sandbox's id, each preceded by its length in 4 B. The device key also
// signs, but never anything with this prefix.
package envseal

import (
	"crypto/ecdh"
	"crypto/hpke"
	"encoding/binary"
	"encoding/json"
	"fmt"

	"github.com/fairlead/fairlead/protocol"
)

const purpose = "fairlead/1 env"

// Seal returns the box of values for sandbox, whose device key is public.
func Seal(public *ecdh.PublicKey, sandbox protocol.SandboxID, values protocol.EnvValues) ([]byte, error) {
	key, err := hpke.NewDHKEMPublicKey(public)
	if err != nil {
		return nil, fmt.Errorf("envseal: %w", err)
	}
	plain, err := json.Marshal(values)
	if err != nil {
		return nil, fmt.Errorf("envseal: %w", err)
	}
	box, err := hpke.Seal(key, hpke.HKDFSHA256(), hpke.AES256GCM(), info(sandbox), plain)
	if err != nil {
		return nil, fmt.Errorf("envseal: %w", err)
	}
	return box, nil
}

// Open returns the values in box. For a box sealed to another sandbox or key it
// fails with kind invalid; the error reveals nothing of the content.
func Open(private *ecdh.PrivateKey, sandbox protocol.SandboxID, box []byte) (protocol.EnvValues, error) {
	var values protocol.EnvValues
	key, err := hpke.NewDHKEMPrivateKey(private)
	if err != nil {
		return values, fmt.Errorf("envseal: %w", err)
	}
	plain, err := hpke.Open(key, hpke.HKDFSHA256(), hpke.AES256GCM(), info(sandbox), box)
	if err != nil {
		return values, protocol.Errorf(protocol.KindInvalid, "the values are not sealed to this sandbox")
	}
	if err := json.Unmarshal(plain, &values); err != nil {
		return protocol.EnvValues{}, protocol.Errorf(protocol.KindInvalid, "the sealed values are malformed")
	}
	return values, nil
}

func info(sandbox protocol.SandboxID) []byte {
	b := binary.BigEndian.AppendUint32(nil, uint32(len(purpose)))
	b = append(b, purpose...)
	b = binary.BigEndian.AppendUint32(b, uint32(len(sandbox)))
	return append(b, sandbox...)
}
