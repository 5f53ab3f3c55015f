package peer

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
	"runtime"
	"strings"
	"syscall"
	"testing"

	"go.uber.org/goleak"
	"golang.org/x/sys/unix"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// stranger is a uid that nobody has.
const stranger = 54321

func listen(t *testing.T, network, address string) net.Listener {
	t.Helper()
	l, err := net.Listen(network, address)
	if err != nil {
		t.Skipf("no listener on %s: %v", address, err)
	}
	t.Cleanup(func() { l.Close() })
	return l
}

// pair returns both ends of a connection to l.
func pair(t *testing.T, l net.Listener) (client, server net.Conn) {
	t.Helper()
	client, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { client.Close() })
	server, err = l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { server.Close() })
	return client, server
}

func ends(c net.Conn) (local, remote netip.AddrPort) {
	return c.LocalAddr().(*net.TCPAddr).AddrPort(), c.RemoteAddr().(*net.TCPAddr).AddrPort()
}

func TestUIDOfOurselves(t *testing.T) {
	for _, c := range []struct{ network, address string }{
		{"tcp4", "127.0.0.1:0"}, {"tcp6", "[::1]:0"}, {"tcp4", "127.0.0.2:0"},
	} {
		_, server := pair(t, listen(t, c.network, c.address))
		if uid, err := UID(ends(server)); err != nil || uid != os.Getuid() {
			t.Errorf("%s: uid %d, %v", c.address, uid, err)
		}
	}
}

// TestUIDThroughBothFamilies has an IPv4 client at a listener of both.
func TestUIDThroughBothFamilies(t *testing.T) {
	l := listen(t, "tcp", ":0")
	client, err := net.Dial("tcp4", fmt.Sprintf("127.0.0.1:%d", l.Addr().(*net.TCPAddr).Port))
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	server, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer server.Close()
	if uid, err := UID(ends(server)); err != nil || uid != os.Getuid() {
		t.Errorf("uid %d, %v", uid, err)
	}
}

func TestUIDOfAnotherUser(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("needs root to become somebody else")
	}
	bash, err := exec.LookPath("bash")
	if err != nil {
		t.Skip("no bash")
	}
	l := listen(t, "tcp4", "127.0.0.1:0")
	child := exec.Command(bash, "-c", fmt.Sprintf("exec 3<>/dev/tcp/127.0.0.1/%d; read line", l.Addr().(*net.TCPAddr).Port))
	child.Dir = "/"
	child.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: stranger, Gid: stranger}}
	stdin, err := child.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := child.Start(); err != nil {
		t.Fatal(err)
	}
	server, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer server.Close()
	if uid, err := UID(ends(server)); err != nil || uid != stranger {
		t.Errorf("uid %d, %v", uid, err)
	}
	local, remote := ends(server)
	all, err := procSockets(func(s socket) bool { return s.check(remote, local) == nil })
	if err != nil || len(all) != 1 || all[0].uid != stranger {
		t.Errorf("/proc: %+v, %v", all, err)
	}
	stdin.Close()
	child.Wait()
}

// TestUIDIsNeverGuessed: the kernel shows uid 0 for a socket without owner.
func TestUIDIsNeverGuessed(t *testing.T) {
	l := listen(t, "tcp4", "127.0.0.1:0")
	client, server := pair(t, l)
	local, remote := ends(server)
	client.Close()
	if _, err := io.ReadAll(server); err != nil {
		t.Fatal(err)
	}
	if uid, err := UID(local, remote); !errors.Is(err, ErrUnknown) {
		t.Errorf("closed by the peer: uid %d, %v", uid, err)
	}
	server.Close()
	if uid, err := UID(local, remote); !errors.Is(err, ErrUnknown) {
		t.Errorf("TIME_WAIT: uid %d, %v", uid, err)
	}
	// The peer's address is that of a listener, which the kernel would show.
	other := listen(t, "tcp4", "127.0.0.1:0").Addr().(*net.TCPAddr).AddrPort()
	if uid, err := UID(l.Addr().(*net.TCPAddr).AddrPort(), other); !errors.Is(err, ErrUnknown) {
		t.Errorf("a listener: uid %d, %v", uid, err)
	}
	far := netip.MustParseAddrPort("192.0.2.1:80")
	if uid, err := UID(far, far); err == nil {
		t.Errorf("not on loopback: uid %d", uid)
	}
}

// listenAs listens with a socket of another user: a socket belongs to the file
// system uid of the thread that makes it.
func listenAs(t *testing.T, uid int, address string) net.Listener {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("needs root to become somebody else")
	}
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if err := unix.Setfsuid(uid); err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", address)
	if resetErr := unix.Setfsuid(0); resetErr != nil {
		t.Fatal(resetErr)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	return l
}

func TestListener(t *testing.T) {
	for _, address := range []string{"127.0.0.1:0", "0.0.0.0:0", "[::]:0", "[::1]:0"} {
		port := listen(t, "tcp", address).Addr().(*net.TCPAddr).Port
		if uid, err := Listener(port); err != nil || uid != os.Getuid() {
			t.Errorf("%s: uid %d, %v", address, uid, err)
		}
	}
	// Taken, so that nobody else listens there meanwhile.
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	if err := unix.Bind(fd, &unix.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}); err != nil {
		t.Fatal(err)
	}
	at, err := unix.Getsockname(fd)
	if err != nil {
		t.Fatal(err)
	}
	if uid, err := Listener(at.(*unix.SockaddrInet4).Port); !errors.Is(err, ErrUnknown) {
		t.Errorf("nobody: uid %d, %v", uid, err)
	}
	for _, bad := range []int{0, -1, 65536} {
		if _, err := Listener(bad); err == nil {
			t.Errorf("port %d", bad)
		}
	}
}

