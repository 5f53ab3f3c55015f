package extension_test

import (
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/fairlead/fairlead/protocol/taburl"
)

var update = flag.Bool("update", false, "write the list of what secrets are called")

// TestSecretNames: what is secret in a tab's address is so for the extension, before
// it leaves, and for relays and sandboxes.
func TestSecretNames(t *testing.T) {
	const file = "web/src/tabs/secrets.ts"
	list := func(words []string) string { return "['" + strings.Join(words, "', '") + "']" }
	want := fmt.Sprintf(`// What parameters that hold secrets are called, as protocol/taburl has it:
// go test ./deploy/extension -run TestSecretNames -update
export const within: readonly string[] = %s;
export const whole: readonly string[] = %s;
`, list(taburl.Within), list(taburl.Whole))
	if *update {
		if err := os.WriteFile(file, []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if got, err := os.ReadFile(file); err != nil || string(got) != want {
		t.Errorf("%s isn't what protocol/taburl says: run this test with -update (%v)", file, err)
	}
}
