package devstack

import (
	"net"
	"testing"
)

// The control plane comes back to its address, but for one that is taken by now,
// or spoilt.
func TestControlPlaneAddress(t *testing.T) {
	s := &Stack{cfg: Config{StateDir: t.TempDir()}}
	if got := s.controlPlaneAddress(); got != anyPort {
		t.Errorf("the first time: %s", got)
	}
	l, err := net.Listen("tcp", anyPort)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	s.cpReady.URL = "http://" + l.Addr().String()
	if err := s.keepControlPlaneAddress(); err != nil {
		t.Fatal(err)
	}
	if got := s.controlPlaneAddress(); got != anyPort {
		t.Errorf("while somebody else listens there: %s", got)
	}
	l.Close()
	if got := s.controlPlaneAddress(); got != l.Addr().String() {
		t.Errorf("the next time: %s, want %s", got, l.Addr())
	}
	s.cpReady.URL = "http://nowhere"
	if err := s.keepControlPlaneAddress(); err != nil {
		t.Fatal(err)
	}
	if got := s.controlPlaneAddress(); got != anyPort {
		t.Errorf("spoilt: %s", got)
	}
}