func TestListenerOfAnotherUser(t *testing.T) {
	l := listenAs(t, stranger, "127.0.0.1:0")
	port := l.Addr().(*net.TCPAddr).Port
	if uid, err := Listener(port); err != nil || uid != stranger {
		t.Errorf("uid %d, %v", uid, err)
	}
	all, err := procSockets(func(s socket) bool { return s.state == tcpListen && int(s.local.Port()) == port })
	if err != nil || len(all) != 1 || all[0].uid != stranger {
		t.Errorf("/proc: %+v, %v", all, err)
	}
	// Another address of loopback is another listener.
	listen(t, "tcp", fmt.Sprintf("127.0.0.2:%d", port))
	if uid, err := Listener(port); err != nil || uid != stranger {
		t.Errorf("beside 127.0.0.2: uid %d, %v", uid, err)
	}
}

func TestChoose(t *testing.T) {
	at := func(addr string, uid uint32) socket {
		return socket{local: netip.AddrPortFrom(netip.MustParseAddr(addr), 80), state: tcpListen, uid: uid, inode: 1}
	}
	for _, c := range []struct {
		name string
		all  []socket
		want int
		err  error
	}{
		{"nobody", nil, 0, ErrUnknown},
		{"address first", []socket{at("0.0.0.0", 1), at("127.0.0.1", 2)}, 2, nil},
		{"wildcard", []socket{at("127.0.0.9", 1), at("0.0.0.0", 2)}, 2, nil},
		{"IPv4 first", []socket{at("::1", 1), at("0.0.0.0", 2)}, 2, nil},
		{"both families", []socket{at("::", 3)}, 3, nil},
		{"IPv6 alone", []socket{at("::1", 3)}, 3, nil},
		{"one user twice", []socket{at("127.0.0.1", 3), at("127.0.0.1", 3)}, 3, nil},
		{"two users", []socket{at("127.0.0.1", 3), at("127.0.0.1", 4)}, 0, ErrSeveral},
		{"either of two", []socket{at("::", 3), at("::1", 4)}, 0, ErrSeveral},
		{"without inode", []socket{{local: netip.MustParseAddrPort("127.0.0.1:80"), state: tcpListen}}, 0, ErrUnknown},
	} {
		if uid, err := choose(c.all); uid != c.want || !errors.Is(err, c.err) {
			t.Errorf("%s: uid %d, %v", c.name, uid, err)
		}
	}
}

func FuzzParseMessages(f *testing.F) {
	answer := make([]byte, headerBytes+answerBytes)
	binary.NativeEndian.PutUint32(answer, uint32(len(answer)))
	binary.NativeEndian.PutUint16(answer[4:], unix.SOCK_DIAG_BY_FAMILY)
	answer[headerBytes] = unix.AF_INET
	f.Add(answer)
	f.Add(answer[:40])
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, b []byte) {
		sockets, _, err := parseMessages(b)
		if err == nil && len(sockets)*(headerBytes+answerBytes) > len(b)+headerBytes {
			t.Fatalf("%d sockets out of %d bytes", len(sockets), len(b))
		}
	})
}

func FuzzParseProc(f *testing.F) {
	f.Add("heading\n   0: 0100007F:1F90 00000000:0000 0A 00000000:00000000 00:00000000 00000000  1000        0 640 1 0 100 0 0 10 0\n")
	f.Fuzz(func(t *testing.T, text string) {
		all, err := parseProc(strings.NewReader(text), func(socket) bool { return true })
		if err == nil && len(all) > strings.Count(text, "\n")+1 {
			t.Fatal("more sockets than lines")
		}
	})
}

func TestParseProcLine(t *testing.T) {
	file, err := os.Open("/proc/net/tcp6")
	if err == nil {
		defer file.Close()
		lines := bufio.NewScanner(file)
		lines.Scan()
		for lines.Scan() {
			if _, err := parseProcLine(lines.Text()); err != nil {
				t.Errorf("%q: %v", lines.Text(), err)
			}
		}
	}
	if binary.NativeEndian.Uint16([]byte{1, 0}) != 1 {
		t.Skip("the line below is little-endian")
	}
	s, err := parseProcLine("0: 00000000000000000000000001000000:1F90 0100007F:0050 01 00000000:00000000 00:00000000 00000000  1000        0 640")
	if err != nil || s.local.String() != "[::1]:8080" || s.remote.String() != "127.0.0.1:80" || s.uid != 1000 || s.inode != 640 {
		t.Errorf("%+v, %v", s, err)
	}
}

func BenchmarkUID(b *testing.B) {
	l, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		b.Fatal(err)
	}
	defer l.Close()
	client, err := net.Dial("tcp4", l.Addr().String())
	if err != nil {
		b.Fatal(err)
	}
	defer client.Close()
	server, err := l.Accept()
	if err != nil {
		b.Fatal(err)
	}
	defer server.Close()
	for b.Loop() {
		if _, err := UID(ends(server)); err != nil {
			b.Fatal(err)
		}
	}
}
