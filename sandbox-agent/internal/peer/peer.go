// Package peer tells who is at the other end of a loopback TCP connection, and
// who listens on a port, by asking the kernel.
package peer

import (
	"errors"
	"fmt"
	"net/netip"
)

// ErrSeveral means that a port has listeners of several users, and none comes
// before the others.
var ErrSeveral = errors.New("several users listen there")

// States of a TCP socket, as the kernel numbers them.
const (
	tcpEstablished = 1
	tcpFinWait1    = 4
	tcpFinWait2    = 5
	tcpCloseWait   = 8
	tcpListen      = 10
)

// Users tell whose process is at the other end of a connection. [Kernel] does.
type Users interface {
	UID(local, remote netip.AddrPort) (int, error)
}

// Kernel asks the kernel, as [UID] does.
var Kernel Users = UsersFunc(UID)

// UsersFunc is a function as [Users].
type UsersFunc func(local, remote netip.AddrPort) (int, error)

// UID calls f.
func (f UsersFunc) UID(local, remote netip.AddrPort) (int, error) { return f(local, remote) }

// UID returns the user whose socket is at the other end of an accepted
// connection; local and remote are its addresses as seen from here. It is the
// user that created the socket. An error means that nobody can say: the peer
// has closed its socket, or is not on this machine's loopback.
func UID(local, remote netip.AddrPort) (int, error) {
	local, remote = unmap(local), unmap(remote)
	if !local.Addr().IsLoopback() || !remote.Addr().IsLoopback() {
		return 0, fmt.Errorf("peer of %s: not on loopback", local)
	}
	s, err := lookup(remote, local)
	if err == nil {
		err = s.check(remote, local)
	}
	if err != nil {
		return 0, fmt.Errorf("peer of %s: %w", local, err)
	}
	return int(s.uid), nil
}

// check reports whether s is the open socket from local to remote. The kernel
// gives a listener where there is no connection, and uid 0 where there is no
// owner.
func (s socket) check(local, remote netip.AddrPort) error {
	open := s.state == tcpEstablished || s.state == tcpFinWait1 || s.state == tcpFinWait2 || s.state == tcpCloseWait
	if !open || s.inode == 0 || s.local != local || s.remote != remote {
		return ErrUnknown
	}
	return nil
}

func lookup(local, remote netip.AddrPort) (socket, error) {
	s, err := diagOne(local, remote)
	if err == nil || errors.Is(err, ErrUnknown) {
		return s, err
	}
	all, procErr := procSockets(func(s socket) bool { return s.local == local && s.remote == remote })
	if procErr != nil {
		return socket{}, errors.Join(err, procErr)
	}
	for _, s := range all {
		if s.check(local, remote) == nil {
			return s, nil
		}
	}
	return socket{}, ErrUnknown
}

// Listener returns the user that listens on a TCP port where a connection to
// 127.0.0.1, or else to ::1, arrives. It fails with [ErrUnknown] when nobody
// listens, and [ErrSeveral] when it can't be told who would get a connection.
func Listener(port int) (int, error) {
	if port < 1 || port > 65535 {
		return 0, fmt.Errorf("listener on %d: not a port", port)
	}
	all, err := diagListeners(uint16(port))
	if err != nil {
		var procErr error
		all, procErr = procSockets(func(s socket) bool { return s.state == tcpListen && s.local.Port() == uint16(port) })
		if procErr != nil {
			return 0, fmt.Errorf("listener on %d: %w", port, errors.Join(err, procErr))
		}
	}
	uid, err := choose(all)
	if err != nil {
		return 0, fmt.Errorf("listener on %d: %w", port, err)
	}
	return uid, nil
}

// choose returns the user whose listener a connection on loopback reaches: an
// address goes before the wildcard. The wildcard of IPv6 takes IPv4 as well,
// or doesn't; so nothing is said where that decides.
func choose(listeners []socket) (int, error) {
	uid, err := owner(listeners, netip.AddrFrom4([4]byte{127, 0, 0, 1}), netip.IPv4Unspecified())
	if !errors.Is(err, ErrUnknown) {
		return uid, err
	}
	wildcard, wildcardErr := owner(listeners, netip.IPv6Unspecified())
	uid, err = owner(listeners, netip.IPv6Loopback(), netip.IPv6Unspecified())
	if err == nil && wildcardErr == nil && wildcard != uid {
		return 0, ErrSeveral
	}
	return uid, err
}

// owner returns who listens at the first of addrs where somebody does.
func owner(listeners []socket, addrs ...netip.Addr) (int, error) {
	for _, addr := range addrs {
		owners := make(map[uint32]bool)
		for _, s := range listeners {
			if s.local.Addr() == addr && s.inode != 0 {
				owners[s.uid] = true
			}
		}
		if len(owners) > 1 {
			return 0, ErrSeveral
		}
		for uid := range owners {
			return int(uid), nil
		}
	}
	return 0, ErrUnknown
}

func unmap(a netip.AddrPort) netip.AddrPort {
	return netip.AddrPortFrom(a.Addr().Unmap().WithZone(""), a.Port())
}
