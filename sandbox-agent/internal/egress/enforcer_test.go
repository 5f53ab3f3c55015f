package egress

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"
	"unsafe"

	"github.com/google/nftables"
	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/protocol"
)

// The roles in which the test binary runs again.
const (
	roleVariable  = "FAIRLEAD_EGRESS_TEST_ROLE"
	roleNamespace = "namespace" // in a network namespace of its own
	roleSender    = "sender"    // as a user, sends what it is told to
)

func TestMain(m *testing.M) {
	switch os.Getenv(roleVariable) {
	case roleNamespace:
		// The variable is not for the children of this one.
		if err := os.Setenv(roleVariable, ""); err != nil {
			panic(err)
		}
		os.Exit(m.Run())
	case roleSender:
		os.Exit(sendAll(os.Stdin, os.Stdout))
	default:
		os.Exit(run(m))
	}
}

// inNamespace runs the calling test again in a network namespace of its own,
// and reports whether it is there.
func inNamespace(t *testing.T) bool {
	t.Helper()
	const there = "FAIRLEAD_EGRESS_TEST_NAMESPACE"
	if os.Getenv(there) != "" {
		return true
	}
	if os.Geteuid() != 0 {
		t.Skip("only root can make a network namespace")
	}
	again := exec.Command(os.Args[0], "-test.run=^"+t.Name()+"$", "-test.v")
	again.Env = append(os.Environ(), "GORACE=atexit_sleep_ms=0", there+"=1", roleVariable+"="+roleNamespace)
	again.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNET}
	out, err := again.CombinedOutput()
	switch {
	case errors.Is(err, syscall.EPERM):
		t.Skip("may not make a network namespace")
	case err != nil:
		t.Fatalf("%v\n%s", err, out)
	case strings.Contains(string(out), "--- SKIP"):
		t.Skipf("in the namespace:\n%s", out)
	}
	return false
}

const (
	confined = 62001
	free     = 62002
)

// TestEnforcer: in a namespace with loopback and one interface to the world, a
// confined user reaches loopback and nothing else, by no protocol; another
// user goes out.
func TestEnforcer(t *testing.T) {
	if !inNamespace(t) {
		return
	}
	world := newWorld(t)
	enforcer := NewEnforcer("sb_test")
	state, why := enforcer.Status()
	if state != protocol.EgressEnforced {
		t.Skip("no nftables:", why)
	}
	if err := enforcer.Add(confined); err != nil {
		t.Fatal(err)
	}
	for _, network := range []string{"udp", "tcp", "icmp"} {
		for _, host := range []string{"192.0.2.77", "2001:db8::77"} {
			world.expect(t, free, network, host, 443, true)
			world.expect(t, confined, network, host, 443, false)
			world.expect(t, confined, network, host, dnsPort, false)
		}
	}
	for _, network := range []string{"tcp4", "tcp6", "udp4", "udp6"} {
		world.expectLoopback(t, free, network, 0, true)
		world.expectLoopback(t, confined, network, 0, true)
		world.expectLoopback(t, free, network, dnsPort, true)
		world.expectLoopback(t, confined, network, dnsPort, false)
	}

	if err := enforcer.Remove(confined); err != nil {
		t.Fatal(err)
	}
	world.expect(t, confined, "udp", "192.0.2.77", 443, true)
	if err := errors.Join(enforcer.Add(confined), enforcer.Add(confined)); err != nil {
		t.Fatal(err)
	}
	world.expect(t, confined, "udp", "192.0.2.77", 443, false)

	// A killed agent leaves its table; the next one of this sandbox replaces
	// it, and another's stands beside it.
	other, next := NewEnforcer("sb_other"), NewEnforcer("sb_test")
	if got := tables(t); got != 2 {
		t.Errorf("%d tables", got)
	}
	world.expect(t, confined, "udp", "192.0.2.77", 443, true)
	if err := other.Add(confined); err != nil {
		t.Fatal(err)
	}
	world.expect(t, confined, "udp", "192.0.2.77", 443, false)
	if err := errors.Join(other.Close(), other.Close(), next.Close()); err != nil {
		t.Fatal(err)
	}
	if got := tables(t); got != 0 {
		t.Errorf("%d tables are left", got)
	}
	if state, why := next.Status(); state != protocol.EgressAdvisory || why == "" {
		t.Errorf("closed: %v %q", state, why)
	}
	world.expect(t, confined, "udp", "192.0.2.77", 443, true)
}

func TestEnforcerRefusesRoot(t *testing.T) {
	enforcer := &Enforcer{why: "a test"}
	for _, uid := range []int{-1, 0, 1 << 32} {
		if enforcer.Add(uid) == nil || enforcer.Remove(uid) == nil {
			t.Errorf("user %d", uid)
		}
	}
	if state, why := enforcer.Status(); state != protocol.EgressAdvisory || why != "a test" {
		t.Errorf("%v %q", state, why)
	}
	if err := errors.Join(enforcer.Add(2000), enforcer.Remove(2000), enforcer.Close()); err != nil {
		t.Error(err)
	}
}

