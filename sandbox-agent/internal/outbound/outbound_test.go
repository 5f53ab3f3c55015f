package outbound

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/sandbox-agent/internal/hostname"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// names is a Resolver; each lookup takes the next answer of a name, the last
// one for good.
type names struct {
	mu      sync.Mutex
	answers map[string][]string
	asked   int
}

func (n *names) LookupNetIP(_ context.Context, _, host string) ([]netip.Addr, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.asked++
	answers := n.answers[host]
	if len(answers) == 0 {
		return nil, &net.DNSError{Err: "no such host", Name: host, IsNotFound: true}
	}
	if len(answers) > 1 {
		n.answers[host] = answers[1:]
	}
	var addrs []netip.Addr
	for text := range strings.FieldsSeq(answers[0]) {
		addrs = append(addrs, netip.MustParseAddr(text))
	}
	return addrs, nil
}

// dials records what is dialled.
type dials struct {
	mu    sync.Mutex
	addrs []string
	fail  map[string]error
	hang  map[string]bool
}

func (d *dials) dial(ctx context.Context, addr netip.AddrPort) (net.Conn, error) {
	d.mu.Lock()
	d.addrs = append(d.addrs, addr.String())
	d.mu.Unlock()
	if d.hang[addr.Addr().String()] {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	if err := d.fail[addr.Addr().String()]; err != nil {
		return nil, err
	}
	near, far := net.Pipe()
	far.Close()
	return near, nil
}

func host(t *testing.T, text string) hostname.Host {
	t.Helper()
	h, err := hostname.ParseName(text)
	if err != nil {
		t.Fatal(err)
	}
	return h
}

func TestDialHost(t *testing.T) {
	for _, c := range []struct {
		name, host string
		answer     string
		static     []string
		want       string // dialled
		kind       protocol.Kind
	}{
		{name: "public", host: "a.example", answer: "8.8.8.8", want: "8.8.8.8:443"},
		{name: "public v6", host: "a.example", answer: "2606:4700::1", want: "[2606:4700::1]:443"},
		{name: "mapped", host: "a.example", answer: "::ffff:8.8.8.8", want: "8.8.8.8:443"},
		{name: "literal", host: "8.8.4.4", want: "8.8.4.4:443"},
		{name: "private", host: "a.example", answer: "10.0.0.1", kind: protocol.KindForbidden},
		{name: "loopback", host: "a.example", answer: "127.0.0.1 ::1", kind: protocol.KindForbidden},
		{name: "metadata", host: "a.example", answer: "169.254.169.254", kind: protocol.KindForbidden},
		{name: "own", host: "a.example", answer: "9.9.9.9", kind: protocol.KindForbidden},
		{name: "only the public one of two", host: "a.example", answer: "127.0.0.1 8.8.8.8", want: "8.8.8.8:443"},
		{name: "literal loopback", host: "127.0.0.1", kind: protocol.KindForbidden},
		{name: "literal spelled otherwise", host: "0x7f.1", kind: protocol.KindForbidden},
		{name: "literal short", host: "127.1", kind: protocol.KindForbidden},
		{name: "literal mapped", host: "::ffff:127.0.0.1", kind: protocol.KindForbidden},
		{name: "localhost with a dot", host: "localhost.", answer: "127.0.0.1", kind: protocol.KindForbidden},
		{name: "unknown", host: "b.example", kind: protocol.KindUpstream},
		{name: "static", host: "A.example.", static: []string{"a.example=127.0.0.1:8443"}, want: "127.0.0.1:8443"},
		{name: "static, same port", host: "a.example", static: []string{"a.example=10.1.2.3"}, want: "10.1.2.3:443"},
		{name: "static port first", host: "a.example", static: []string{"a.example=10.0.0.1", "a.example:443=10.0.0.2:1"}, want: "10.0.0.2:1"},
		{name: "static of another port", host: "a.example", answer: "8.8.8.8", static: []string{"a.example:80=10.0.0.1"}, want: "8.8.8.8:443"},
		{name: "static of another host", host: "x.a.example", answer: "", static: []string{"a.example=10.0.0.1"}, kind: protocol.KindUpstream},
	} {
		t.Run(c.name, func(t *testing.T) {
			static, err := ParseStatic(c.static)
			if err != nil {
				t.Fatal(err)
			}
			answers := map[string][]string{}
			if c.answer != "" {
				answers[host(t, c.host).Name] = []string{c.answer}
			}
			record := &dials{}
			d := &Dialer{
				Static: static, Resolver: &names{answers: answers}, dial: record.dial,
				own: func() []netip.Addr { return []netip.Addr{netip.MustParseAddr("9.9.9.9")} },
			}
			conn, err := d.DialHost(t.Context(), host(t, c.host), 443)
			if c.want == "" {
				if err == nil || protocol.KindOf(err) != c.kind {
					t.Fatalf("%v, want %s", err, c.kind)
				}
				if len(record.addrs) != 0 {
					t.Fatalf("dialled %v", record.addrs)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			conn.Close()
			if !slices.Equal(record.addrs, []string{c.want}) {
				t.Errorf("dialled %v, want %s", record.addrs, c.want)
			}
		})
	}
}

// TestCase63Rebinding: the answer that was judged is the one that is dialled,
// whatever the name resolves to a moment later.
func TestCase63Rebinding(t *testing.T) {
	resolver := &names{answers: map[string][]string{"a.example": {"8.8.8.8", "127.0.0.1"}}}
	record := &dials{}
	d := &Dialer{Resolver: resolver, dial: record.dial}
	conn, err := d.DialHost(t.Context(), host(t, "a.example"), 80)
	if err != nil {
		t.Fatal(err)
	}
	conn.Close()
	if resolver.asked != 1 || !slices.Equal(record.addrs, []string{"8.8.8.8:80"}) {
		t.Errorf("resolved %d times, dialled %v", resolver.asked, record.addrs)
	}
	if _, err := d.DialHost(t.Context(), host(t, "a.example"), 80); protocol.KindOf(err) != protocol.KindForbidden {
		t.Errorf("after rebinding: %v", err)
	}
	if len(record.addrs) != 1 {
		t.Errorf("dialled %v", record.addrs)
	}
}

func TestFallback(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		record := &dials{hang: map[string]bool{"2606::1": true}, fail: map[string]error{"2606::2": errors.New("no route")}}
		d := &Dialer{
			Resolver: &names{answers: map[string][]string{"a.example": {"2606::1 2606::2 8.8.8.8"}}},
			dial:     record.dial, own: func() []netip.Addr { return nil },
		}
		began := time.Now()
		conn, err := d.DialHost(t.Context(), host(t, "a.example"), 443)
		if err != nil {
			t.Fatal(err)
		}
		conn.Close()
		if took := time.Since(began); took != fallbackDelay {
			t.Errorf("took %s, want %s", took, fallbackDelay)
		}
		if want := []string{"[2606::1]:443", "8.8.8.8:443"}; !slices.Equal(record.addrs, want) {
			t.Errorf("dialled %v, want %v", record.addrs, want)
		}
	})
}

func TestTimeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		record := &dials{hang: map[string]bool{"8.8.8.8": true, "8.8.4.4": true}}
		d := &Dialer{
			Resolver: &names{answers: map[string][]string{"a.example": {"8.8.8.8 8.8.4.4"}}},
			dial:     record.dial, own: func() []netip.Addr { return nil },
		}
		began := time.Now()
		_, err := d.DialHost(t.Context(), host(t, "a.example"), 443)
		if took := time.Since(began); protocol.KindOf(err) != protocol.KindUpstream || took != DefaultTimeout {
			t.Errorf("%v after %s", err, took)
		}
		if !errors.Is(err, context.DeadlineExceeded) || strings.Contains(err.Error(), "8.8.8.8") {
			t.Errorf("error %v", err)
		}
	})
}

