package authority

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/fairlead/fairlead/deploy/program"
	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/protocol/jws"
	"github.com/fairlead/fairlead/sandbox-agent/internal/controlplane"
)

// EnrolmentFile is where the enrolment is by default, in the state directory.
const EnrolmentFile = "enrolment.json"

// deviceKeyFile is where the device key is in the state directory.
const deviceKeyFile = "device-key.json"

// An Identity is who the sandbox is.
type Identity struct {
	Device    *jws.DeviceKey
	Enrolment *protocol.Enrolment // as it was at the start; certificate and relays may be newer ones since
	RelayTLS  *tls.Config         // verifies relays

	stateDir string
	file     string // of the enrolment
}

// Load reads the device key in stateDir, or makes it, and the enrolment in file.
func Load(stateDir, file string) (*Identity, error) {
	id := &Identity{stateDir: stateDir, file: file}
	var err error
	if id.Device, err = DeviceKey(stateDir); err != nil {
		return nil, err
	}
	data, err := os.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("enrolment: %w", err)
	}
	if id.Enrolment, err = protocol.ParseEnrolment(data); err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	if id.RelayTLS, err = relayTLS(id.Enrolment.RelayCAPEM); err != nil {
		return nil, fmt.Errorf("enrolment %s: %w", file, err)
	}
	return id, nil
}

// relayTLS verifies relays by the certificates in text.
func relayTLS(text string) (*tls.Config, error) {
	roots, err := controlplane.CertPool(text)
	if err != nil {
		return nil, fmt.Errorf("relay_ca_pem: %w", err)
	}
	return &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS13}, nil
}

// DeviceKey returns the key of the sandbox in stateDir, which it makes on first
// use. It never leaves that directory.
func DeviceKey(stateDir string) (*jws.DeviceKey, error) {
	if err := os.MkdirAll(stateDir, 0o700); err != nil {
		return nil, fmt.Errorf("state directory: %w", err)
	}
	path := filepath.Join(stateDir, deviceKeyFile)
	data, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return makeDeviceKey(path)
	}
	if err != nil {
		return nil, fmt.Errorf("device key: %w", err)
	}
	key, err := jws.ParseDeviceKey(data)
	if err != nil {
		return nil, fmt.Errorf("device key %s: %w", path, err)
	}
	return key, nil
}

func makeDeviceKey(path string) (*jws.DeviceKey, error) {
	key, err := jws.GenerateDeviceKey()
	if err != nil {
		return nil, err
	}
	data, err := key.MarshalPrivate()
	if err != nil {
		return nil, err
	}
	if err := program.ReplaceFile(path, data, 0o600); err != nil {
		return nil, fmt.Errorf("device key: %w", err)
	}
	return key, nil
}

// storeEnrolment writes the enrolment, which is what New reads.
func storeEnrolment(path string, enrolment *protocol.Enrolment) error {
	data, err := json.MarshalIndent(enrolment, "", "  ")
	if err != nil {
		return err
	}
	if err := program.ReplaceFile(path, append(data, '\n'), 0o600); err != nil {
		return fmt.Errorf("enrolment: %w", err)
	}
	return nil
}

// checkEnrolment decodes an enrolment that the control plane sent, and makes
// sure that it is of use: for this sandbox and for its key.
func checkEnrolment(data []byte, sandbox protocol.SandboxID, device *jws.DeviceKey) (*protocol.Enrolment, error) {
	enrolment, err := protocol.ParseEnrolment(data)
	if err != nil {
		return nil, err
	}
	if enrolment.SandboxID != sandbox {
		return nil, fmt.Errorf("enrolment: for %s, not %s", enrolment.SandboxID, sandbox)
	}
	set, err := jws.ParseKeySet(enrolment.JWKS)
	if err != nil {
		return nil, fmt.Errorf("enrolment: jwks: %w", err)
	}
	cert, err := jws.NewKeys(set, jws.KeysOptions{}).Certificate(context.Background(), enrolment.Certificate)
	if err != nil {
		return nil, fmt.Errorf("enrolment: certificate: %w", err)
	}
	key, err := cert.PublicKey()
	if err != nil {
		return nil, err
	}
	own, err := (&jws.Certificate{JWK: device.PublicJWK()}).PublicKey()
	if err != nil {
		return nil, err
	}
	if cert.Subject != sandbox || !key.Equal(own) {
		return nil, errors.New("enrolment: its certificate is not for this sandbox and its key")
	}
	return enrolment, nil
}
