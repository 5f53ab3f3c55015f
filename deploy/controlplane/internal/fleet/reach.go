package fleet

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"

	"github.com/fairlead/fairlead/deploy/controlplane/internal/private"
	"github.com/fairlead/fairlead/deploy/program"
	"github.com/fairlead/fairlead/protocol"
)

// A Reach says how sandboxes get to the control plane, and how they know whom
// they talk to on the way.
type Reach struct {
	CA         string   // file: who vouches for the control plane, PEM
	ServerName string   // the control plane's name in its certificate
	Relays     []string // "host:port" of tunnels
	RelayCA    string   // file: who vouches for the relays, PEM
}

// reachFile holds the Reach that [Enrol] or [Invite] was given last: that is
// what a sandbox is told when it enrols or renews its certificate.
const reachFile = "reach.json"

// A reach is a Reach with the files' contents.
type reach struct {
	ControlPlane protocol.EnrolledControlPlane `json:"control_plane"`
	Relays       []string                      `json:"relays"`
	RelayCAPEM   string                        `json:"relay_ca_pem"`
}

func (r Reach) read() (reach, error) {
	read := reach{ControlPlane: protocol.EnrolledControlPlane{ServerName: r.ServerName}, Relays: r.Relays}
	var err error
	if read.ControlPlane.CAPEM, err = readText(r.CA); err != nil {
		return read, err
	}
	read.RelayCAPEM, err = readText(r.RelayCA)
	return read, err
}

func readText(path string) (string, error) {
	data, err := private.ReadPublic(path, protocol.MaxEnrolmentBytes)
	return string(data), err
}

func (r reach) enrolment(sandbox protocol.SandboxID, certificate string, jwks []byte) *protocol.Enrolment {
	return &protocol.Enrolment{
		SandboxID: sandbox, Certificate: certificate, ControlPlane: r.ControlPlane,
		JWKS: jwks, Relays: r.Relays, RelayCAPEM: r.RelayCAPEM,
	}
}

func (r reach) save(stateDir string) error {
	data, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return err
	}
	return program.ReplaceFile(filepath.Join(stateDir, reachFile), append(data, '\n'), private.Mode)
}

// loadReach reads what save wrote; KindUnavailable says that it never did.
func loadReach(stateDir string) (reach, error) {
	var r reach
	path := filepath.Join(stateDir, reachFile)
	data, err := private.Read(path, protocol.MaxEnrolmentBytes)
	if errors.Is(err, fs.ErrNotExist) {
		return r, protocol.Errorf(protocol.KindUnavailable, "nobody has been invited or enrolled here yet")
	}
	if err != nil {
		return r, err
	}
	if err := protocol.UnmarshalStrict(data, &r); err != nil {
		return r, fmt.Errorf("%s: %w", path, err)
	}
	return r, nil
}
