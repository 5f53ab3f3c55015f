package quiclink

import (
	"errors"
	"fmt"
	"net"

	"golang.org/x/sys/unix"
)

// connectedSocket returns a UDP socket that the kernel has connected to
// remote. Nobody else's packets get in, the socket doesn't show as listening,
// and a relay that is gone is noticed by its host's ICMP answer at once.
//
// net.DialUDP would do the same but refuses to write to an explicit address,
// which is how quic-go writes.
func connectedSocket(remote *net.UDPAddr) (*net.UDPConn, error) {
	network := "udp6"
	if remote.IP.To4() != nil {
		network = "udp4"
	}
	socket, err := net.ListenUDP(network, nil)
	if err != nil {
		return nil, err
	}
	raw, err := socket.SyscallConn()
	if err == nil {
		ctlErr := raw.Control(func(fd uintptr) { err = unix.Connect(int(fd), sockaddr(remote)) })
		err = errors.Join(err, ctlErr)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("connect %s: %w", remote, err), socket.Close())
	}
	return socket, nil
}

func sockaddr(a *net.UDPAddr) unix.Sockaddr {
	if v4 := a.IP.To4(); v4 != nil {
		return &unix.SockaddrInet4{Port: a.Port, Addr: [4]byte(v4)}
	}
	to := &unix.SockaddrInet6{Port: a.Port, Addr: [16]byte(a.IP.To16())}
	if zone, err := net.InterfaceByName(a.Zone); err == nil {
		to.ZoneId = uint32(zone.Index)
	}
	return to
}
