package devstack

import (
	"net"
	"slices"
	"strings"
	"testing"
)

func TestOneRelayKeepsItsAddress(t *testing.T) {
	list, err := publicAddresses("127.0.0.1:0", 1)
	must(t, err)
	if !slices.Equal(list, []string{"127.0.0.1:0"}) {
		t.Errorf("addresses %q", list)
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
