package cookieform

import (
	"encoding/hex"
	"testing"
)

// TestKnownValues: what openssl makes of values with the password that everybody
// knows, of schemas with the host's hash and without.
func TestKnownValues(t *testing.T) {
	const host, value = ".a.test", "zürich"
	key := NewKey(KnownPassword, LinuxRounds)
	for schema, want := range map[int]string{
		23: "7559af395dcc44491450e3f95eac1146",
		24: "82efea66950b37724d8eb9313380e40c2ba9f7fa0dafd5ac811a684f539da4d7ef6bcee93bfbdf33aee142d632f4d15f",
	} {
		sealed, err := hex.DecodeString(want)
		if err != nil {
			t.Fatal(err)
		}
		if got := hex.EncodeToString(key.Seal(schema, host, value)); got != want {
			t.Errorf("%d: sealed as %s", schema, got)
		}
		if got, ok := key.Open(schema, host, sealed); !ok || got != value {
			t.Errorf("%d: opened as %q, %v", schema, got, ok)
		}
		if _, ok := NewKey("another", LinuxRounds).Open(24, host, sealed); ok {
			t.Errorf("%d: opened by another key", schema)
		}
		for n := range sealed {
			if _, ok := key.Open(schema, host, sealed[:n]); ok {
				t.Errorf("%d: opened when cut to %d bytes", schema, n)
			}
		}
	}
	if _, ok := key.Open(24, "b.test", key.Seal(24, "a.test", value)); ok {
		t.Error("opened for another host")
	}
	if got, ok := key.Open(24, host, key.Seal(24, host, "")); !ok || got != "" {
		t.Errorf("nothing is %q, %v", got, ok)
	}
}
