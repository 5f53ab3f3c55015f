package egress

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/fairlead/fairlead/protocol"
)

const ses = protocol.SessionID("ses_1")

func newRules(t *testing.T) *Rules {
	t.Helper()
	r, err := OpenRules(filepath.Join(t.TempDir(), "egress.json"), true)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func decide(t *testing.T, r *Rules, pattern string, d protocol.Decision) {
	t.Helper()
	if err := r.Decide(ses, pattern, d); err != nil {
		t.Fatalf("%s %s: %v", d, pattern, err)
	}
}

func TestVerdicts(t *testing.T) {
	r := newRules(t)
	for _, pattern := range []string{"Allowed.com", "*.Wild.com", "port.com:8443", "bücher.de", "198.51.100.7", "x.evil.com", "both.com"} {
		decide(t, r, pattern, protocol.AllowAlways)
	}
	for _, pattern := range []string{"EVIL.com.", "badport.com:443", "*.below.com", "203.0.113.9", "sub.wild.com", "api.github.com"} {
		decide(t, r, pattern, protocol.DenyAlways)
	}
	for text, want := range map[string]Reason{
		"allowed.com:443":           AllowedByRule,
		"ALLOWED.com.:80":           AllowedByRule,
		"allowed.com:22":            "",
		"x.allowed.com:443":         "",
		"xallowed.com:443":          "",
		"a.wild.com:443":            AllowedByRule,
		"a.b.wild.com:443":          AllowedByRule,
		"wild.com:443":              "",
		"sub.wild.com:443":          DeniedByRule,
		"a.sub.wild.com:443":        DeniedByRule,
		"port.com:8443":             AllowedByRule,
		"port.com:443":              "",
		"xn--bcher-kva.de:443":      AllowedByRule,
		"198.51.100.7:443":          AllowedByRule,
		"0xc6.0x33.0x64.7:443":      AllowedByRule,
		"[::ffff:198.51.100.7]:443": AllowedByRule,
		"203.0.113.9:22":            DeniedByRule,
		"203.0.113.10:443":          "",
		"evil.com:443":              DeniedByRule,
		"EVIL.com:22":               DeniedByRule,
		"evil.com.:443":             DeniedByRule,
		"a.b.evil.com:443":          DeniedByRule,
		"x.evil.com:443":            DeniedByRule, // what denies beats what allows
		"xevil.com:443":             "",
		"badport.com:443":           DeniedByRule,
		"badport.com:80":            "",
		"x.badport.com:443":         DeniedByRule,
		"a.below.com:443":           DeniedByRule,
		"below.com:443":             "",
		"github.com:443":            AllowedByDefault,
		"github.com:22":             AllowedByDefault,
		"github.com:8080":           "",
		"api.github.com:443":        DeniedByRule, // and beats the built-in list
		"pypi.org:443":              AllowedByDefault,
		"unknown.example:443":       "",
	} {
		if got := r.verdict(ses, host(t, text)); got != want {
			t.Errorf("%s: %q, want %q", text, got, want)
		}
	}
	if got := r.verdict("ses_2", host(t, "evil.com:443")); got != "" {
		t.Errorf("in another session: %q", got)
	}
}

func TestRulesReplaceAndRevoke(t *testing.T) {
	r := newRules(t)
	decide(t, r, "a.com:443", protocol.AllowAlways)
	decide(t, r, "A.com.:443", protocol.AllowAlways)
	decide(t, r, "b.com", protocol.AllowOnce) // no rule
	decide(t, r, "b.com", protocol.Deny)
	allow, deny := r.List(ses)
	if !slices.Equal(allow, []string{"a.com:443"}) || len(deny) != 0 {
		t.Errorf("%q, %q", allow, deny)
	}
	decide(t, r, "a.com:443", protocol.DenyAlways)
	allow, deny = r.List(ses)
	if len(allow) != 0 || !slices.Equal(deny, []string{"a.com:443"}) {
		t.Errorf("%q, %q", allow, deny)
	}
	if err := r.Revoke(ses, "a.com"); protocol.KindOf(err) != protocol.KindNotFound {
		t.Errorf("%v", err)
	}
	if err := r.Revoke(ses, "a.COM:443"); err != nil {
		t.Error(err)
	}
	if allow, deny := r.List(ses); len(allow)+len(deny) != 0 {
		t.Errorf("%q, %q", allow, deny)
	}
}

func TestRulesRefuse(t *testing.T) {
	r := newRules(t)
	decide(t, r, "evil.com", protocol.DenyAlways)
	for pattern, want := range map[string]protocol.Kind{
		"": protocol.KindInvalid, "*": protocol.KindInvalid, "*.com": protocol.KindInvalid, "http://a.com": protocol.KindInvalid,
		"a@b.com": protocol.KindInvalid, "x.evil.com": protocol.KindConflict, "*.evil.com": protocol.KindConflict, "evil.com:443": protocol.KindConflict,
	} {
		if err := r.Decide(ses, pattern, protocol.AllowAlways); protocol.KindOf(err) != want || err == nil {
			t.Errorf("%q: %v", pattern, err)
		}
	}
	if err := r.Revoke(ses, "http://a.com"); protocol.KindOf(err) != protocol.KindInvalid {
		t.Error(err)
	}
	decide(t, r, "evil.com", protocol.AllowAlways) // the same pattern: the last one counts
}

func TestRulesAreBounded(t *testing.T) {
	r := newRules(t)
	full := &sessionRules{}
	for i := range MaxSessionRules {
		p, err := patterns([]string{fmt.Sprintf("h%d.com", i)})
		if err != nil {
			t.Fatal(err)
		}
		full.deny = append(full.deny, p...)
	}
	r.sessions[ses] = full
	if err := r.Decide(ses, "more.com", protocol.DenyAlways); protocol.KindOf(err) != protocol.KindTooMany {
		t.Errorf("session: %v", err)
	}
	if err := r.Decide(ses, "h1.com", protocol.AllowAlways); err != nil {
		t.Errorf("replacing: %v", err)
	}
	for i := range MaxRules / MaxSessionRules {
		r.sessions[protocol.SessionID(fmt.Sprint("ses_f", i))] = full
	}
	if err := r.Decide("ses_new", "more.com", protocol.DenyAlways); protocol.KindOf(err) != protocol.KindTooMany {
		t.Errorf("sandbox: %v", err)
	}
}

func TestRulesPersist(t *testing.T) {
	path := filepath.Join(t.TempDir(), "egress.json")
	r, err := OpenRules(path, false)
	if err != nil {
		t.Fatal(err)
	}
	if r.Enabled(ses) {
		t.Error("on by default")
	}
	changed := r.next()
	on := true
	if err := r.SetEnabled(ses, &on); err != nil {
		t.Fatal(err)
	}
	<-changed
	decide(t, r, "a.com:443", protocol.AllowAlways)
	decide(t, r, "*.b.com", protocol.DenyAlways)
	info, err := os.Stat(path)
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("%v, %v", info, err)
	}
	r, err = OpenRules(path, false)
	if err != nil {
		t.Fatal(err)
	}
	allow, deny := r.List(ses)
	if !r.Enabled(ses) || !slices.Equal(allow, []string{"a.com:443"}) || !slices.Equal(deny, []string{"*.b.com"}) {
		t.Errorf("%v, %q, %q", r.Enabled(ses), allow, deny)
	}
	if err := r.Delete(ses); err != nil {
		t.Fatal(err)
	}
	if r, err = OpenRules(path, true); err != nil || len(r.sessions) != 0 || !r.Enabled(ses) {
		t.Errorf("%+v, %v", r, err)
	}
	if left, err := filepath.Glob(path + ".*"); err != nil || len(left) != 0 {
		t.Errorf("%q, %v", left, err)
	}
}

