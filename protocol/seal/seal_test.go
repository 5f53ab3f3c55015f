package seal_test

import (
	"bytes"
	"crypto/ecdh"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/protocol/seal"
)

const secret = "0123456789abcdef0123456789abcdef-shared"

// A vectorFile is testdata/sealed-sync.json.
type vectorFile struct {
	Keys []struct {
		ID            string   `json:"id"`
		Secret        string   `json:"secret_utf8"`
		SourcePrivate string   `json:"source_x25519_private_hex"`
		SourcePublic  []byte   `json:"source_x25519_public_b64"`
		SinkPrivate   string   `json:"sink_x25519_private_hex"`
		SinkPublic    []byte   `json:"sink_x25519_public_b64"`
		Codes         []string `json:"code_equivalents"`
		Salt          string   `json:"hkdf_salt_utf8"`
		Paired        string   `json:"paired_key_hex"`
		Fingerprint   string   `json:"fingerprint"`
	} `json:"key_derivation"`
	Like []struct {
		Pattern, Host, Note string
		Upstream            bool `json:"upstream_match"`
	} `json:"policy_like"`
	Vectors []struct {
		ID, Key, Why string
		Plain        string `json:"plaintext"`
		Sealed       []byte `json:"sealed_b64"`
		Status       *int   `json:"seed_status"`
	}
}

func vectors(tb testing.TB) (f vectorFile) {
	tb.Helper()
	data, err := os.ReadFile("testdata/sealed-sync.json")
	must(tb, err)
	must(tb, json.Unmarshal(data, &f))
	return f
}

func must(tb testing.TB, err error) {
	tb.Helper()
	if err != nil {
		tb.Fatal(err)
	}
}

// pair returns the secrets of source and sink, which exchanged their keys and a code.
func pair(tb testing.TB, f vectorFile, code string) (source, sink seal.Paired) {
	tb.Helper()
	row := f.Keys[2]
	canonical, err := seal.ParseCode(code)
	must(tb, err)
	one := func(private string, public []byte) seal.Paired {
		raw, err := hex.DecodeString(private)
		must(tb, err)
		key, err := ecdh.X25519().NewPrivateKey(raw)
		must(tb, err)
		paired, err := seal.Pair(key, public, canonical)
		must(tb, err)
		return paired
	}
	return one(row.SourcePrivate, row.SinkPublic), one(row.SinkPrivate, row.SourcePublic)
}

// TestVectors sends the vectors to a sink, but for its sequences: each gets what the
// seed says.
func TestVectors(t *testing.T) {
	f := vectors(t)
	shared, err := seal.SharedKey(secret)
	must(t, err)
	source, _ := pair(t, f, f.Keys[2].Codes[0])
	paired, err := source.Key()
	must(t, err)
	keys := map[string]*seal.Key{"K-shared": shared, "K-paired": paired}
	seen := map[string]int64{}
	for _, v := range f.Vectors {
		status := 200
		plain, err := keys[v.Key].Open(bytes.Clone(v.Sealed))
		var e seal.Envelope
		if err == nil {
			if string(plain) != v.Plain {
				t.Errorf("%s: opened as %q, want %q", v.ID, plain, v.Plain)
			}
			e, err = seal.Decode(plain, []int{seal.Version})
		}
		name := v.Key + e.SourceHostname
		last, known := seen[name]
		switch {
		case err != nil:
			status = protocol.KindOf(err).Status()
		case known && e.Sequence <= last:
			status = 409
		default:
			seen[name] = e.Sequence
		}
		if v.Status == nil || status != *v.Status {
			t.Errorf("%s (%s): %d %v", v.ID, v.Why, status, err)
		}
		if v.ID == "S09" {
			if _, err := seal.Decode(plain, []int{seal.Version, seal.LaterVersion}); err != nil {
				t.Errorf("version 2, where it is taken: %v", err)
			}
			if !strings.Contains(err.Error(), "version 2") || !strings.Contains(err.Error(), "[1]") {
				t.Errorf("the message names not both versions: %v", err)
			}
		}
	}
}

