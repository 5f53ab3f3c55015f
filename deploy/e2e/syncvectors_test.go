package e2e

import (
	"bytes"
	"encoding/json"
	"net"
	"net/http"
	"os"
	"testing"

	"github.com/fairlead/fairlead/protocol/op"
)

// TestSyncVectors pushes what other programs have sealed, byte for byte, through relay
// and agent: each is answered as the seed says. Those by a key that both sides have
// agreed on aren't among them, since nobody can choose an agent's private key.
func TestSyncVectors(t *testing.T) {
	data, err := os.ReadFile("../../protocol/seal/testdata/sealed-sync.json")
	must(t, err)
	var file struct {
		Keys []struct {
			ID     string `json:"id"`
			Secret string `json:"secret_utf8"`
		} `json:"key_derivation"`
		Vectors []struct {
			ID, Key, Why string
			Sealed       []byte `json:"sealed_b64"`
			Status       int    `json:"seed_status"`
		}
	}
	must(t, json.Unmarshal(data, &file))
	s := own(t)
	ctx := within(t)
	paired, fault := syncCommand(ctx, t, s, "alice", op.KindSyncPair, &op.SyncPair{Step: op.SyncSecret, Name: "vectors", SharedSecret: file.Keys[0].Secret})
	if fault != nil {
		t.Fatal(fault.Message)
	}
	policy := &op.SyncPolicy{Policy: "blocklist", Domains: []op.SyncDomain{{Pattern: "blocked.test"}, {Pattern: "%.BLOCKED.test"}}}
	if _, fault := syncCommand(ctx, t, s, "alice", op.KindSyncPolicy, policy); fault != nil {
		t.Fatal(fault.Message)
	}
	pushed := 0
	for i, v := range file.Vectors {
		if v.Key != file.Keys[0].ID {
			continue
		}
		pushed++
		// Each comes from another client: the relay takes ten of one at once.
		dialer := &net.Dialer{LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 0, 0, byte(2+i))}}
		client := &http.Client{Transport: &http.Transport{DialContext: dialer.DialContext, DisableKeepAlives: true}}
		request, err := http.NewRequestWithContext(ctx, http.MethodPost, paired.URL, bytes.NewReader(v.Sealed))
		must(t, err)
		answer, err := client.Do(request)
		must(t, err)
		answer.Body.Close()
		if answer.StatusCode != v.Status {
			t.Errorf("%s (%s): %s, want %d", v.ID, v.Why, answer.Status, v.Status)
		}
	}
	if pushed < 20 {
		t.Errorf("only %d vectors", pushed)
	}
	t.Logf("%d vectors", pushed)
}