func tables(t *testing.T) int {
	t.Helper()
	conn, err := nftables.New()
	if err != nil {
		t.Fatal(err)
	}
	all, err := conn.ListTables()
	if err != nil {
		t.Fatal(err)
	}
	return len(all)
}

// A world is what lies behind the namespace's one interface: a device that
// shows each packet which is sent there.
type world struct {
	packets chan []byte
	senders map[int]*sender // by user
}

func newWorld(t *testing.T) *world {
	t.Helper()
	up(t, "lo")
	fd, err := unix.Open("/dev/net/tun", unix.O_RDWR|unix.O_CLOEXEC|unix.O_NONBLOCK, 0)
	if err != nil {
		t.Skip("no TUN device:", err)
	}
	request, err := unix.NewIfreq("world0")
	if err != nil {
		t.Fatal(err)
	}
	request.SetUint16(unix.IFF_TUN | unix.IFF_NO_PI)
	if err := unix.IoctlIfreq(fd, unix.TUNSETIFF, request); err != nil {
		t.Skip("no TUN device:", err)
	}
	device := os.NewFile(uintptr(fd), "world0")
	up(t, "world0")
	addresses(t, "world0")
	w := &world{packets: make(chan []byte, 256), senders: map[int]*sender{}}
	go func() { // ends with the device
		for {
			packet := make([]byte, 2048)
			n, err := device.Read(packet)
			if err != nil {
				return
			}
			w.packets <- packet[:n]
		}
	}()
	t.Cleanup(func() { device.Close() })
	return w
}

// expect sends one packet as a user, and after it one as a free user: what
// comes first tells whether the first was let out.
func (w *world) expect(t *testing.T, uid int, network, host string, port int, out bool) {
	t.Helper()
	target := netip.AddrPortFrom(netip.MustParseAddr(host), uint16(port))
	marker := netip.AddrPortFrom(target.Addr().Next(), 9)
	if !out && network == "tcp" {
		network = "tcp!" // which waits to be told
	}
	result := w.sendAs(t, uid, network, target)
	// Of a ping over IPv6 the kernel doesn't say that it was refused.
	if refused := result != ""; refused == out && network != "icmp" {
		t.Errorf("user %d, %s to %v: %q", uid, network, target, result)
	}
	w.sendAs(t, free, "udp", marker)
	deadline := time.After(time.Minute)
	for seen := false; ; {
		select {
		case packet := <-w.packets:
			switch destination(packet) {
			case target.Addr():
				seen = true
			case marker.Addr():
				if seen != out {
					t.Errorf("user %d, %s to %v: left is %v, and it says %q", uid, network, target, seen, result)
				}
				return
			}
		case <-deadline:
			t.Fatalf("user %d, %s to %v: not even the marker arrives", uid, network, target)
		}
	}
}

func destination(packet []byte) netip.Addr {
	switch {
	case len(packet) >= 20 && packet[0]>>4 == 4:
		return netip.AddrFrom4([4]byte(packet[16:20]))
	case len(packet) >= 40 && packet[0]>>4 == 6:
		return netip.AddrFrom16([16]byte(packet[24:40]))
	}
	return netip.Addr{}
}

// expectLoopback sends a datagram or opens a connection to a listener on
// loopback. Port 0 is any but that of the domain name system.
func (w *world) expectLoopback(t *testing.T, uid int, network string, port int, reached bool) {
	t.Helper()
	host := "127.0.0.1"
	if strings.HasSuffix(network, "6") {
		host = "::1"
	}
	address := net.JoinHostPort(host, fmt.Sprint(port))
	got := make(chan struct{}, 1)
	var target string
	if strings.HasPrefix(network, "tcp") {
		l, err := net.Listen(network, address)
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		target = l.Addr().String()
		go func() { // ends with the listener
			if conn, err := l.Accept(); err == nil {
				conn.Close()
				got <- struct{}{}
			}
		}()
	} else {
		l, err := net.ListenPacket(network, address)
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		target = l.LocalAddr().String()
		go func() { // ends with the listener
			if _, _, err := l.ReadFrom(make([]byte, 16)); err == nil {
				got <- struct{}{}
			}
		}()
	}
	// The sender sees the refusal at once; only then there is nothing to wait for.
	result := w.sendAs(t, uid, strings.TrimRight(network, "46"), netip.MustParseAddrPort(target))
	if refused := result != ""; refused == reached {
		t.Errorf("user %d, %s to %s: %q", uid, network, target, result)
		return
	}
	if reached {
		<-got
	}
}

// sendAs has a user's sender send to a target, and returns what it says:
// nothing when all went well or nothing was heard.
func (w *world) sendAs(t *testing.T, uid int, network string, target netip.AddrPort) string {
	t.Helper()
	s := w.senders[uid]
	if s == nil {
		s = newSender(t, uid)
		w.senders[uid] = s
	}
	if _, err := fmt.Fprintln(s.orders, network, target); err != nil {
		t.Fatal(err)
	}
	line, err := s.results.ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSuffix(line, "\n")
}

// A sender is a process of a user.
type sender struct {
	orders  io.Writer
	results *bufio.Reader
}

