package protocol

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
)

// ConnectStream is the name in the preface of an unregistered agent's first
// stream: after OPENED it carries opaque bytes to the control plane, within
// MaxConnectBytes and ConnectTimeout.
const ConnectStream = "connect"

// ExporterLabel is the label of the TLS exporter (RFC 8446 §7.5, 32 bytes, no
// context) that binds a sandbox's request to its connection.
const ExporterLabel = "EXPORTER-fairlead-device"

// An Invitation lets a sandbox enrol once: it holds the addresses, what to
// trust, and the token that is exchanged for a certificate. It is secret until
// used.
type Invitation struct {
	SandboxID    SandboxID            `json:"sandbox_id"`
	Token        string               `json:"token"`
	ControlPlane EnrolledControlPlane `json:"control_plane"`
	Relays       []string             `json:"relays"` // "host:port" of tunnels
	RelayCAPEM   string               `json:"relay_ca_pem"`
}

// ParseInvitation decodes and validates an invitation. Unknown and repeated
// members are errors; errors never quote the token.
func ParseInvitation(data []byte) (*Invitation, error) {
	if len(data) > MaxEnrolmentBytes {
		return nil, fmt.Errorf("invitation: larger than %d bytes", MaxEnrolmentBytes)
	}
	var i Invitation
	if err := UnmarshalStrict(data, &i); err != nil {
		return nil, fmt.Errorf("invitation: %w", err)
	}
	if err := i.check(); err != nil {
		return nil, fmt.Errorf("invitation: %w", err)
	}
	return &i, nil
}

func (i *Invitation) check() error {
	if err := checkID("sandbox_id", i.SandboxID); err != nil {
		return err
	}
	if i.Token == "" {
		return errors.New("token is empty")
	}
	return checkReach(i.ControlPlane, i.Relays, i.RelayCAPEM)
}

// EnrolRequest exchanges an invitation's token for an [Enrolment].
type EnrolRequest struct {
	SandboxID SandboxID       `json:"sandbox_id"`
	Token     string          `json:"token"`
	DeviceKey json.RawMessage `json:"device_key"` // public JWK
	Signature []byte          `json:"signature"`  // over EnrolTranscript, by DeviceKey
}

// RenewRequest exchanges a valid certificate for an [Enrolment] with a new one.
type RenewRequest struct {
	Certificate string `json:"certificate"`
	Signature   []byte `json:"signature"` // over RenewTranscript, by the certified key
}

// EnrolTranscript returns the bytes that a sandbox signs to enrol. They include
// the TLS connection, so that the request is useless on another.
func EnrolTranscript(sandbox SandboxID, exporter []byte) []byte {
	return transcript("fairlead/1 enrol", []byte(sandbox), exporter)
}

// RenewTranscript is the same for the renewal of a certificate.
func RenewTranscript(sandbox SandboxID, exporter []byte) []byte {
	return transcript("fairlead/1 renew", []byte(sandbox), exporter)
}

// CallbackTranscript returns the bytes that an executor signs with its
// callback; body is the callback's exact bytes.
func CallbackTranscript(sandbox SandboxID, body []byte) []byte {
	return transcript("fairlead/1 callback", []byte(sandbox), body)
}

// AuditTranscript returns the bytes that an agent signs as the head of its
// audit log: the number and the hash, in hexadecimal digits, of its last record.
func AuditTranscript(sandbox SandboxID, sequence uint64, hash string) []byte {
	return transcript("fairlead/1 audit", []byte(sandbox), binary.BigEndian.AppendUint64(nil, sequence), []byte(hash))
}

// ApprovalTranscript returns the bytes that an agent signs when it reports a
// changed approval to the control plane: the approval in JSON, and the time.
func ApprovalTranscript(sandbox SandboxID, approval []byte, at int64) []byte {
	return transcript("fairlead/1 approval", []byte(sandbox), approval, binary.BigEndian.AppendUint64(nil, uint64(at)))
}

// DeviceTranscript returns the bytes that an agent signs for a request to the
// control plane: the method, the path with its query, the SHA-256 of the body,
// and the time.
func DeviceTranscript(sandbox SandboxID, method, target string, body [32]byte, at int64) []byte {
	return transcript("fairlead/1 request", []byte(sandbox), []byte(method), []byte(target), body[:],
		binary.BigEndian.AppendUint64(nil, uint64(at)))
}

// transcript joins the signature's purpose and parts, each preceded by its
// length in 4 B.
func transcript(purpose string, parts ...[]byte) []byte {
	b := binary.BigEndian.AppendUint32(nil, uint32(len(purpose)))
	b = append(b, purpose...)
	for _, part := range parts {
		b = binary.BigEndian.AppendUint32(b, uint32(len(part)))
		b = append(b, part...)
	}
	return b
}

// SignatureHeader carries the executor's signature, standard base64, if a
// callback is an HTTP body.
const SignatureHeader = "Fairlead-Signature"

// ClientAddressHeader tells the control plane the client's address of a
// forwarded request, so that it can limit unknown clients. A relay sets it on
// every such request and ignores the client's own.
const ClientAddressHeader = "Fairlead-Client-Address"

// CallbackTokenHeader carries a callback's bearer token from a relay to the
// control plane, besides the relay's own credential.
const CallbackTokenHeader = "Fairlead-Callback-Token"

// An AuditHead names the last record of a sandbox's audit log.
type AuditHead struct {
	SandboxID SandboxID `json:"sandbox_id"`
	Sequence  uint64    `json:"sequence"`
	Hash      string    `json:"hash"` // hexadecimal digits
	At        int64     `json:"at"`   // Unix milliseconds
}

// AuditHeadRequest is the body of POST /audit/head.
type AuditHeadRequest struct {
	Certificate string    `json:"certificate"`
	Head        AuditHead `json:"head"`
	Signature   []byte    `json:"signature"` // over AuditTranscript, by the certified key
}
