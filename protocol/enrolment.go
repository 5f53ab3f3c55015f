package protocol

import (
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"net"
	"strconv"
)

// An Enrolment is all that a sandbox needs to reach and trust its fairlead: its
// id, the relays, and whom to trust. The control plane writes it. It holds no
// secret, but whoever can change it can take over the sandbox.
type Enrolment struct {
	SandboxID    SandboxID            `json:"sandbox_id"`
	Certificate  string               `json:"certificate"` // compact JWS: the device key is this sandbox's
	ControlPlane EnrolledControlPlane `json:"control_plane"`
	JWKS         json.RawMessage      `json:"jwks"`         // the control plane's public keys at this moment
	Relays       []string             `json:"relays"`       // "host:port" of tunnels
	RelayCAPEM   string               `json:"relay_ca_pem"` // who may vouch for a relay's TLS certificate
}

// An EnrolledControlPlane says how the control plane is verified inside a
// "connect" stream.
type EnrolledControlPlane struct {
	ServerName string `json:"server_name"`
	CAPEM      string `json:"ca_pem"`
}

// MaxEnrolmentBytes bounds an enrolment's JSON.
const MaxEnrolmentBytes = 1 << 20

// ParseEnrolment decodes and validates an enrolment. Unknown and repeated
// members are errors.
func ParseEnrolment(data []byte) (*Enrolment, error) {
	if len(data) > MaxEnrolmentBytes {
		return nil, fmt.Errorf("enrolment: larger than %d bytes", MaxEnrolmentBytes)
	}
	var e Enrolment
	if err := UnmarshalStrict(data, &e); err != nil {
		return nil, fmt.Errorf("enrolment: %w", err)
	}
	if err := e.Validate(); err != nil {
		return nil, err
	}
	return &e, nil
}

// Validate reports the first invalid field. It verifies neither signatures nor
// certificates.
func (e *Enrolment) Validate() error {
	if err := e.check(); err != nil {
		return fmt.Errorf("enrolment: %w", err)
	}
	return nil
}

func (e *Enrolment) check() error {
	if err := checkID("sandbox_id", e.SandboxID); err != nil {
		return err
	}
	if e.Certificate == "" || len(e.Certificate) > MaxTokenBytes {
		return fmt.Errorf("certificate of %d bytes", len(e.Certificate))
	}
	if err := UnmarshalObject(e.JWKS, &struct{}{}); err != nil {
		return fmt.Errorf("jwks: %w", err)
	}
	return checkReach(e.ControlPlane, e.Relays, e.RelayCAPEM)
}

// checkReach checks the addresses and trust anchors for a sandbox.
func checkReach(plane EnrolledControlPlane, relays []string, relayCA string) error {
	if plane.ServerName == "" {
		return errors.New("control_plane.server_name is empty")
	}
	if err := checkPEM("control_plane.ca_pem", plane.CAPEM); err != nil {
		return err
	}
	if len(relays) == 0 {
		return errors.New("relays is empty")
	}
	for _, addr := range relays {
		if err := CheckAddr(addr); err != nil {
			return fmt.Errorf("relays: %w", err)
		}
	}
	return checkPEM("relay_ca_pem", relayCA)
}

// CheckAddr reports what is wrong with addr as a "host:port".
func CheckAddr(addr string) error {
	host, port, err := net.SplitHostPort(addr)
	if err != nil {
		return fmt.Errorf("%q is not host:port", addr)
	}
	if n, err := strconv.ParseUint(port, 10, 16); err != nil || n == 0 || host == "" {
		return fmt.Errorf("%q is not host:port", addr)
	}
	return nil
}

// checkPEM wants one or more CERTIFICATE blocks, and no block of another type.
func checkPEM(field, text string) error {
	rest, n := []byte(text), 0
	for {
		var block *pem.Block
		if block, rest = pem.Decode(rest); block == nil {
			break
		}
		if block.Type != "CERTIFICATE" {
			return fmt.Errorf("%s holds a %s", field, block.Type)
		}
		n++
	}
	if n == 0 {
		return fmt.Errorf("%s holds no certificate", field)
	}
	return nil
}
