package outbound

import (
	"net/netip"
	"testing"
)

func TestJudge(t *testing.T) {
	for _, c := range []struct {
		addr string
		want Reason
	}{
		{"1.1.1.1", ""},
		{"8.8.8.8", ""},
		{"9.255.255.255", ""},
		{"11.0.0.0", ""},
		{"100.63.255.255", ""},
		{"100.128.0.0", ""},
		{"172.15.255.255", ""},
		{"172.32.0.0", ""},
		{"192.167.255.255", ""},
		{"192.169.0.0", ""},
		{"223.255.255.255", ""},
		{"0.0.0.0", Unspecified},
		{"0.1.2.3", Unspecified},
		{"10.0.0.1", Private},
		{"10.255.255.255", Private},
		{"100.64.0.0", CarrierNAT},
		{"100.127.255.255", CarrierNAT},
		{"100.100.100.200", Metadata},
		{"127.0.0.1", Loopback},
		{"127.255.255.254", Loopback},
		{"168.63.129.16", Metadata},
		{"169.254.0.1", LinkLocal},
		{"169.254.169.254", Metadata},
		{"169.254.170.2", Metadata},
		{"172.16.0.1", Private},
		{"172.31.255.255", Private},
		{"192.0.0.8", Reserved},
		{"192.0.0.192", Metadata},
		{"192.0.2.1", Documentation},
		{"192.88.99.1", Reserved},
		{"192.168.1.1", Private},
		{"198.18.0.1", Reserved},
		{"198.51.100.1", Documentation},
		{"203.0.113.1", Documentation},
		{"224.0.0.1", Multicast},
		{"239.255.255.250", Multicast},
		{"240.0.0.1", Reserved},
		{"255.255.255.255", Reserved},

		{"2606:4700:4700::1111", ""},
		{"2001:4860:4860::8888", ""},
		{"2400:cb00::1", ""},
		{"::", Unspecified},
		{"::1", Loopback},
		{"::ffff:127.0.0.1", Loopback},
		{"::ffff:10.0.0.1", Private},
		{"::ffff:169.254.169.254", Metadata},
		{"::ffff:8.8.8.8", ""},
		{"::127.0.0.1", Embedded},
		{"::8.8.8.8", Embedded},
		{"::ffff:0:10.0.0.1", Embedded},
		{"64:ff9b::8.8.8.8", ""},
		{"64:ff9b::10.0.0.1", Private},
		{"64:ff9b::127.0.0.1", Loopback},
		{"64:ff9b::169.254.169.254", Metadata},
		{"64:ff9b:1::8.8.8.8", Embedded},
		{"100::1", Reserved},
		{"2002:0808:0808::1", ""},
		{"2002:7f00:1::1", Loopback},
		{"2002:a9fe:a9fe::1", Metadata},
		{"2002:c0a8:101::1", Private},
		{"2001:0:808:808:0:0:f7f7:f7f7", ""},         // client 8.8.8.8
		{"2001:0:a00:1:0:0:f7f7:f7f7", Private},      // server 10.0.0.1
		{"2001:0:808:808:0:0:5601:5601", Metadata},   // client 169.254.169.254
		{"2001:0:808:808:0:0:80ff:fffe", Loopback},   // client 127.0.0.1
		{"2606:4700:1:1:0:5efe:10.0.0.1", Private},   // ISATAP
		{"2606:4700:1:1:200:5efe:10.0.0.1", Private}, // ISATAP, global
		{"2606:4700:1:1:0:5efe:8.8.8.8", ""},
		{"2001:2::1", Reserved},
		{"2001:10::1", Reserved},
		{"2001:20::1", Reserved},
		{"2001:db8::1", Documentation},
		{"3fff::1", Documentation},
		{"4000::1", Reserved},
		{"5f00::1", Reserved},
		{"fc00::1", Private},
		{"fdff::1", Private},
		{"fd00:ec2::254", Metadata},
		{"fd20:ce::254", Metadata},
		{"fe80::1", LinkLocal},
		{"fe80::1%eth0", LinkLocal},
		{"2606:4700::1%eth0", LinkLocal},
		{"fec0::1", Private},
		{"ff02::1", Multicast},
	} {
		if got := Judge(netip.MustParseAddr(c.addr)); got != c.want {
			t.Errorf("Judge(%s) = %q, want %q", c.addr, got, c.want)
		}
	}
	if Judge(netip.Addr{}) == "" {
		t.Error("no address was let through")
	}
}

// FuzzJudge holds the verdict against the standard library's predicates, in
// every form in which IPv6 can hold IPv4.
func FuzzJudge(f *testing.F) {
	for _, seed := range []string{"127.0.0.1", "::1", "10.0.0.1", "8.8.8.8", "fe80::1", "64:ff9b::a00:1", "2002:7f00:1::", "2001::1", "::ffff:1.2.3.4"} {
		f.Add(netip.MustParseAddr(seed).AsSlice())
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		addr, ok := netip.AddrFromSlice(b)
		if !ok {
			return
		}
		reason := Judge(addr)
		plain := addr.Unmap()
		if reason == "" && (!plain.IsGlobalUnicast() || plain.IsPrivate() || plain.IsLoopback() || plain.IsLinkLocalUnicast()) {
			t.Fatalf("%s was let through", addr)
		}
		if Judge(plain) != reason {
			t.Fatalf("%s and %s are judged differently", addr, plain)
		}
		if !plain.Is4() {
			return
		}
		b4 := plain.As4()
		for _, form := range embeddings(b4) {
			if in := Judge(form); reason != "" && in == "" {
				t.Fatalf("%s is refused (%s), and %s isn't", plain, reason, form)
			}
		}
	})
}

// embeddings returns IPv6 addresses that lead to an IPv4 address.
func embeddings(b [4]byte) []netip.Addr {
	form := func(text string, at int, invert bool) netip.Addr {
		a := netip.MustParseAddr(text).As16()
		for i, c := range b {
			if invert {
				c = ^c
			}
			a[at+i] = c
		}
		return netip.AddrFrom16(a)
	}
	return []netip.Addr{
		form("::ffff:0:0", 12, false), form("::", 12, false), form("::ffff:0:0:0", 12, false),
		form("64:ff9b::", 12, false), form("64:ff9b:1::", 12, false), form("2002::1", 2, false),
		form("2001:0:808:808::", 12, true), form("2001:0:0:0:0:0:f7f7:f7f7", 4, false),
		form("2606:4700:1:1:0:5efe::", 12, false),
	}
}
