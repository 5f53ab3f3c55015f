package hub

import (
	"fmt"
	"strings"
	"testing"

	"github.com/fairlead/fairlead/protocol"
)

// TestAddresses: what a shell's program has printed is told once to each viewer,
// also to one who comes later, and forgotten with the log it was in.
func TestAddresses(t *testing.T) {
	var f facts
	for i := range maxAddresses + 1 {
		m := protocol.Address{URL: fmt.Sprint("https://e.com/", i)}
		if news := f.address(m); len(news) != 1 || news[0] != m {
			t.Errorf("%v is no news: %v", m, news)
		}
		if news := f.address(m); len(news) > 0 {
			t.Errorf("%v is news again: %v", m, news)
		}
	}
	for _, url := range []string{"javascript:alert(1)", "file:///etc/passwd", "", "https://e.com/" + strings.Repeat("a", maxAddressBytes)} {
		if news := f.address(protocol.Address{URL: url}); len(news) > 0 {
			t.Errorf("%.40q is news", url)
		}
	}
	greeting := f.greeting()
	if last := (protocol.Address{URL: fmt.Sprint("https://e.com/", maxAddresses)}); len(greeting) != maxAddresses+1 || greeting[maxAddresses] != last {
		t.Errorf("%d messages: %v", len(greeting), greeting)
	}
}
