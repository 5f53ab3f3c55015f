package controlplane

import (
	"net/http"
	"strings"
	"testing"
	"time"
)

// TestRefusals: a refusal is logged by its name at once, many of them as one
// line, and what was refused isn't in it.
func TestRefusals(t *testing.T) {
	p := newPlane(t)
	refuse := func() { p.want(getAs("token-of-nobody-0123", "/auth/me"), http.StatusUnauthorized, "AuthError") }
	lines := func(members string) int {
		n := 0
		for line := range strings.Lines(p.log.String()) {
			if strings.Contains(line, "level=INFO") && strings.Contains(line, "requests refused") && strings.Contains(line, members) {
				n++
			}
		}
		return n
	}
	for range 100 {
		refuse()
	}
	if n := lines(`route="GET /auth/me" kind=unauthenticated name=AuthError count=1`); n != 1 {
		t.Errorf("%d lines at first, want 1:\n%s", n, p.log)
	}
	p.want(call{"POST", "/grants", aliceToken, `{}`, nil}, http.StatusBadRequest, "RequestError") // another sort
	p.clock.Advance(10 * time.Second)
	refuse()
	if n := lines(`route="GET /auth/me" kind=unauthenticated name=AuthError count=100`); n != 1 || lines("") != 3 {
		t.Errorf("%d lines about the others, %d in all:\n%s", n, lines(""), p.log)
	}
	if strings.Contains(p.log.String(), "token-of-nobody") {
		t.Error("the log holds the token")
	}
}
