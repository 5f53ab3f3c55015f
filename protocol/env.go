package protocol

import "strings"

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

// EnvValues are the sealed values of a signed env.apply.
type EnvValues struct {
	Set             map[string]string    `json:"set,omitempty"`
	Secrets         map[string]EnvSecret `json:"secrets,omitempty"`
	ApprovedDomains []ApprovedDomain     `json:"approvedDomains,omitempty"`
}

// reservedEnv are variables that terminals or the agent depend on; a trailing *
// matches any ending.
var reservedEnv = []string{
	"FAIRLEAD_*", "LD_*", "HOME", "USER", "LOGNAME", "SHELL", "PATH", "TERM", "BASH_ENV", "ENV", "PROMPT_COMMAND",
	"IFS", "PS4", "ZDOTDIR", "UID", "EUID", "PPID", "SHELLOPTS", "BASHOPTS", "BASH_VERSINFO",
	"HTTP_PROXY", "HTTPS_PROXY", "FTP_PROXY", "ALL_PROXY", "NO_PROXY",
}

// CheckEnvName reports whether name may be set: [A-Z_][A-Z0-9_]* (seed 001), at
// most 128 bytes, and not reserved.
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
