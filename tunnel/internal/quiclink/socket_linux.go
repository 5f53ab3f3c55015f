package quiclink

import (
	"fmt"
	"net"
	"os"

	"golang.org/x/sys/unix"
)

// connectedSocket returns a UDP socket that the kernel has connected to remote.
// It gets no other packets, never shows as listening, and the ICMP answer of a
// dead relay's host ends it at once.
//
// net.DialUDP would also connect it, but then refuses writes to an explicit
// address, as quic-go makes them. net.ListenUDP would bind it to every address
// until it is connected.
func connectedSocket(remote *net.UDPAddr) (*net.UDPConn, error) {
	family := unix.AF_INET6
	if remote.IP.To4() != nil {
		family = unix.AF_INET
	}
	fd, err := unix.Socket(family, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		return nil, fmt.Errorf("socket: %w", err)
	}
	file := os.NewFile(uintptr(fd), "udp")
	defer file.Close() // net keeps a duplicate
	if err := unix.Connect(fd, sockaddr(remote)); err != nil {
		return nil, fmt.Errorf("connect %s: %w", remote, err)
	}
	conn, err := net.FilePacketConn(file)
	if err != nil {
		return nil, err
	}
	return conn.(*net.UDPConn), nil
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