func newSender(t *testing.T, uid int) *sender {
	t.Helper()
	cmd := exec.Command("/proc/self/exe")
	cmd.Env = []string{"GORACE=atexit_sleep_ms=0", roleVariable + "=" + roleSender}
	cmd.Stderr = os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uint32(uid), Gid: uint32(uid)}}
	orders, err1 := cmd.StdinPipe()
	results, err2 := cmd.StdoutPipe()
	if err := errors.Join(err1, err2, cmd.Start()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		orders.Close()
		if err := cmd.Wait(); err != nil {
			t.Error("sender:", err)
		}
	})
	return &sender{orders, bufio.NewReader(results)}
}

// sendAll is the sender: it reads orders, a network and a target in each line,
// and answers each with a line.
func sendAll(orders io.Reader, results io.Writer) int {
	for lines := bufio.NewScanner(orders); lines.Scan(); {
		network, target, _ := strings.Cut(lines.Text(), " ")
		if err := send(network, target); err != nil {
			fmt.Fprint(results, err)
		}
		fmt.Fprintln(results)
	}
	return 0
}

// send sends one packet. It doesn't wait for answers that won't come: packets
// that leave go to a device that is silent.
func send(network, text string) error {
	target := netip.MustParseAddrPort(text)
	domain, address := unix.AF_INET, unix.Sockaddr(&unix.SockaddrInet4{Addr: [4]byte(target.Addr().AsSlice()[:4]), Port: int(target.Port())})
	echo, icmp := byte(8), unix.IPPROTO_ICMP
	if target.Addr().Is6() {
		domain, address = unix.AF_INET6, &unix.SockaddrInet6{Addr: target.Addr().As16(), Port: int(target.Port())}
		echo, icmp = 128, unix.IPPROTO_ICMPV6
	}
	switch network {
	case "tcp":
		return connect(domain, address, target.Addr().IsLoopback())
	case "tcp!":
		return connect(domain, address, true)
	case "udp":
		return datagram(domain, 0, address, []byte("out"))
	default:
		ping := make([]byte, 16)
		ping[0] = echo
		return datagram(domain, icmp, address, ping)
	}
}

func connect(domain int, address unix.Sockaddr, wait bool) error {
	kind := unix.SOCK_STREAM
	if !wait {
		kind |= unix.SOCK_NONBLOCK
	}
	fd, err := unix.Socket(domain, kind, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	if err := unix.Connect(fd, address); err != nil && !errors.Is(err, unix.EINPROGRESS) {
		return err
	}
	return nil
}

func datagram(domain, protocol int, address unix.Sockaddr, data []byte) error {
	fd, err := unix.Socket(domain, unix.SOCK_DGRAM, protocol)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	if err := unix.Sendto(fd, data, 0, address); err != nil {
		return err
	}
	_, err = unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_ERROR)
	return err
}

// up brings an interface up.
func up(t *testing.T, name string) {
	t.Helper()
	request, err := unix.NewIfreq(name)
	if err != nil {
		t.Fatal(err)
	}
	request.SetUint16(unix.IFF_UP | unix.IFF_RUNNING)
	ioctl(t, unix.AF_INET, unix.SIOCSIFFLAGS, request)
}

// addresses puts an interface into the networks of the test, in which all
// other addresses are then behind it, and lets all users ping.
func addresses(t *testing.T, name string) {
	t.Helper()
	if err := os.WriteFile("/proc/sys/net/ipv4/ping_group_range", []byte("0 2147483647"), 0); err != nil {
		t.Fatal(err)
	}
	for _, row := range []struct {
		request uint
		address [4]byte
	}{{unix.SIOCSIFADDR, [4]byte{192, 0, 2, 1}}, {unix.SIOCSIFNETMASK, [4]byte{255, 255, 255, 0}}} {
		request, err := unix.NewIfreq(name)
		if err != nil {
			t.Fatal(err)
		}
		if err := request.SetInet4Addr(row.address[:]); err != nil {
			t.Fatal(err)
		}
		ioctl(t, unix.AF_INET, row.request, request)
	}
	link, err := net.InterfaceByName(name)
	if err != nil {
		t.Fatal(err)
	}
	request := make([]byte, 24) // struct in6_ifreq: address, length of the prefix, index
	copy(request, netip.MustParseAddr("2001:db8::1").AsSlice())
	binary.NativeEndian.PutUint32(request[16:], 64)
	binary.NativeEndian.PutUint32(request[20:], uint32(link.Index))
	fd, err := unix.Socket(unix.AF_INET6, unix.SOCK_DGRAM, 0)
	if err != nil {
		t.Skip("no IPv6:", err)
	}
	defer unix.Close(fd)
	if _, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(fd), unix.SIOCSIFADDR, uintptr(unsafe.Pointer(&request[0]))); errno != 0 {
		t.Skip("no IPv6:", errno)
	}
}

func ioctl(t *testing.T, domain int, number uint, request *unix.Ifreq) {
	t.Helper()
	fd, err := unix.Socket(domain, unix.SOCK_DGRAM, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	if err := unix.IoctlIfreq(fd, number, request); err != nil {
		t.Fatal(err)
	}
}
