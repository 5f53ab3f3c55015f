package op

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/fairlead/fairlead/protocol"
)

const finish = `"step":"finish","pairing":"pr_1","sourcePublicKey":"AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=","sourceHostname":"laptop","fingerprint":"0123abcd"`

// TestSyncPair: each step has its own members, and no other one's; an error quotes
// no secret.
func TestSyncPair(t *testing.T) {
	secret := strings.Repeat("canary-", 5)
	for _, good := range []string{
		`"step":"begin"`, `"step":"begin","name":"Alice’s laptop"`,
		finish + `,"code":"EHQE-STSS"`, finish + `,"code":"abcd efgh ijkl"`,
		`"step":"secret","sharedSecret":"` + secret + `","name":"x"`,
	} {
		if _, _, err := DecodeAsked(json.RawMessage(`{"kind":"sync.pair",` + good + `}`)); err != nil {
			t.Errorf("%s: %v", good, err)
		}
	}
	for _, bad := range []string{
		`"name":"x"`, `"step":"Begin"`, `"step":"begin","pairing":"pr_1"`, `"step":"begin","code":"EHQE-STSS"`, `"step":"begin","name":"a\nb"`,
		`"step":"begin","name":"` + strings.Repeat("n", 129) + `"`,
		finish, finish + `,"code":"canary-1"`, finish + `,"code":"EHQE-STSS","name":"x"`, finish + `,"code":"EHQE-STSS","sharedSecret":"` + secret + `"`,
		strings.Replace(finish, "pr_1", "../x", 1) + `,"code":"EHQE-STSS"`,
		strings.Replace(finish, "AAEC", "", 1) + `,"code":"EHQE-STSS"`,
		strings.Replace(finish, "0123abcd", "0123ABCD", 1) + `,"code":"EHQE-STSS"`,
		strings.Replace(finish, "laptop", strings.Repeat("l", 256), 1) + `,"code":"EHQE-STSS"`,
		`"step":"secret"`, `"step":"secret","sharedSecret":"canary-too-short"`, `"step":"secret","sharedSecret":"` + strings.Repeat("canary-", 147) + `"`,
		`"step":"secret","sealed":"AAAA"`,
	} {
		_, _, err := DecodeAsked(json.RawMessage(`{"kind":"sync.pair",` + bad + `}`))
		if protocol.KindOf(err) != protocol.KindInvalid || err == nil || strings.Contains(err.Error(), "canary") {
			t.Errorf("%s: %v", bad, err)
		}
	}
}

// TestSyncPairSigned: what is signed has the secrets in a box alone.
func TestSyncPairSigned(t *testing.T) {
	for _, asked := range []SyncPair{
		{Step: SyncBegin, Name: "laptop"},
		{Step: SyncSecret, Name: "laptop", SharedSecret: strings.Repeat("canary-", 5)},
	} {
		values, signed := asked.Conceal()
		var box []byte
		if values != nil {
			box = []byte("box")
		}
		b := signed(box)
		raw, err := json.Marshal(Op{KindSyncPair, b})
		if err != nil || b.Check() != nil || strings.Contains(string(raw), "canary") || (asked.Step == SyncBegin) != (values == nil) {
			t.Errorf("%s: %v, %v", raw, err, b.Check())
		}
	}
	for _, bad := range []SyncPairSealed{{Step: SyncBegin, Sealed: []byte{1}}, {Step: SyncSecret}} {
		if bad.Check() == nil {
			t.Errorf("%+v passes", bad)
		}
	}
}

// TestSyncOthers: the bodies of the other operations.
func TestSyncOthers(t *testing.T) {
	const good = protocol.Kind(255)
	long := `{"pattern":"` + strings.Repeat("p", 1024) + `"}`
	for raw, kind := range map[string]protocol.Kind{
		`{"kind":"sync.accept","pairing":"pr_1","versions":[1]}`:                                                                good,
		`{"kind":"sync.accept","pairing":"pr_1","versions":[1,2]}`:                                                              good,
		`{"kind":"sync.accept","pairing":"pr_1","versions":[2]}`:                                                                protocol.KindInvalid,
		`{"kind":"sync.accept","pairing":"pr_1","versions":[]}`:                                                                 protocol.KindInvalid,
		`{"kind":"sync.accept","versions":[1]}`:                                                                                 protocol.KindInvalid,
		`{"kind":"sync.unpair"}`:                                                                                                protocol.KindInvalid,
		`{"kind":"sync.policy","policy":"allowlist","domains":[]}`:                                                              good,
		`{"kind":"sync.policy","policy":"","domains":[]}`:                                                                       protocol.KindInvalid,
		`{"kind":"sync.policy","policy":"Allowlist","domains":[]}`:                                                              protocol.KindInvalid,
		`{"kind":"sync.policy","policy":"blocklist","domains":[{"pattern":"` + strings.Repeat("%", 1000) + `"}]}`:               good,
		`{"kind":"sync.policy","policy":"blocklist","domains":[{"pattern":""}]}`:                                                protocol.KindInvalid,
		`{"kind":"sync.policy","policy":"blocklist","domains":[{"pattern":"a\u0000"}]}`:                                         protocol.KindInvalid,
		`{"kind":"sync.policy","policy":"blocklist","domains":[` + strings.TrimSuffix(strings.Repeat(long+",", 16), ",") + `]}`: protocol.KindTooLarge,
	} {
		if _, _, err := Decode(json.RawMessage(raw)); (err == nil) != (kind == good) || err != nil && protocol.KindOf(err) != kind {
			t.Errorf("%.90s: %v", raw, err)
		}
	}
}