func TestRulesFileRefused(t *testing.T) {
	for _, text := range []string{"", "{", `{"version":2}`, `{"version":1,"sessions":{"s":{"deny":["*"]}}}`, `{"version":1,"sessions":[]}`} {
		path := filepath.Join(t.TempDir(), "egress.json")
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := OpenRules(path, true); err == nil {
			t.Errorf("%q is accepted", text)
		}
	}
	if _, err := OpenRules(t.TempDir(), true); err == nil {
		t.Error("a folder is accepted")
	}
}

// TestRulesWhenDiskFails: nothing changes that isn't on disk.
func TestRulesWhenDiskFails(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "state")
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	r, err := OpenRules(filepath.Join(dir, "egress.json"), true)
	if err != nil {
		t.Fatal(err)
	}
	decide(t, r, "a.com", protocol.DenyAlways)
	if err := os.RemoveAll(dir); err != nil {
		t.Fatal(err)
	}
	err = r.Decide(ses, "a.com", protocol.AllowAlways)
	if protocol.KindOf(err) != protocol.KindUnavailable || strings.Contains(err.Error(), dir) || !errors.Is(err, os.ErrNotExist) {
		t.Errorf("%v", err)
	}
	if got := r.verdict(ses, host(t, "a.com:443")); got != DeniedByRule {
		t.Errorf("%q", got)
	}
}
