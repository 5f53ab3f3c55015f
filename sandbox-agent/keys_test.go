package agent

import (
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/tunnel/tunneltest"
)

// problems returns the names of what is wrong with a.
func problems(a *Agent) (names []string) {
	for _, p := range a.state(time.Now()).Problems {
		names = append(names, p.Name)
	}
	return names
}

// TestKeysMaxAge: while the control plane is away the cached keys are believed
// until they are too old, also by an agent that starts then, and believed again
// after news of them.
func TestKeysMaxAge(t *testing.T) {
	w := newWorld(t)
	signer, jwks := newKeys(t)
	cache := filepath.Join(w.cfg.StateDir, keysFile)
	must(t, os.WriteFile(cache, jwks, 0o600))
	age := func(d time.Duration) {
		must(t, os.Chtimes(cache, time.Time{}, time.Now().Add(-d)))
		must(t, os.Chtimes(filepath.Join(w.cfg.StateDir, enrolmentFile), time.Time{}, time.Now().Add(-24*time.Hour)))
	}
	w.handle("GET "+keysPath, func(rw http.ResponseWriter, _ *http.Request) { refuse(rw, http.StatusServiceUnavailable, "away") })
	age(59 * time.Minute)
	a := w.start()
	if _, err := a.keys.Grant(t.Context(), signGrant(t, signer)); err != nil || slices.Contains(problems(a), protocol.ProblemKeys) {
		t.Errorf("within their time: %v, %v", err, problems(a))
	}
	a.close()

	age(61 * time.Minute)
	a = w.start()
	if _, err := a.keys.Grant(t.Context(), signGrant(t, signer)); err == nil || protocol.KindOf(err) != protocol.KindUnavailable {
		t.Errorf("too old: %v", err)
	}
	if !slices.Contains(problems(a), protocol.ProblemKeys) || a.state(time.Now()).Ready {
		t.Errorf("problems %v", problems(a))
	}
	near, far := tunneltest.Pair(t)
	w.answerConnect(far, certify(t, &w.ca, serverName))
	c := a.tunnels.arrive(near, "127.0.0.1:1")
	defer a.tunnels.depart(c)
	if err := a.keys.Refresh(within(t)); err == nil {
		t.Error("the control plane is there")
	}
	w.mu.Lock()
	w.jwks = jwks
	delete(w.routes, "GET "+keysPath)
	w.mu.Unlock()
	must(t, a.keys.Refresh(within(t)))
	if _, err := a.keys.Grant(t.Context(), signGrant(t, signer)); err != nil || slices.Contains(problems(a), protocol.ProblemKeys) {
		t.Errorf("with news: %v, %v", err, problems(a))
	}
	if info, err := os.Stat(cache); err != nil || time.Since(info.ModTime()) > time.Minute {
		t.Errorf("the cache is as old as before: %v", err)
	}
}

// A file from the future is from now: clocks are set back.
func TestKeysFromTheFuture(t *testing.T) {
	w := newWorld(t)
	path := filepath.Join(w.cfg.StateDir, enrolmentFile)
	must(t, os.Chtimes(path, time.Time{}, time.Now().Add(24*time.Hour)))
	a := w.start()
	if fetched := *a.keysFetched.Load(); time.Since(fetched) < 0 {
		t.Errorf("fetched at %v", fetched)
	}
}

func TestKeysMaxAgeMustMakeSense(t *testing.T) {
	w := newWorld(t)
	w.cfg.KeysMaxAge = -time.Second
	if _, err := New(w.cfg); err == nil || !strings.Contains(err.Error(), "--keys-max-age") {
		t.Errorf("%v", err)
	}
}
