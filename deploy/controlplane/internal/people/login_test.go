package people

import (
	"context"
	"net/netip"
	"os"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"github.com/fairlead/fairlead/deploy/controlplane/internal/clock"
	"github.com/fairlead/fairlead/deploy/program/intake"
)

// TestLoginConfig: a setting that can't work is an error at start.
func TestLoginConfig(t *testing.T) {
	good := LoginConfig{Issuer: "https://provider.test", ClientID: "c", PublicURL: "https://fairlead.example"}
	dir := t.TempDir()
	for name, change := range map[string]func(*LoginConfig){
		"no client":         func(c *LoginConfig) { c.ClientID = "" },
		"plain issuer":      func(c *LoginConfig) { c.Issuer = "http://provider.test" },
		"no public URL":     func(c *LoginConfig) { c.PublicURL = "" },
		"plain public URL":  func(c *LoginConfig) { c.PublicURL = "http://fairlead.example" },
		"two policies":      func(c *LoginConfig) { c.AllowSignUp, c.AllowedDomains = true, []string{"a.test"} },
		"not a domain":      func(c *LoginConfig) { c.AllowedDomains = []string{"a@b.test"} },
		"path of an origin": func(c *LoginConfig) { c.PublicURL += "/path" },
	} {
		cfg := good
		change(&cfg)
		if _, err := NewLogin(cfg, dir, clock.Clock{}); err == nil {
			t.Errorf("%s is taken", name)
		}
	}
	l, err := NewLogin(good, dir, clock.Clock{})
	if err != nil {
		t.Fatal(err)
	}
	l.Close()
	info, err := os.Stat(filepath.Join(dir, loginKeyFile))
	if err != nil || info.Mode().Perm() != 0o600 || info.Size() != 32 {
		t.Errorf("login key: %v, %v", info, err)
	}
	if err := os.Chmod(filepath.Join(dir, loginKeyFile), 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := NewLogin(good, dir, clock.Clock{}); err == nil {
		t.Error("a key that others can read is taken")
	}
}

// TestFound13SignIns: the bounds, each with what gives way.
func TestFound13SignIns(t *testing.T) {
	now := time.Now()
	s := newSignIns()
	made := 0
	redeem := func(last byte) (context.Context, func(), string) {
		t.Helper()
		made++
		state, ends := strconv.Itoa(made), now.Add(loginLife).Truncate(time.Second)
		now = now.Add(time.Second / returnsPerSecond)
		ctx, done, err := s.redeem(t.Context(), netip.AddrFrom4([4]byte{192, 0, 2, last}), state, ends, now)
		if err != nil {
			t.Fatal(err)
		}
		return ctx, done, state
	}
	var all []context.Context
	for range redemptionsPerAddress + 2 {
		ctx, _, _ := redeem(1)
		all = append(all, ctx)
	}
	for i, ctx := range all {
		if gone := ctx.Err() != nil; gone != (i < 2) {
			t.Errorf("of one address number %d is gone: %t", i, gone)
		}
	}
	for last := range byte(3) {
		for range redemptionsPerAddress {
			redeem(10 + last)
		}
	}
	other, done, _ := redeem(20) // all places are taken: the oldest of who has the most gives way
	if len(s.redeeming.all) != maxRedemptions || other.Err() != nil {
		t.Errorf("%d at once, %v", len(s.redeeming.all), other.Err())
	}
	done()
	done() // nothing is given back twice
	if len(s.redeeming.all) != maxRedemptions-1 {
		t.Errorf("%d at once", len(s.redeeming.all))
	}
	_, done, first := redeem(30)
	done()
	for range spentPerAddress + 5 {
		_, done, _ := redeem(31)
		done()
	}
	if n := s.states.count[intake.Share(netip.AddrFrom4([4]byte{192, 0, 2, 31}))]; n != spentPerAddress || len(s.spent) != len(s.states.all) {
		t.Errorf("one address has %d states; %d are spent, %d listed", n, len(s.spent), len(s.states.all))
	}
	if _, known := s.spent[first]; !known {
		t.Error("another address's state gave way")
	}
	now = now.Add(loginLife + time.Second)
	redeem(40)
	if len(s.spent) != 1 || len(s.states.count) != 1 {
		t.Errorf("%d states are left of %d addresses", len(s.spent), len(s.states.count))
	}
}
