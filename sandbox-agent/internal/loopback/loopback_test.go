package loopback

import (
	"net"
	"testing"

	"github.com/fairlead/fairlead/sandbox-agent/internal/terminal"
)

// TestListen: nobody outside the machine gets there.
func TestListen(t *testing.T) {
	for _, address := range []string{"0.0.0.0:0", ":0", "192.0.2.1:0", "x"} {
		if l, err := Listen(address); err == nil {
			l.Close()
			t.Errorf("it listens on %s", address)
		}
	}
	for _, address := range []string{"127.0.0.1:0", "localhost:0"} {
		l, err := Listen(address)
		if err != nil {
			t.Errorf("%s: %v", address, err)
			continue
		}
		own := Agent{l.Addr().(*net.TCPAddr).Port}
		if !own.Owns(own[0]) || own.Owns(own[0]+1) {
			t.Errorf("%v isn't the agent's alone", own)
		}
		l.Close()
	}
}

// TestBelongs: where terminals share a user nobody can tell whose a port is.
func TestBelongs(t *testing.T) {
	dir := t.TempDir()
	host, err := terminal.NewHost(terminal.Config{Workspace: dir + "/w", Homes: dir + "/h", Isolation: terminal.IsolationNone})
	if err != nil {
		t.Fatal(err)
	}
	defer host.Shutdown(t.Context())
	if ours, err := (Ports{Terminals: host}).Belongs("ses_1", 1); err != nil || !ours {
		t.Errorf("%v %v", ours, err)
	}
}
