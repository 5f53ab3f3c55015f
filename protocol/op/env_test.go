package op

import (
	"strings"
	"testing"

	"github.com/fairlead/fairlead/protocol"
)

func TestCheckEnv(t *testing.T) {
	secret := func(value string) map[string]protocol.EnvSecret {
		return map[string]protocol.EnvSecret{"MY_KEY": {Value: value}}
	}
	many := map[string]string{}
	for i := range protocol.MaxEnvNames + 1 {
		many["A"+strings.Repeat("B", i%100)+strings.Repeat("C", i/100)] = ""
	}
	for name, c := range map[string]struct {
		apply EnvApply
		want  protocol.Kind
		says  string
	}{
		"nothing":         {EnvApply{ApplyNow: true}, protocol.KindInvalid, "nothing"},
		"named twice":     {EnvApply{Set: map[string]string{"MY_KEY": "x"}, Unset: []string{"MY_KEY"}}, protocol.KindInvalid, "MY_KEY is named twice"},
		"lower case":      {EnvApply{Set: map[string]string{"my_key": "x"}}, protocol.KindInvalid, "my_key"},
		"a digit first":   {EnvApply{Unset: []string{"1A"}}, protocol.KindInvalid, "1A"},
		"no name":         {EnvApply{Unset: []string{""}}, protocol.KindInvalid, "1 to"},
		"PATH":            {EnvApply{Set: map[string]string{"PATH": "x"}}, protocol.KindInvalid, "PATH"},
		"the loader":      {EnvApply{Set: map[string]string{"LD_PRELOAD": "x"}}, protocol.KindInvalid, "LD_PRELOAD"},
		"read by bash":    {EnvApply{Set: map[string]string{"SHELLOPTS": "xtrace"}}, protocol.KindInvalid, "SHELLOPTS"},
		"our own":         {EnvApply{Unset: []string{"FAIRLEAD_PTY_ID"}}, protocol.KindInvalid, "FAIRLEAD_PTY_ID"},
		"NUL":             {EnvApply{Set: map[string]string{"A": "x\x00y"}}, protocol.KindInvalid, "NUL"},
		"NUL in a secret": {EnvApply{Secrets: secret("canary-canary\x00")}, protocol.KindInvalid, "NUL"},
		"short secret":    {EnvApply{Secrets: secret("canary1")}, protocol.KindInvalid, "8 bytes"},
		"blank secret":    {EnvApply{Secrets: secret("  canary1  ")}, protocol.KindInvalid, "8 bytes"},
		"too many":        {EnvApply{Set: many}, protocol.KindTooLarge, "500"},
		"no domain":       {EnvApply{ApprovedDomains: []protocol.ApprovedDomain{{Secret: "K"}}}, protocol.KindInvalid, "host"},
		"two places": {EnvApply{ApprovedDomains: []protocol.ApprovedDomain{{Secret: "K", Domain: "a.com", HeaderFormat: "%s%s"}}},
			protocol.KindInvalid, "once"},
		"another verb": {EnvApply{ApprovedDomains: []protocol.ApprovedDomain{{Secret: "K", Domain: "a.com", HeaderFormat: "%s %d"}}},
			protocol.KindInvalid, "once"},
		"a line end": {EnvApply{ApprovedDomains: []protocol.ApprovedDomain{{Secret: "K", Domain: "a.com", HeaderName: "X\r\nY"}}},
			protocol.KindInvalid, "header"},
	} {
		err := c.apply.Check()
		if protocol.KindOf(err) != c.want || err == nil || !strings.Contains(err.Error(), c.says) || strings.Contains(err.Error(), "canary") {
			t.Errorf("%s: %v, want %s and %q", name, err, c.want, c.says)
		}
	}
	good := EnvApply{
		Set: map[string]string{"EDITOR": "vi"}, Secrets: secret("12345678"), Unset: []string{"_OLD1"},
		ApprovedDomains: []protocol.ApprovedDomain{{Secret: "MY_KEY", Domain: "api.example.com", HeaderName: "X-Key", HeaderFormat: "Token %s"}},
	}
	if err := good.Check(); err != nil {
		t.Error(err)
	}
	if err := (&EnvApply{ApprovedDomains: good.ApprovedDomains}).Check(); err != nil { // the control plane of seed 001 sends it
		t.Error(err)
	}
}

func TestCheckDecision(t *testing.T) {
	for name, c := range map[string]struct {
		approval string
		revision uint64
		rule     bool
		decision protocol.Decision
		ok       bool
	}{
		"an answer":           {"ap_1", 1, false, protocol.AllowOnce, true},
		"a rule":              {"", 0, true, protocol.DenyAlways, true},
		"neither":             {"", 0, false, protocol.Deny, false},
		"both":                {"ap_1", 1, true, protocol.AllowAlways, false},
		"no revision":         {"ap_1", 0, false, protocol.Deny, false},
		"not an id":           {"../x", 1, false, protocol.Deny, false},
		"a rule for once":     {"", 0, true, protocol.AllowOnce, false},
		"an unknown decision": {"ap_1", 1, false, "maybe", false},
	} {
		if err := checkDecision(c.approval, c.revision, c.rule, c.decision); (err == nil) != c.ok || err != nil && protocol.KindOf(err) != protocol.KindInvalid {
			t.Errorf("%s: %v", name, err)
		}
	}
}
