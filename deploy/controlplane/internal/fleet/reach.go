package fleet

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/netip"
	"path/filepath"
	"slices"

	"github.com/fairlead/fairlead/deploy/controlplane/internal/private"
	"github.com/fairlead/fairlead/deploy/controlplane/internal/store"
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

// reachFile holds the Reach that [Enrol] or [Invite] was given last. A sandbox
// is told that when it enrols or renews its certificate, and before its relays
// those that are registered then.
const reachFile = "reach.json"

// maxTold and maxAddrBytes bound the relays that a sandbox is told: an enrolment
// has to fit into a "connect" stream, see [protocol.MaxConnectBytes].
const (
	maxTold      = 64
	maxAddrBytes = 253 + len(":65535") // the longest name in the DNS, with a port
)

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

// reachNow is what save wrote, with the relays that are registered at this
// moment: a relay may move or be added without anybody touching the sandboxes.
func (f *Fleet) reachNow(ctx context.Context) (reach, error) {
	r, err := loadReach(f.StateDir)
	if err != nil {
		return r, err
	}
	registered, err := f.Relays.Registered(ctx)
	if err != nil {
		// Relays of yesterday are better than a certificate that runs out.
		f.Logger.Warn("a sandbox is told of the operator's relays alone", "error", err)
		return r, nil
	}
	r.Relays = told(registered, r.Relays)
	return r, nil
}

// told lists the tunnels of the registered relays by the relays' ids, so that
// the list changes with the relays alone. What else the operator named comes
// behind them, since a relay behind a balancer may be reached by another name.
// Without a registered relay the operator's list stays as it is.
//
// A relay that registered a loopback address was told nothing better: only where the
// operator's relays are on loopback, too, sandboxes are on the same machine.
func told(registered []store.Relay, operators []string) []string {
	byID := slices.SortedFunc(slices.Values(registered), func(a, b store.Relay) int { return cmp.Compare(a.ID, b.ID) })
	near := slices.ContainsFunc(operators, nearOnly)
	var list []string
	for _, r := range byID {
		if len(r.Tunnel) <= maxAddrBytes && protocol.CheckAddr(r.Tunnel) == nil && (near || !nearOnly(r.Tunnel)) {
			list = addTold(list, r.Tunnel)
		}
	}
	if len(list) == 0 {
		return operators
	}
	for _, addr := range operators {
		list = addTold(list, addr)
	}
	return list
}

// nearOnly reports whether addr, a "host:port", is reached on its own machine alone.
func nearOnly(addr string) bool {
	host, _, _ := net.SplitHostPort(addr)
	ip, err := netip.ParseAddr(host)
	return host == "localhost" || err == nil && (ip.Unmap().IsLoopback() || ip.Unmap().IsUnspecified())
}

// addTold adds addr to list, unless it is there or the list is full.
func addTold(list []string, addr string) []string {
	if len(list) >= maxTold || slices.Contains(list, addr) {
		return list
	}
	return append(list, addr)
}
