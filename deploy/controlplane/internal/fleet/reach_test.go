package fleet

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/fairlead/fairlead/deploy/controlplane/internal/store"
	"github.com/fairlead/fairlead/protocol"
)

func TestTold(t *testing.T) {
	longest := strings.Repeat("a", 253) + ":65535"
	for _, tt := range []struct {
		name       string
		registered []store.Relay
		operators  []string
		want       []string
	}{
		{"none is registered", nil, []string{"op:1", "op:1", "op:2"}, []string{"op:1", "op:1", "op:2"}},
		{"by id", []store.Relay{{ID: "rl_b", Tunnel: "a:1"}, {ID: "rl_a", Tunnel: "b:1"}}, []string{"op:1"}, []string{"b:1", "a:1", "op:1"}},
		{"one address of two", []store.Relay{{ID: "rl_a", Tunnel: "vip:1"}, {ID: "rl_b", Tunnel: "vip:1"}}, []string{"op:1"}, []string{"vip:1", "op:1"}},
		{
			"the operator's too", []store.Relay{{ID: "rl_a", Tunnel: "a:1"}, {ID: "rl_b", Tunnel: "b:1"}},
			[]string{"op:1", "b:1", "op:1", "a:1"}, []string{"a:1", "b:1", "op:1"},
		},
		{
			"no addresses", []store.Relay{{ID: "rl_a"}, {ID: "rl_b", Tunnel: "b:0"}, {ID: "rl_c", Tunnel: ":1"}, {ID: "rl_d", Tunnel: "d:1"}},
			[]string{"op:1"}, []string{"d:1", "op:1"},
		},
		{"nothing but no addresses", []store.Relay{{ID: "rl_a", Tunnel: "a"}}, []string{"op:1", "op:1"}, []string{"op:1", "op:1"}},
		{
			"on its own machine alone", []store.Relay{{ID: "rl_a", Tunnel: "127.0.0.1:1"}, {ID: "rl_b", Tunnel: "[::]:1"}, {ID: "rl_c", Tunnel: "c:1"}, {ID: "rl_d", Tunnel: "localhost:1"}},
			[]string{"op:1"}, []string{"c:1", "op:1"},
		},
		{"all on one machine", []store.Relay{{ID: "rl_a", Tunnel: "127.0.0.1:1"}}, []string{"127.0.0.1:2"}, []string{"127.0.0.1:1", "127.0.0.1:2"}},
		{"long addresses", []store.Relay{{ID: "rl_a", Tunnel: longest}, {ID: "rl_b", Tunnel: "a" + longest}}, nil, []string{longest}},
	} {
		before := slices.Clone(tt.registered)
		if got := told(tt.registered, tt.operators); !slices.Equal(got, tt.want) {
			t.Errorf("%s: %q, want %q", tt.name, got, tt.want)
		}
		if !slices.Equal(before, tt.registered) {
			t.Errorf("%s: the registered ones are in another order now", tt.name)
		}
	}
}

// TestToldBound: however many relays there are, the list of them leaves most of
// a "connect" stream to the rest of an enrolment.
func TestToldBound(t *testing.T) {
	var registered []store.Relay
	for i := range 2 * maxTold {
		name := fmt.Sprintf("%03d", i)
		registered = append(registered, store.Relay{
			ID: protocol.RelayID("rl_" + name), Tunnel: name + strings.Repeat("a", 250) + ":65535",
		})
	}
	for _, n := range []int{1, maxTold - 1, maxTold, 2 * maxTold} {
		got := told(registered[:n], []string{"op:1", "op:2"})
		if want := min(n+2, maxTold); len(got) != want || got[0] != registered[0].Tunnel {
			t.Errorf("of %d relays: %d addresses, want %d", n, len(got), want)
		}
		if size := len(strings.Join(got, `","`)); size > protocol.MaxConnectBytes/3 {
			t.Errorf("of %d relays: %d bytes", n, size)
		}
	}
}