// TestPairing: both sides have the secret that the programs have which exist.
func TestPairing(t *testing.T) {
	f := vectors(t)
	want := f.Keys[2]
	for _, code := range want.Codes {
		source, sink := pair(t, f, code)
		if source != sink || hex.EncodeToString(source[:]) != want.Paired || sink.Fingerprint() != want.Fingerprint {
			t.Errorf("%s: %x and %x, want %s", code, source[:], sink[:], want.Paired)
		}
	}
	old := f.Keys[3]
	source, _ := pair(t, f, "ehqe stss")
	if hex.EncodeToString(source[:]) != old.Paired || source.Fingerprint() != old.Fingerprint {
		t.Errorf("of 8 letters: %x", source[:])
	}
	if text := fmt.Sprintf("%v %+v %#v %s", source, source, source, source); strings.Contains(text, old.Paired[:8]) || !strings.Contains(text, old.Fingerprint) {
		t.Errorf("it prints as %s", text)
	}
}

func TestCodes(t *testing.T) {
	seen := map[seal.Code]bool{}
	for range 100 {
		code := seal.NewCode()
		if again, err := seal.ParseCode(strings.ToLower(string(code))); err != nil || again != code || len(code) != 14 || seen[code] {
			t.Errorf("%s: %s, %v", code, again, err)
		}
		seen[code] = true
	}
	for _, bad := range []string{"", "ABCD", "ABCD-EFG", "ABCD-EFGH-I", "ABCD-EFGH-IJKL-M", "ABCD-EFG1", "ABCD-EFGÄ", "ABCD\tEFGH", strings.Repeat("A", 1<<20)} {
		if code, err := seal.ParseCode(bad); protocol.KindOf(err) != protocol.KindInvalid || len(bad) > 3 && strings.Contains(err.Error(), bad) {
			t.Errorf("%.20q: %s, %v", bad, code, err)
		}
	}
}

// TestBadKeys: a carrier's keys of low order would give a secret that it knows.
func TestBadKeys(t *testing.T) {
	key, err := ecdh.X25519().NewPrivateKey(bytes.Repeat([]byte{7}, 32))
	must(t, err)
	one := make([]byte, 32)
	one[0] = 1
	for name, public := range map[string][]byte{"zero": make([]byte, 32), "one": one, "short": make([]byte, 31), "long": make([]byte, 33), "none": nil} {
		if _, err := seal.Pair(key, public, "ABCD-EFGH"); protocol.KindOf(err) != protocol.KindInvalid {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := seal.SharedKey(secret[:seal.MinSecret-1]); protocol.KindOf(err) != protocol.KindInvalid || strings.Contains(err.Error(), "0123") {
		t.Errorf("a short secret: %v", err)
	}
	if _, err := seal.SharedKey(secret[:seal.MinSecret]); err != nil {
		t.Error(err)
	}
}

// TestEachByte: a body with any bit of it changed, or cut anywhere, doesn't open.
func TestEachByte(t *testing.T) {
	key, err := seal.SharedKey(secret)
	must(t, err)
	body := key.Seal([]byte("value"))
	if again := key.Seal([]byte("value")); bytes.Equal(again[:12], body[:12]) {
		t.Error("two bodies with one nonce")
	}
	refused := func(what string, body []byte) {
		t.Helper()
		if plain, err := key.Open(body); protocol.KindOf(err) != protocol.KindUnauthenticated || plain != nil {
			t.Errorf("%s: %q, %v", what, plain, err)
		}
	}
	for i := range body {
		refused("cut", bytes.Clone(body[:i]))
		for bit := range 8 {
			changed := bytes.Clone(body)
			changed[i] ^= 1 << bit
			refused("changed", changed)
		}
	}
	refused("longer", append(bytes.Clone(body), 0))
	if plain, err := key.Open(body); err != nil || string(plain) != "value" {
		t.Errorf("%q %v", plain, err)
	}
}

func FuzzOpen(f *testing.F) {
	key, err := seal.SharedKey(secret)
	must(f, err)
	for _, v := range vectors(f).Vectors {
		f.Add(v.Sealed)
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		plain, err := key.Open(bytes.Clone(body))
		if err != nil {
			return
		}
		if e, err := seal.Decode(plain, []int{seal.Version, seal.LaterVersion}); err == nil {
			if _, err := e.Encode(); err != nil {
				t.Error(err)
			}
		}
	})
}

// FuzzCode: what is read as a code is one that is read as itself.
func FuzzCode(f *testing.F) {
	f.Add("EHQE-STSS-UEIA")
	f.Add("ehqe stss")
	f.Add(base64.StdEncoding.EncodeToString(make([]byte, 9)))
	f.Fuzz(func(t *testing.T, text string) {
		code, err := seal.ParseCode(text)
		if err != nil {
			return
		}
		if again, err := seal.ParseCode(string(code)); err != nil || again != code {
			t.Errorf("%q: %q, then %q, %v", text, code, again, err)
		}
	})
}
