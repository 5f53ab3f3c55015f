package controlplane

import (
	"net/http"
	"testing"
	"time"

	"github.com/fairlead/fairlead/deploy/controlplane/internal/relays"
)

// TestOtherRelays: a relay hears of the others that are alive, until they are
// silent for 30 s or drain.
func TestOtherRelays(t *testing.T) {
	p := newPlane(t)
	put := func(id, credential, more string) []any {
		t.Helper()
		answer := p.want(call{"PUT", "/internal/relays/" + id, credential,
			`{"url":"http://127.0.0.1:1","tunnel":"127.0.0.1:2","public_origin":"https://` + id[3:] + `.example"` + more + `}`, nil},
			http.StatusOK, "")
		others, ok := answer["relays"].([]any)
		if !ok {
			t.Fatalf("answer %v", answer)
		}
		return others
	}
	const drains = `,"draining":true`
	if others := put("rl_1", relayToken, ""); len(others) != 0 {
		t.Errorf("the first relay hears of %v", others)
	}
	others := put("rl_2", relay2Token, "")
	if len(others) != 1 {
		t.Fatalf("the second relay hears of %v", others)
	}
	one, _ := others[0].(map[string]any)
	for member, want := range map[string]string{
		"id": "rl_1", "url": "http://127.0.0.1:1", "tunnel": "127.0.0.1:2", "public_origin": "https://1.example",
	} {
		if one[member] != want {
			t.Errorf("%s: %v, want %s", member, one[member], want)
		}
	}
	if others := put("rl_2", relay2Token, drains); len(others) != 1 {
		t.Errorf("a relay that drains hears of %v", others)
	}
	if others := put("rl_1", relayToken, ""); len(others) != 0 {
		t.Errorf("a relay that drains is named: %v", others)
	}
	put("rl_2", relay2Token, "") // it came back
	p.clock.Advance(relays.Life + time.Second)
	if others := put("rl_1", relayToken, ""); len(others) != 0 {
		t.Errorf("a silent relay is named: %v", others)
	}
}
