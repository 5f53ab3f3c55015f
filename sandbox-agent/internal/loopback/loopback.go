// Package loopback has the agent's listeners for its terminals' programs, and
// says whose the ports of this machine are.
package loopback

import (
	"errors"
	"fmt"
	"net"
	"os"
	"slices"

	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/sandbox-agent/internal/peer"
	"github.com/fairlead/fairlead/sandbox-agent/internal/terminal"
)

// Listen listens where nobody outside the machine gets.
func Listen(address string) (net.Listener, error) {
	at, err := net.ResolveTCPAddr("tcp", address)
	if err != nil {
		return nil, err
	}
	if !at.IP.IsLoopback() {
		return nil, fmt.Errorf("%s is not a loopback address", address)
	}
	return net.ListenTCP("tcp", at)
}

// Agent are the ports that the agent itself listens on: nobody gets there but by
// the terminals' own connections.
type Agent []int

// Owns reports whether the agent itself listens on port.
func (a Agent) Owns(port int) bool { return slices.Contains(a, port) }

// Ports are all ports of this machine.
type Ports struct {
	Agent
	Terminals *terminal.Host
}

// Belongs reports whether a program of the session's terminals listens on port.
// Where terminals have no users of their own nobody can tell, and it is true. It
// fails when nobody that can be seen listens.
func (p Ports) Belongs(session protocol.SessionID, port int) (bool, error) {
	if p.Terminals.Isolation() != terminal.IsolationUID {
		return true, nil
	}
	owner, err := peer.Listener(port)
	if err != nil {
		return false, err
	}
	return slices.ContainsFunc(p.Terminals.Running(), func(t terminal.Running) bool {
		return t.Session == session && t.UID == owner
	}), nil
}

// Listens fails unless a program of a user listens on port: with kind not_found
// when nobody does that can be seen, and forbidden when somebody else does. Uid −1
// stands for the agent's own user.
func (p Ports) Listens(uid, port int) error {
	owner, err := peer.Listener(port)
	if errors.Is(err, peer.ErrSeveral) {
		return errForeign(port)
	}
	if err != nil {
		return protocol.Errorf(protocol.KindNotFound, "nothing listens on port %d", port)
	}
	return own(uid, owner, port)
}

// Serves is Listens for a connection that was just made to a port.
func (p Ports) Serves(uid int, conn net.Conn) error {
	local, remote := conn.LocalAddr().(*net.TCPAddr), conn.RemoteAddr().(*net.TCPAddr)
	owner, err := peer.UID(local.AddrPort(), remote.AddrPort())
	if err != nil { // it wasn't accepted yet
		return p.Listens(uid, remote.Port)
	}
	return own(uid, owner, remote.Port)
}

// own fails unless owner is the user uid.
func own(uid, owner, port int) error {
	if uid < 0 {
		uid = os.Geteuid()
	}
	if owner != uid {
		return errForeign(port)
	}
	return nil
}

func errForeign(port int) error {
	return protocol.Errorf(protocol.KindForbidden, "what listens on port %d is not this terminal's", port)
}
