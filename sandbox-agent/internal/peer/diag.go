package peer

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"

	"golang.org/x/sys/unix"
)

// Sizes of what sock_diag(7) speaks, in bytes.
const (
	headerBytes  = 16 // struct nlmsghdr
	requestBytes = 56 // struct inet_diag_req_v2
	answerBytes  = 72 // struct inet_diag_msg
	idBytes      = 48 // struct inet_diag_sockid
	bufferBytes  = 32 << 10
	waitSeconds  = 2
	// maxAnswers bounds the sockets of one dump.
	maxAnswers = 4096
)

// diagOne asks for the one socket from local to remote.
func diagOne(local, remote netip.AddrPort) (socket, error) {
	sockets, err := ask(request(local, remote, 0, false))
	switch {
	case errors.Is(err, unix.ENOENT):
		return socket{}, ErrUnknown
	case err != nil:
		return socket{}, fmt.Errorf("sock_diag: %w", err)
	case len(sockets) != 1:
		return socket{}, ErrUnknown
	}
	return sockets[0], nil
}

// diagListeners asks for all that listens on port.
func diagListeners(port uint16) ([]socket, error) {
	var all []socket
	for _, wildcard := range []netip.Addr{netip.IPv4Unspecified(), netip.IPv6Unspecified()} {
		at := netip.AddrPortFrom(wildcard, port)
		sockets, err := ask(request(at, netip.AddrPortFrom(wildcard, 0), 1<<tcpListen, true))
		if err != nil {
			return nil, fmt.Errorf("sock_diag: %w", err)
		}
		for _, s := range sockets {
			if s.state == tcpListen && s.local.Port() == port {
				all = append(all, s)
			}
		}
	}
	return all, nil
}

// request builds a message. Where all is set, the addresses name the family
// and the ports filter.
func request(local, remote netip.AddrPort, states uint32, all bool) []byte {
	b := make([]byte, headerBytes+requestBytes)
	native, network := binary.NativeEndian, binary.BigEndian
	flags := uint16(unix.NLM_F_REQUEST)
	if all {
		flags |= unix.NLM_F_DUMP
	}
	native.PutUint32(b[0:], uint32(len(b)))
	native.PutUint16(b[4:], unix.SOCK_DIAG_BY_FAMILY)
	native.PutUint16(b[6:], flags)
	native.PutUint32(b[8:], 1) // sequence
	r := b[headerBytes:]
	r[0] = unix.AF_INET6
	if local.Addr().Is4() {
		r[0] = unix.AF_INET
	}
	r[1] = unix.IPPROTO_TCP
	native.PutUint32(r[4:], states)
	id := r[8:]
	network.PutUint16(id[0:], local.Port())
	network.PutUint16(id[2:], remote.Port())
	copy(id[4:20], local.Addr().AsSlice())
	copy(id[20:36], remote.Addr().AsSlice())
	native.PutUint64(id[40:], ^uint64(0)) // any cookie
	return b
}

// ask sends one request and reads its answers.
func ask(request []byte) ([]socket, error) {
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, unix.NETLINK_SOCK_DIAG)
	if err != nil {
		return nil, err
	}
	defer unix.Close(fd)
	wait := unix.Timeval{Sec: waitSeconds}
	if err := unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &wait); err != nil {
		return nil, err
	}
	if err := unix.Sendto(fd, request, 0, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}); err != nil {
		return nil, err
	}
	dump := binary.NativeEndian.Uint16(request[6:])&unix.NLM_F_DUMP != 0
	buf := make([]byte, bufferBytes)
	var sockets []socket
	for {
		n, _, err := unix.Recvfrom(fd, buf, 0)
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if err != nil {
			return nil, err
		}
		got, done, err := parseMessages(buf[:n])
		if err != nil {
			return nil, err
		}
		sockets = append(sockets, got...)
		if done || !dump {
			return sockets, nil
		}
		if len(sockets) > maxAnswers {
			return nil, errors.New("too many sockets")
		}
	}
}

var errAnswer = errors.New("not an answer of sock_diag")

// parseMessages reads the messages of one datagram; done is set by the last
// message of a dump. An error that the kernel reports is a unix.Errno.
func parseMessages(b []byte) (sockets []socket, done bool, err error) {
	native := binary.NativeEndian
	for len(b) > 0 {
		if len(b) < headerBytes {
			return nil, false, errAnswer
		}
		size := int(native.Uint32(b))
		if size < headerBytes || size > len(b) {
			return nil, false, errAnswer
		}
		body := b[headerBytes:size]
		switch native.Uint16(b[4:]) {
		case unix.NLMSG_DONE:
			return sockets, true, nil
		case unix.NLMSG_ERROR:
			if len(body) < 4 {
				return nil, false, errAnswer
			}
			if code := -int32(native.Uint32(body)); code > 0 {
				return nil, false, unix.Errno(code)
			}
		case unix.SOCK_DIAG_BY_FAMILY:
			s, err := parseAnswer(body)
			if err != nil {
				return nil, false, err
			}
			sockets = append(sockets, s)
		}
		b = b[min(len(b), (size+3)&^3):]
	}
	return sockets, false, nil
}

func parseAnswer(b []byte) (socket, error) {
	if len(b) < answerBytes {
		return socket{}, errAnswer
	}
	native, network := binary.NativeEndian, binary.BigEndian
	id, rest := b[4:4+idBytes], b[4+idBytes:]
	parse := func(at int) netip.Addr {
		if int(b[0]) == unix.AF_INET {
			return netip.AddrFrom4([4]byte(id[at : at+4]))
		}
		return netip.AddrFrom16([16]byte(id[at : at+16])).Unmap()
	}
	if f := int(b[0]); f != unix.AF_INET && f != unix.AF_INET6 {
		return socket{}, errAnswer
	}
	return socket{
		local:  netip.AddrPortFrom(parse(4), network.Uint16(id[0:])),
		remote: netip.AddrPortFrom(parse(20), network.Uint16(id[2:])),
		state:  b[1],
		uid:    native.Uint32(rest[12:]),
		inode:  native.Uint32(rest[16:]),
	}, nil
}
