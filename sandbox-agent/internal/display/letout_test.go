package display

import (
	"crypto/rand"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"testing"

	"github.com/fairlead/fairlead/sandbox-agent/internal/screen"
)

// TestWhatAStreamLetsOut: what a stream lets out of a secret whose characters
// come one by one, of some encodings more than of others, is no find on the
// screen, also where two of them stand one behind the other.
func TestWhatAStreamLetsOut(t *testing.T) {
	for range 5 {
		secret := "sk/" + rand.Text() + `+"\=ü`
		set := compile(t, secret)
		percent := ""
		for i := range len(secret) {
			percent += fmt.Sprintf("%%%02x", secret[i])
		}
		for _, form := range []string{
			secret, percent, hex.EncodeToString([]byte(secret)), base64.StdEncoding.EncodeToString([]byte(secret)),
			base64.StdEncoding.EncodeToString([]byte("z" + secret)), base64.RawURLEncoding.EncodeToString([]byte("zy" + secret)),
		} {
			raw, masked := screen.New(20, 24), screen.New(20, 24)
			stream := set.NewStream()
			output := form + form + "\r\n" + form + "\x1b[1;1H\x1b[9;1H"
			for i := range len(output) {
				out, _ := raw.Write(nil, nil, []byte{output[i]})
				masked.Write(nil, nil, stream.Write(nil, out))
				raw.AppendNewText(nil)
				masked.AppendNewText(nil)
				if masked.MaskAsIn(raw, false, leaving(set)) > 0 {
					t.Fatalf("%q, of %q: found after %d bytes of %q", form, secret, i+1, output)
				}
			}
		}
	}
}