func TestManyAddressesAreBounded(t *testing.T) {
	record := &dials{fail: map[string]error{}}
	var all []string
	for i := range 50 {
		addr := netip.AddrFrom4([4]byte{8, 8, 8, byte(i)}).String()
		all = append(all, addr)
		record.fail[addr] = errors.New("refused")
	}
	d := &Dialer{Resolver: &names{answers: map[string][]string{"a.example": {strings.Join(all, " ")}}}, dial: record.dial}
	if _, err := d.DialHost(t.Context(), host(t, "a.example"), 443); protocol.KindOf(err) != protocol.KindUpstream {
		t.Error(err)
	}
	if len(record.addrs) != maxAddrs {
		t.Errorf("dialled %d", len(record.addrs))
	}
}

func TestInvalid(t *testing.T) {
	d := &Dialer{}
	for _, port := range []int{0, -1, 65536} {
		if _, err := d.DialHost(t.Context(), host(t, "a.example"), port); protocol.KindOf(err) != protocol.KindInvalid {
			t.Errorf("port %d: %v", port, err)
		}
	}
	if _, err := d.DialHost(t.Context(), hostname.Host{}, 443); protocol.KindOf(err) != protocol.KindInvalid {
		t.Errorf("no host: %v", err)
	}
}

// TestReal dials a listener of this machine, which only an exception allows.
func TestReal(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	port := l.Addr().(*net.TCPAddr).Port
	h := host(t, "a.example").WithPort(port)
	d := &Dialer{Static: Static{h: netip.MustParseAddrPort(l.Addr().String())}}
	conn, err := d.DialHost(t.Context(), h, 0)
	if err != nil {
		t.Fatal(err)
	}
	conn.Close()
	if _, err := d.DialHost(t.Context(), host(t, "localhost"), port); protocol.KindOf(err) != protocol.KindForbidden {
		t.Errorf("localhost: %v", err)
	}
}

func TestCheck(t *testing.T) {
	d := &Dialer{Static: Static{host(t, "inside.example"): netip.MustParseAddrPort("10.0.0.1:0")}}
	for text, ok := range map[string]bool{
		"a.example": true, "8.8.8.8": true, "inside.example": true,
		"10.0.0.1": false, "localhost": false, "x.localhost": false, "[::1]": false, "127.1": false,
	} {
		if err := d.Check(host(t, text), 443); (err == nil) != ok || err != nil && protocol.KindOf(err) != protocol.KindForbidden {
			t.Errorf("%s: %v", text, err)
		}
	}
}

func TestParseStatic(t *testing.T) {
	static, err := ParseStatic([]string{"B.example.=10.0.0.1", "a.example:443=[::1]:8443", "c.example=::1", "d.example=10.0.0.2:80"})
	if err != nil {
		t.Fatal(err)
	}
	if got, want := strings.Join(static.Hosts(), " "), "a.example:443 b.example c.example d.example"; got != want {
		t.Errorf("hosts %s, want %s", got, want)
	}
	if got, ok := static.Lookup(host(t, "c.example"), 99); !ok || got.String() != "[::1]:99" {
		t.Errorf("c.example: %s", got)
	}
	for _, bad := range []string{"", "a", "=10.0.0.1", "a=", "a=b", "a=10.0.0.1:0x", "*.a.example=10.0.0.1", "a@b=10.0.0.1", "a:99999=10.0.0.1"} {
		if _, err := ParseStatic([]string{bad}); err == nil {
			t.Errorf("%q was taken", bad)
		}
	}
	if _, err := ParseStatic([]string{"a=10.0.0.1", "A.=10.0.0.2"}); err == nil {
		t.Error("the same host twice")
	}
}
