package impair

import (
	"encoding/binary"
	"net"
	"net/netip"
	"unsafe"

	"golang.org/x/sys/unix"
)

// maxSegments is how many datagrams the kernel takes in one write.
const maxSegments = 64

// prepare has the kernel hand over what a sender wrote at once as it was, and
// hold enough of it that a burst isn't lost where nobody counts it.
func prepare(conn *net.UDPConn) error {
	raw, err := conn.SyscallConn()
	if err != nil {
		return err
	}
	return raw.Control(func(s uintptr) {
		fd := int(s)
		// Without them it works as well, only slower.
		_ = unix.SetsockoptInt(fd, unix.IPPROTO_UDP, unix.UDP_GRO, 1)
		for _, option := range []struct{ force, ask int }{
			{unix.SO_RCVBUFFORCE, unix.SO_RCVBUF}, {unix.SO_SNDBUFFORCE, unix.SO_SNDBUF},
		} {
			if unix.SetsockoptInt(fd, unix.SOL_SOCKET, option.force, socketBytes) != nil {
				_ = unix.SetsockoptInt(fd, unix.SOL_SOCKET, option.ask, socketBytes)
			}
		}
	})
}

// segmentOf returns how long each datagram is in what was read at once: all of
// it, unless the control messages say otherwise.
func segmentOf(control []byte, n int) int {
	for len(control) >= unix.SizeofCmsghdr {
		header, data, rest, err := unix.ParseOneSocketControlMessage(control)
		if err != nil {
			break
		}
		if header.Level == unix.IPPROTO_UDP && header.Type == unix.UDP_GRO && len(data) >= 4 {
			return int(binary.NativeEndian.Uint32(data))
		}
		control = rest
	}
	return n
}

// segments returns the control message that has a write taken apart into
// datagrams of so many bytes.
func segments(size int) []byte {
	b := make([]byte, unix.CmsgSpace(2))
	header := (*unix.Cmsghdr)(unsafe.Pointer(&b[0]))
	header.Level, header.Type = unix.IPPROTO_UDP, unix.UDP_SEGMENT
	header.SetLen(unix.CmsgLen(2))
	binary.NativeEndian.PutUint16(b[unix.CmsgLen(0):], uint16(size))
	return b
}

// write writes datagrams of segment bytes each, the last may be shorter. to is
// not valid for a connected socket.
func write(conn *net.UDPConn, to netip.AddrPort, data []byte, segment int) error {
	if len(data) > segment {
		if _, _, err := conn.WriteMsgUDPAddrPort(data, segments(segment), to); err == nil {
			return nil
		}
	}
	var failed error
	for len(data) > 0 {
		n := min(segment, len(data))
		if _, _, err := conn.WriteMsgUDPAddrPort(data[:n], nil, to); err != nil {
			failed = err
		}
		data = data[n:]
	}
	return failed
}
