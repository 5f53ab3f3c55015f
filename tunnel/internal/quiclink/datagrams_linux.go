package quiclink

import (
	"encoding/binary"
	"errors"
	"io"
	"net"
	"net/netip"
	"os"
	"strconv"
	"sync"
	"syscall"
	"unsafe"

	"golang.org/x/net/ipv4"
	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/deploy/program/hops"
	"github.com/fairlead/fairlead/tunnel/quiet"
)

const (
	// mostAtOnce is the most that the kernel hands over at once, in bytes.
	mostAtOnce = 64 << 10
	// controlBytes is room for the control messages of what it hands over.
	controlBytes = 128
)

// datagrams is a UDP socket from which a burst of one sender is read at once (UDP
// GRO), and of whose calls the scheduler isn't told.
type datagrams struct {
	*net.UDPConn // the concrete type: quic-go checks for batches and offloads
	raw          syscall.RawConn
	family       uint16

	// Owned by the one goroutine of quic-go that reads.
	in     *burst // what isn't handed on yet; nil: nothing
	failed error
	last   *net.UDPAddr // the latest sender

	sends sync.Pool // of *sending
	joins *joining  // static; nil: each burst is sent as it is
}

func newDatagrams(conn *net.UDPConn) (*datagrams, error) {
	raw, err := conn.SyscallConn()
	if err != nil {
		return nil, err
	}
	d := &datagrams{UDPConn: conn, raw: raw}
	d.sends.New = func() any { return newSending() }
	var failed error
	err = raw.Control(func(fd uintptr) {
		var domain int
		domain, failed = unix.GetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_DOMAIN)
		d.family = uint16(domain)
		_ = unix.SetsockoptInt(int(fd), unix.IPPROTO_UDP, unix.UDP_GRO, 1) // without it works as well, only slower
	})
	return d, errors.Join(err, failed)
}

// bursts keeps what is read into: an idle socket has none.
var bursts = sync.Pool{New: func() any { return newBurst() }}

// A burst is what the kernel handed over at once: datagrams of one sender, of the
// same length but for the last.
type burst struct {
	data    [mostAtOnce]byte
	control [controlBytes]byte
	name    unix.RawSockaddrInet6
	vector  unix.Iovec
	header  unix.Msghdr

	rest    []byte // of data
	segment int
	said    int // bytes of control
}

func newBurst() *burst {
	b := &burst{}
	b.vector.Base = &b.data[0]
	b.vector.SetLen(len(b.data))
	b.header.Name = (*byte)(unsafe.Pointer(&b.name))
	b.header.Iov = &b.vector
	b.header.SetIovlen(1)
	b.header.Control = &b.control[0]
	return b
}

// receive reads a burst.
func (b *burst) receive(fd uintptr) error {
	b.header.Namelen = unix.SizeofSockaddrInet6
	b.header.SetControllen(len(b.control))
	n, err := quiet.Receive(fd, &b.header)
	if err != nil {
		return err
	}
	b.said = min(int(b.header.Controllen), len(b.control))
	b.rest, b.segment = b.data[:n], segmentOf(b.control[:b.said], n)
	return nil
}

// segmentOf returns how long each datagram is: all of it, unless the control
// messages say otherwise.
func segmentOf(control []byte, n int) int {
	for len(control) >= unix.SizeofCmsghdr {
		header, data, rest, err := unix.ParseOneSocketControlMessage(control)
		if err != nil {
			break
		}
		if header.Level == unix.IPPROTO_UDP && header.Type == unix.UDP_GRO && len(data) >= 4 {
			if segment := int(binary.NativeEndian.Uint32(data)); segment > 0 {
				return segment
			}
		}
		control = rest
	}
	return max(n, 1)
}

// ReadBatch hands on datagrams, as quic-go wants them.
func (d *datagrams) ReadBatch(messages []ipv4.Message, _ int) (int, error) {
	if len(messages) == 0 {
		return 0, nil
	}
	if d.in == nil {
		if err := d.await(); err != nil {
			return 0, err
		}
	}
	from, n := d.sender(), 0
	for n < len(messages) && (n == 0 || len(d.in.rest) > 0) {
		m := &messages[n]
		one := d.in.rest[:min(d.in.segment, len(d.in.rest))]
		d.in.rest = d.in.rest[len(one):]
		m.N = copy(m.Buffers[0], one) // a datagram that is too long is no packet of ours
		m.NN = copy(m.OOB, d.in.control[:d.in.said])
		m.Addr, m.Flags = from, 0
		n++
	}
	if len(d.in.rest) == 0 {
		bursts.Put(d.in)
		d.in = nil
	}
	return n, nil
}

// await waits for a burst.
func (d *datagrams) await() error {
	if err := d.raw.Read(d.receive); err != nil {
		return err
	}
	hops.Pass(hops.PacketIn)
	if d.failed != nil {
		return &net.OpError{Op: "read", Net: "udp", Source: d.LocalAddr(), Err: os.NewSyscallError("recvmsg", d.failed)}
	}
	return nil
}

