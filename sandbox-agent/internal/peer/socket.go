package peer

import (
	"errors"
	"net/netip"
)

// ErrUnknown means that the kernel knows no socket there, or one that belongs
// to nobody any more. A uid is never guessed.
var ErrUnknown = errors.New("no process owns that socket")

// A socket is what the kernel tells of one TCP socket.
type socket struct {
	local, remote netip.AddrPort
	state         uint8 // tcpEstablished…
	uid           uint32
	inode         uint32 // 0: no process has it open
}
