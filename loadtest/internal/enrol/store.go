package enrol

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/fairlead/fairlead/deploy/program"
	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/protocol/jws"
)

const (
	// storeFile holds identities, private keys among them.
	storeFile = "identities.json"
	// maxStoreBytes bounds it.
	maxStoreBytes = 1 << 28
	// minLeft is how long a certificate must last to be used again.
	minLeft = 10 * time.Minute
)

// What all identities of one control plane share is stored once.
type stored struct {
	ControlPlane protocol.EnrolledControlPlane `json:"control_plane"`
	JWKS         json.RawMessage               `json:"jwks"`
	Relays       []string                      `json:"relays"`
	RelayCAPEM   string                        `json:"relay_ca_pem"`
	Agents       []storedAgent                 `json:"agents"`
}

type storedAgent struct {
	Sandbox     protocol.SandboxID `json:"sandbox_id"`
	Certificate string             `json:"certificate"`
	Device      json.RawMessage    `json:"device_key"` // private
}

// Save writes identities of one control plane into dir, for its owner alone.
func Save(dir string, identities []Identity) error {
	if len(identities) == 0 {
		return errors.New("identities: there are none")
	}
	e := identities[0].Enrolment
	s := stored{ControlPlane: e.ControlPlane, JWKS: e.JWKS, Relays: e.Relays, RelayCAPEM: e.RelayCAPEM}
	for _, i := range identities {
		device, err := i.Device.MarshalPrivate()
		if err != nil {
			return fmt.Errorf("identities: %w", err)
		}
		s.Agents = append(s.Agents, storedAgent{i.Enrolment.SandboxID, i.Enrolment.Certificate, device})
	}
	data, err := json.Marshal(s)
	if err != nil {
		return fmt.Errorf("identities: %w", err)
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return fmt.Errorf("identities: %w", err)
	}
	return program.ReplaceFile(filepath.Join(dir, storeFile), data, 0o600)
}

// Load reads the identities in dir whose certificates are still good; none if
// there is nothing there.
func Load(dir string, now time.Time) ([]Identity, error) {
	data, err := os.ReadFile(filepath.Join(dir, storeFile))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("identities: %w", err)
	}
	return parseStored(data, now)
}

func parseStored(data []byte, now time.Time) ([]Identity, error) {
	if len(data) > maxStoreBytes {
		return nil, errors.New("identities: the file is too large")
	}
	var s stored
	if err := json.Unmarshal(data, &s); err != nil {
		return nil, fmt.Errorf("identities: %w", err)
	}
	var list []Identity
	for _, a := range s.Agents {
		e := &protocol.Enrolment{
			SandboxID: a.Sandbox, Certificate: a.Certificate, ControlPlane: s.ControlPlane,
			JWKS: s.JWKS, Relays: s.Relays, RelayCAPEM: s.RelayCAPEM,
		}
		if err := e.Validate(); err != nil {
			return nil, err
		}
		device, err := jws.ParseDeviceKey(a.Device)
		if err != nil {
			return nil, fmt.Errorf("identities: %w", err)
		}
		if expires, err := expiry(e); err != nil {
			return nil, fmt.Errorf("identities: %w", err)
		} else if expires.Sub(now) < minLeft {
			continue
		}
		list = append(list, Identity{device, e})
	}
	return list, nil
}

// expiry returns when a certificate ends, as it says itself. Who made it is for
// relays to know.
func expiry(e *protocol.Enrolment) (time.Time, error) {
	payload, err := payloadOf(e.Certificate)
	if err != nil {
		return time.Time{}, err
	}
	var c jws.Certificate
	if err := protocol.UnmarshalObject(payload, &c); err != nil {
		return time.Time{}, fmt.Errorf("certificate: %w", err)
	}
	return c.Expires(), nil
}

// payloadOf returns what a compact JWS signs.
func payloadOf(token string) ([]byte, error) {
	parts := strings.Split(token, ".")
	if len(parts) != 3 {
		return nil, errors.New("certificate: not a compact JWS")
	}
	payload, err := base64.RawURLEncoding.DecodeString(parts[1])
	if err != nil {
		return nil, fmt.Errorf("certificate: %w", err)
	}
	return payload, nil
}
