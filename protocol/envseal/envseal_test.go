package envseal

import (
	"bytes"
	"crypto/ecdh"
	"crypto/rand"
	"reflect"
	"strings"
	"testing"

	"github.com/fairlead/fairlead/protocol"
)

func newKey(t testing.TB) *ecdh.PrivateKey {
	key, err := ecdh.P256().GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return key
}

var values = protocol.EnvValues{
	Set:             map[string]string{"COLOR": "blue"},
	Secrets:         map[string]protocol.EnvSecret{"OPENAI_API_KEY": {Value: "sk-canary-0123456789", BrokerProtected: true}},
	ApprovedDomains: []protocol.ApprovedDomain{{Secret: "MY_KEY", Domain: "api.example.com"}},
}

func TestSealAndOpen(t *testing.T) {
	key := newKey(t)
	box, err := Seal(key.PublicKey(), Env, "sb_1", values)
	if err != nil {
		t.Fatal(err)
	}
	if bytes.Contains(box, []byte("canary")) || bytes.Contains(box, []byte("OPENAI")) {
		t.Error("the box can be read")
	}
	got, err := Open[protocol.EnvValues](key, Env, "sb_1", box)
	if err != nil || !reflect.DeepEqual(got, values) {
		t.Errorf("%v, %v", got, err)
	}
	again, err := Seal(key.PublicKey(), Env, "sb_1", values)
	if err != nil || bytes.Equal(box, again) {
		t.Errorf("two boxes are equal, %v", err)
	}
}

func TestOthersCannotOpen(t *testing.T) {
	key := newKey(t)
	box, err := Seal(key.PublicKey(), Env, "sb_1", values)
	if err != nil {
		t.Fatal(err)
	}
	refused := func(name string, key *ecdh.PrivateKey, sandbox protocol.SandboxID, box []byte) {
		t.Helper()
		got, err := Open[protocol.EnvValues](key, Env, sandbox, box)
		if protocol.KindOf(err) != protocol.KindInvalid || !reflect.DeepEqual(got, protocol.EnvValues{}) {
			t.Errorf("%s: %v, %v", name, got, err)
		}
		if err != nil && strings.Contains(err.Error(), "canary") {
			t.Errorf("%s: %v", name, err)
		}
	}
	refused("another key", newKey(t), "sb_1", box)
	refused("another sandbox", key, "sb_2", box)
	for n := range box {
		refused("cut off", key, "sb_1", box[:n])
		changed := bytes.Clone(box)
		changed[n] ^= 1
		refused("changed", key, "sb_1", changed)
	}
}

func FuzzOpen(f *testing.F) {
	key := newKey(f)
	box, err := Seal(key.PublicKey(), Env, "sb_1", values)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(box)
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, other []byte) {
		if _, err := Open[protocol.EnvValues](key, Env, "sb_1", other); err == nil && !bytes.Equal(other, box) {
			t.Errorf("%x opens", other)
		}
	})
}
