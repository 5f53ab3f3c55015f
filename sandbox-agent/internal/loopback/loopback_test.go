package loopback

import (
	"net"
	"os"
	"testing"

	"github.com/fairlead/fairlead/protocol"
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

// TestListens: a port is the user's who listens there, and a connection leads to
// whoever has taken it.
func TestListens(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	port, me := l.Addr().(*net.TCPAddr).Port, os.Geteuid()
	kinds := func(what string, want protocol.Kind, ask func(uid int) error) {
		t.Helper()
		for _, own := range []int{me, -1} {
			if err := ask(own); want == 0 && err != nil || want != 0 && protocol.KindOf(err) != want {
				t.Errorf("%s, asked for %d: %v", what, own, err)
			}
		}
		if err := ask(me + 1); err == nil {
			t.Errorf("%s is somebody else's too", what)
		}
	}
	listens := func(uid int) error { return Ports{}.Listens(uid, port) }
	kinds("a listener", 0, listens)
	conn, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	serves := func(uid int) error { return Ports{}.Serves(uid, conn) }
	kinds("a connection that waits", 0, serves)
	taken, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	kinds("a connection", 0, serves)
	l.Close()
	kinds("a connection whose listener is closed", 0, serves)
	kinds("a closed port", protocol.KindNotFound, listens)
	taken.Close()
	if err := (Ports{}).Listens(me, 0); protocol.KindOf(err) != protocol.KindNotFound {
		t.Error(err)
	}
}
