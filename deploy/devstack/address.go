package devstack

import (
	"os"
	"path/filepath"
	"strings"

	"github.com/fairlead/fairlead/deploy/program"
)

// addressName is the file with the control plane's address.
const addressName = "controlplane-address"

// controlPlaneAddress returns where the control plane is to listen: where it did
// the last time, if nobody else does by now. A browser that has loaded the
// extension knows it by that address.
func (s *Stack) controlPlaneAddress() string {
	last, err := os.ReadFile(filepath.Join(s.cfg.StateDir, addressName))
	if err != nil {
		return anyPort
	}
	addr, err := freeAddress(strings.TrimSpace(string(last)), nil)
	if err != nil {
		return anyPort
	}
	return addr
}

// keepControlPlaneAddress notes where the control plane listens now.
func (s *Stack) keepControlPlaneAddress() error {
	addr := strings.TrimPrefix(s.cpReady.URL, "http://")
	return program.ReplaceFile(filepath.Join(s.cfg.StateDir, addressName), []byte(addr+"\n"), 0o600)
}