// receive tries to read a burst, and reports whether there is nothing to wait for.
func (d *datagrams) receive(fd uintptr) bool {
	b := bursts.Get().(*burst)
	if d.failed = b.receive(fd); d.failed != nil {
		bursts.Put(b)
		return !errors.Is(d.failed, unix.EAGAIN)
	}
	d.in = b
	return true
}

// sender returns the address of the burst's sender.
func (d *datagrams) sender() *net.UDPAddr {
	addr := addressOf(&d.in.name)
	if d.last == nil || d.last.Port != int(addr.Port()) || d.last.Zone != addr.Addr().Zone() || !d.last.IP.Equal(addr.Addr().AsSlice()) {
		d.last = net.UDPAddrFromAddrPort(addr)
	}
	return d.last
}

// addressOf is a socket's address as package net has it.
func addressOf(name *unix.RawSockaddrInet6) netip.AddrPort {
	port := binary.BigEndian.Uint16((*[2]byte)(unsafe.Pointer(&name.Port))[:])
	if name.Family == unix.AF_INET {
		v4 := (*unix.RawSockaddrInet4)(unsafe.Pointer(name))
		return netip.AddrPortFrom(netip.AddrFrom4(v4.Addr), port)
	}
	addr := netip.AddrFrom16(name.Addr)
	if name.Scope_id != 0 {
		addr = addr.WithZone(strconv.FormatUint(uint64(name.Scope_id), 10))
	}
	return netip.AddrPortFrom(addr, port)
}

// A sending is one call of WriteMsgUDP.
type sending struct {
	name   unix.RawSockaddrInet6
	vector unix.Iovec
	header unix.Msghdr
	failed error
	n      int
}

func newSending() *sending {
	s := &sending{}
	s.header.Name = (*byte)(unsafe.Pointer(&s.name))
	s.header.Iov = &s.vector
	s.header.SetIovlen(1)
	return s
}

// try sends, and reports whether there is nothing to wait for.
func (s *sending) try(fd uintptr) bool {
	s.n, s.failed = quiet.Send(fd, &s.header)
	return !errors.Is(s.failed, unix.EAGAIN)
}

// join has bursts joined from now on: all are of one connection.
func (d *datagrams) join() { d.joins = &joining{to: d} }

// WriteMsgUDP implements quic.OOBCapablePacketConn.
func (d *datagrams) WriteMsgUDP(b, oob []byte, addr *net.UDPAddr) (n, oobn int, err error) {
	if d.joins != nil && addr != nil {
		return d.joins.write(b, oob, addr)
	}
	return d.send(b, oob, addr)
}

// send sends at once.
func (d *datagrams) send(b, oob []byte, addr *net.UDPAddr) (n, oobn int, err error) {
	if len(b) == 0 || addr == nil || addr.Zone != "" { // rare: the zone must be looked up
		return d.UDPConn.WriteMsgUDP(b, oob, addr)
	}
	s := d.sends.Get().(*sending)
	defer s.release(d)
	if !s.to(d.family, addr) {
		return d.UDPConn.WriteMsgUDP(b, oob, addr)
	}
	s.vector.Base = unsafe.SliceData(b)
	s.vector.SetLen(len(b))
	s.header.Control = unsafe.SliceData(oob)
	s.header.SetControllen(len(oob))
	hops.Pass(hops.PacketOut)
	if err := d.raw.Write(s.try); err != nil {
		return 0, 0, err
	}
	if s.failed != nil {
		return 0, 0, &net.OpError{Op: "write", Net: "udp", Source: d.LocalAddr(), Addr: addr, Err: os.NewSyscallError("sendmsg", s.failed)}
	}
	if s.n != len(b) {
		return s.n, len(oob), io.ErrShortWrite
	}
	return s.n, len(oob), nil
}

// release keeps nothing of the caller's.
func (s *sending) release(d *datagrams) {
	s.vector.Base, s.header.Control, s.failed = nil, nil, nil
	d.sends.Put(s)
}

// to sets where it goes; false if a socket of the family can't send there.
func (s *sending) to(family uint16, addr *net.UDPAddr) bool {
	v4 := addr.IP.To4()
	s.name = unix.RawSockaddrInet6{Family: family}
	binary.BigEndian.PutUint16((*[2]byte)(unsafe.Pointer(&s.name.Port))[:], uint16(addr.Port))
	switch {
	case family == unix.AF_INET && v4 != nil:
		copy((*unix.RawSockaddrInet4)(unsafe.Pointer(&s.name)).Addr[:], v4)
		s.header.Namelen = unix.SizeofSockaddrInet4
	case family == unix.AF_INET6 && len(addr.IP) > 0:
		copy(s.name.Addr[:], addr.IP.To16())
		s.header.Namelen = unix.SizeofSockaddrInet6
	default:
		return false
	}
	return true
}
