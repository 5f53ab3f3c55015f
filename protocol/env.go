package protocol

import "strings"

// minSecretBytes is the shortest secret that is accepted: a shorter one would
// be masked wherever it happens to stand.
const minSecretBytes = 8

// EnvApply holds the members of op for env.apply as a user asks for it, beside
// "kind". The target is a session, or one terminal of it. What is signed is an
// [EnvCommand]: whoever carries that can't read the values.
type EnvApply struct {
	Set             map[string]string    `json:"set,omitempty"`     // variables that anybody may see
	Secrets         map[string]EnvSecret `json:"secrets,omitempty"` // variables that output never shows
	ApprovedDomains []ApprovedDomain     `json:"approvedDomains,omitempty"`
	Unset           []string             `json:"unset,omitempty"`
	ApplyNow        bool                 `json:"applyNow,omitempty"` // running shells too, before their next prompt
}

// EnvSecret is the value of a secret, of 8 bytes at least.
type EnvSecret struct {
	Value           string `json:"value"`
	BrokerProtected bool   `json:"brokerProtected,omitempty"` // terminals get a placeholder; the broker puts it into requests
}

// An ApprovedDomain lets the broker send a custom secret to a host.
type ApprovedDomain struct {
	Secret       string `json:"secret"`                 // name of its variable
	Domain       string `json:"domain"`                 // a host, exactly
	HeaderName   string `json:"headerName,omitempty"`   // default Authorization
	HeaderFormat string `json:"headerFormat,omitempty"` // with one %s; default "Bearer %s"
}

// EnvCommand holds the members of op for env.apply as it is signed, beside
// "kind".
type EnvCommand struct {
	Names    []string `json:"names,omitempty"` // of the variables in Sealed, for whoever reads the command
	Sealed   []byte   `json:"sealed"`          // EnvValues, see package envseal
	Unset    []string `json:"unset,omitempty"`
	ApplyNow bool     `json:"applyNow,omitempty"`
}

// EnvValues is what an [EnvCommand] has sealed.
type EnvValues struct {
	Set             map[string]string    `json:"set,omitempty"`
	Secrets         map[string]EnvSecret `json:"secrets,omitempty"`
	ApprovedDomains []ApprovedDomain     `json:"approvedDomains,omitempty"`
}

// Check reports what is wrong with an env.apply. Its errors are of kind invalid
// and name variables, never values.
func (e EnvApply) Check() error {
	if len(e.Set)+len(e.Secrets)+len(e.ApprovedDomains)+len(e.Unset) == 0 {
		return Errorf(KindInvalid, "env.apply changes nothing")
	}
	if n := len(e.Set) + len(e.Secrets) + len(e.Unset); n > MaxEnvNames {
		return Errorf(KindTooLarge, "env.apply names %d variables, %d are allowed", n, MaxEnvNames)
	}
	seen := make(map[string]bool)
	once := func(name string) error {
		if seen[name] {
			return Errorf(KindInvalid, "%s is named twice", name)
		}
		seen[name] = true
		return CheckEnvName(name)
	}
	for name, value := range e.Set {
		if err := once(name); err != nil {
			return err
		}
		if strings.IndexByte(value, 0) >= 0 {
			return Errorf(KindInvalid, "%s: a value can't hold a NUL", name)
		}
	}
	for name, secret := range e.Secrets {
		if err := once(name); err != nil {
			return err
		}
		if strings.IndexByte(secret.Value, 0) >= 0 {
			return Errorf(KindInvalid, "%s: a value can't hold a NUL", name)
		}
		if len(strings.TrimSpace(secret.Value)) < minSecretBytes {
			return Errorf(KindInvalid, "%s: a secret has %d bytes at least, or it would be masked wherever it happens to stand; set it as a plain variable", name, minSecretBytes)
		}
	}
	for _, name := range e.Unset {
		if err := once(name); err != nil {
			return err
		}
	}
	return e.checkDomains()
}

func (e EnvApply) checkDomains() error {
	for _, d := range e.ApprovedDomains {
		if err := CheckEnvName(d.Secret); err != nil {
			return err
		}
		if d.Domain == "" || len(d.Domain) > 253 {
			return Errorf(KindInvalid, "%s: an approved domain is a host name", d.Secret)
		}
		if d.HeaderFormat != "" && (strings.Count(d.HeaderFormat, "%s") != 1 || strings.Count(d.HeaderFormat, "%") != 1) {
			return Errorf(KindInvalid, "%s: headerFormat must hold %%s once and no other %%", d.Secret)
		}
		if strings.ContainsAny(d.HeaderName+d.HeaderFormat, "\r\n\x00") {
			return Errorf(KindInvalid, "%s: not a header", d.Secret)
		}
	}
	return nil
}

// reservedEnv are variables that decide how a terminal or the agent works; a
// trailing * stands for any ending.
var reservedEnv = []string{
	"FAIRLEAD_*", "LD_*", "HOME", "USER", "LOGNAME", "SHELL", "PATH", "TERM", "BASH_ENV", "ENV", "PROMPT_COMMAND",
	"IFS", "PS4", "ZDOTDIR", "UID", "EUID", "PPID", "SHELLOPTS", "BASHOPTS", "BASH_VERSINFO",
	"HTTP_PROXY", "HTTPS_PROXY", "FTP_PROXY", "ALL_PROXY", "NO_PROXY",
}

// CheckEnvName reports whether name may be set: [A-Z_][A-Z0-9_]* (seed 001), at
// most 128 bytes, and none that terminals themselves depend on.
func CheckEnvName(name string) error {
	if name == "" || len(name) > MaxIDBytes {
		return Errorf(KindInvalid, "the name of a variable has 1 to %d bytes", MaxIDBytes)
	}
	for i := range len(name) {
		c := name[i]
		if c != '_' && (c < 'A' || c > 'Z') && (i == 0 || c < '0' || c > '9') {
			return Errorf(KindInvalid, "%.40q is not the name of a variable: [A-Z_][A-Z0-9_]*", name)
		}
	}
	for _, reserved := range reservedEnv {
		if stem, all := strings.CutSuffix(reserved, "*"); name == reserved || all && strings.HasPrefix(name, stem) {
			return Errorf(KindInvalid, "%s is set by the sandbox itself", name)
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
	Name            string   `json:"name"`
	PTYID           PTYID    `json:"pty_id,omitempty"` // set for this terminal alone
	Secret          bool     `json:"secret"`
	BrokerProtected bool     `json:"broker_protected"`
	Domains         []string `json:"domains,omitempty"` // approved for a custom secret
}
