package op

import (
	"maps"
	"slices"
	"strings"

	"github.com/fairlead/fairlead/protocol"
)

// KindEnvApply sets variables and secrets.
const KindEnvApply = "env.apply"

var environment = []Spec{{
	Kind: KindEnvApply, Needs: protocol.CapEnv, Target: TargetSessionOrTerminal, Lane: LaneScope,
	Body: (*EnvSealed)(nil), Asked: (*EnvApply)(nil),
}}

// minSecretBytes is the shortest accepted secret: a shorter one would be masked
// wherever it occurs by chance.
const minSecretBytes = 8

// EnvApply is the body of env.apply in a person's request. The signed form is
// [EnvSealed], whose values its carriers can't read.
type EnvApply struct {
	Set             map[string]string             `json:"set,omitempty"`     // variables that output may show
	Secrets         map[string]protocol.EnvSecret `json:"secrets,omitempty"` // variables that output never shows
	ApprovedDomains []protocol.ApprovedDomain     `json:"approvedDomains,omitempty"`
	Unset           []string                      `json:"unset,omitempty"`
	ApplyNow        bool                          `json:"applyNow,omitempty"` // running shells too, before their next prompt
}

// EnvSealed is the body of env.apply in its signed form.
type EnvSealed struct {
	Names    []string `json:"names,omitempty"` // of the variables in Sealed, for whoever reads the command
	Sealed   []byte   `json:"sealed"`          // EnvValues, see package envseal
	Unset    []string `json:"unset,omitempty"`
	ApplyNow bool     `json:"applyNow,omitempty"`
}

// Check accepts everything: only the sandbox can open the box.
func (*EnvSealed) Check() error { return nil }

// AskedBy sorts Unset, so that its order doesn't change what is signed.
func (b *EnvApply) AskedBy(protocol.UserID) ([]protocol.Capability, error) {
	slices.Sort(b.Unset)
	return nil, nil
}

// Conceal implements [Concealer]. Names stay readable, sorted.
func (b *EnvApply) Conceal() (values any, signed func(box []byte) Body) {
	names := slices.AppendSeq(slices.Collect(maps.Keys(b.Set)), maps.Keys(b.Secrets))
	slices.Sort(names)
	return protocol.EnvValues{Set: b.Set, Secrets: b.Secrets, ApprovedDomains: b.ApprovedDomains}, func(box []byte) Body {
		return &EnvSealed{Names: names, Sealed: box, Unset: b.Unset, ApplyNow: b.ApplyNow}
	}
}

// Check reports what is wrong with an env.apply. Its errors are of kind invalid
// and name variables, never values.
func (e *EnvApply) Check() error {
	if len(e.Set)+len(e.Secrets)+len(e.ApprovedDomains)+len(e.Unset) == 0 {
		return protocol.Errorf(protocol.KindInvalid, "env.apply changes nothing")
	}
	if n := len(e.Set) + len(e.Secrets) + len(e.Unset); n > protocol.MaxEnvNames {
		return protocol.Errorf(protocol.KindTooLarge, "env.apply names %d variables, %d are allowed", n, protocol.MaxEnvNames)
	}
	seen := make(map[string]bool)
	once := func(name string) error {
		if seen[name] {
			return protocol.Errorf(protocol.KindInvalid, "%s is named twice", name)
		}
		seen[name] = true
		return protocol.CheckEnvName(name)
	}
	for name, value := range e.Set {
		if err := once(name); err != nil {
			return err
		}
		if strings.IndexByte(value, 0) >= 0 {
			return protocol.Errorf(protocol.KindInvalid, "%s: a value can't hold a NUL", name)
		}
	}
	for name, secret := range e.Secrets {
		if err := once(name); err != nil {
			return err
		}
		if strings.IndexByte(secret.Value, 0) >= 0 {
			return protocol.Errorf(protocol.KindInvalid, "%s: a value can't hold a NUL", name)
		}
		if len(strings.TrimSpace(secret.Value)) < minSecretBytes {
			return protocol.Errorf(protocol.KindInvalid, "%s: a secret has %d bytes at least, or it would be masked wherever it happens to stand; set it as a plain variable", name, minSecretBytes)
		}
	}
	for _, name := range e.Unset {
		if err := once(name); err != nil {
			return err
		}
	}
	return e.checkDomains()
}

func (e *EnvApply) checkDomains() error {
	for _, d := range e.ApprovedDomains {
		if err := protocol.CheckEnvName(d.Secret); err != nil {
			return err
		}
		if d.Domain == "" || len(d.Domain) > 253 {
			return protocol.Errorf(protocol.KindInvalid, "%s: an approved domain is a host name", d.Secret)
		}
		if d.HeaderFormat != "" && (strings.Count(d.HeaderFormat, "%s") != 1 || strings.Count(d.HeaderFormat, "%") != 1) {
			return protocol.Errorf(protocol.KindInvalid, "%s: headerFormat must hold %%s once and no other %%", d.Secret)
		}
		if strings.ContainsAny(d.HeaderName+d.HeaderFormat, "\r\n\x00") {
			return protocol.Errorf(protocol.KindInvalid, "%s: not a header", d.Secret)
		}
	}
	return nil
}

// An EnvList is the answer of GET /sessions/{sid}/env: names, never values.
type EnvList struct {
	Variables []EnvVariable `json:"variables"`
}

// An EnvVariable is a variable of a session, or of one terminal.
type EnvVariable struct {
	Name            string         `json:"name"`
	PTYID           protocol.PTYID `json:"pty_id,omitempty"` // set for this terminal alone
	Secret          bool           `json:"secret"`
	BrokerProtected bool           `json:"broker_protected"`
	Domains         []string       `json:"domains,omitempty"` // approved for a custom secret
}
