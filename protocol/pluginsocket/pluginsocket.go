// Package pluginsocket is what agents, relays and programs of terminals agree on
// about plugins.
package pluginsocket

import "github.com/fairlead/fairlead/protocol"

// A plugin is a program in a terminal that has registered a port of its own on
// loopback under a name. Its socket is at /plugin-ws/{name} (seed 002).
const (
	// Upgrade is what a relay's request for a plugin's socket is upgraded to at
	// the agent: the frames of a WebSocket, a client's towards the agent and a
	// server's back. The handshake is the relay's.
	Upgrade = "fairlead-frames"
	// Handle is the header in which a relay names a socket, an id that nobody else
	// knows. PUT /sessions/{sid}/plugin-sockets/{handle} under a newer grant of the
	// same user has the socket go on under that.
	Handle = "Fairlead-Socket"
	// MaxName bounds a plugin's name, in bytes.
	MaxName = 64
	// MaxMessage bounds a message of a plugin's socket either way, in bytes.
	MaxMessage = 1 << 20
	// MaxPiece bounds the payload of a frame in which an agent sends a part of a
	// message, in bytes: with its header it fills two writes to a tunnel's stream.
	MaxPiece = 2*protocol.MaxStreamWrite - 16
)

// Reasons in the Close frames of plugins' sockets, as seed 002 has them.
const (
	InvalidName = "Invalid plugin name"
	NotRunning  = "Plugin not running"
	Upstream    = "Upstream error"
)

// Offer is the body of POST /sessions/{sid}/ptys/{pid}/plugins, by which a
// program of a terminal registers its port at the agent.
type Offer struct {
	Name string `json:"name"`
	Port int    `json:"port"`
}

// Info describes a plugin.
type Info struct {
	Name  string         `json:"name"`
	PTYID protocol.PTYID `json:"pty_id"` // the terminal whose program it is
	Port  int            `json:"port"`
}

// List is the answer of GET /sessions/{sid}/plugins.
type List struct {
	Plugins []Info `json:"plugins"`
}

// ValidName reports whether name may be a plugin's: letters, digits, _ and -.
func ValidName(name string) bool {
	if name == "" || len(name) > MaxName {
		return false
	}
	for _, c := range []byte(name) {
		if !(c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c == '_' || c == '-') {
			return false
		}
	}
	return true
}
