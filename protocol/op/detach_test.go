package op

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/fairlead/fairlead/protocol"
)

func TestOnDetach(t *testing.T) {
	for d, want := range map[OnDetach]struct {
		valid, ends bool
		after       time.Duration
	}{
		"":        {true, false, 0},
		"keep":    {true, false, 0},
		"close":   {true, true, 0},
		"1s":      {true, true, time.Second},
		"30m":     {true, true, 30 * time.Minute},
		"1h30m":   {true, true, 90 * time.Minute},
		"24h":     {true, true, 24 * time.Hour},
		"999ms":   {},
		"24h0.1s": {},
		"0":       {},
		"0s":      {},
		"-30m":    {},
		"30":      {},
		"Close":   {},
		"30m ":    {},
		"1e3s":    {},
		OnDetach("1." + strings.Repeat("0", 64) + "m"): {},
	} {
		after, ends := d.After()
		if d.Valid() != want.valid || ends != want.ends || after != want.after {
			t.Errorf("%.20q: valid %t, ends %t after %v", d, d.Valid(), ends, after)
		}
	}
}

// TestBeginAndEnd: what is no way to begin or to end is refused where it is signed.
func TestBeginAndEnd(t *testing.T) {
	for text, good := range map[string]bool{
		`{"kind":"pty.create","spawn":"lazy","on_detach":"close"}`: true,
		`{"kind":"pty.create","spawn":"eager","on_detach":"30m"}`:  true,
		`{"kind":"pty.create","spawn":"","on_detach":"keep"}`:      true,
		`{"kind":"pty.create","spawn":"Lazy"}`:                     false,
		`{"kind":"pty.create","spawn":true}`:                       false,
		`{"kind":"pty.create","on_detach":"25h"}`:                  false,
		`{"kind":"pty.create","on_detach":1800}`:                   false,
		`{"kind":"pty.create","onDetach":"close"}`:                 false,
	} {
		_, body, err := Decode(json.RawMessage(text))
		if err == nil {
			err = body.Check()
		}
		if (err == nil) != good || err != nil && protocol.KindOf(err) != protocol.KindInvalid {
			t.Errorf("%s: %v", text, err)
		}
	}
}
