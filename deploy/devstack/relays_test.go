package devstack

import (
	"net"
	"slices"
	"strconv"
	"strings"
	"testing"
)

func TestOneRelayKeepsItsAddress(t *testing.T) {
	addr, err := freeAddress(anyPort, nil)
	must(t, err)
	list, err := publicAddresses(addr, 1)
	must(t, err)
	if !slices.Equal(list, []string{addr}) {
		t.Errorf("addresses %q", list)
	}
}

// TestPorts: nobody else is given a port that a relay will want back.
func TestPorts(t *testing.T) {
	public, err := publicAddresses(anyPort, 2)
	must(t, err)
	s := &Stack{public: public}
	r := &relay{listen: s.public[0], tunnel: "127.0.0.1:7"}
	must(t, s.choosePorts(r))
	seen := map[int]bool{}
	for _, addr := range append(s.public, r.admin, r.preview) {
		port, err := strconv.Atoi(portOf("http://" + addr))
		if err != nil || port < firstPort || port >= firstPort+ports || seen[port] {
			t.Errorf("a relay gets %s", addr)
		}
		seen[port] = true
	}
	if r.tunnel != "127.0.0.1:7" {
		t.Errorf("a relay that was told its tunnel's address gets %s", r.tunnel)
	}
}

// TestSeveralRelays: each has an address of its own, which is free, and knows
// all origins, its own first.
func TestSeveralRelays(t *testing.T) {
	list, err := publicAddresses("127.0.0.1:0", 3)
	must(t, err)
	seen := map[string]bool{}
	for _, addr := range list {
		l, err := net.Listen("tcp", addr)
		must(t, err)
		must(t, l.Close())
		seen[addr] = true
	}
	if len(seen) != 3 {
		t.Errorf("addresses %q", list)
	}
	for i, addr := range list {
		got := origins(list, i)
		if len(got) != 6 || got[0] != "http://"+addr || !strings.HasPrefix(got[1], "http://localhost:") {
			t.Errorf("origins of relay %d: %q", i+1, got)
		}
	}

	busy, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	defer busy.Close()
	if _, err := publicAddresses(busy.Addr().String(), 2); err == nil || !strings.Contains(err.Error(), busy.Addr().String()) {
		t.Errorf("a busy address: %v", err)
	}
}

// TestSandboxRelays: sandboxes dial the relays, unless something stands in
// between.
func TestSandboxRelays(t *testing.T) {
	s := &Stack{relays: []*relay{{ready: relayReady{Tunnel: "127.0.0.1:1"}}, {ready: relayReady{Tunnel: "127.0.0.1:2"}}}}
	if got := s.dialled(); !slices.Equal(got, []string{"127.0.0.1:1", "127.0.0.1:2"}) {
		t.Errorf("they dial %q", got)
	}
	s.cfg.SandboxRelays = []string{"127.0.0.1:3"}
	if got := s.dialled(); !slices.Equal(got, s.cfg.SandboxRelays) {
		t.Errorf("they dial %q", got)
	}
}
