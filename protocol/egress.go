package protocol

// An EgressState says whether a terminal is confined to the egress proxy.
type EgressState string

const (
	EgressOff      EgressState = "off"      // not confined
	EgressAdvisory EgressState = "advisory" // its environment names the proxy; who ignores that gets out
	EgressEnforced EgressState = "enforced" // the kernel lets it out by the proxy alone
)

// EgressRules is the answer of GET /sessions/{sid}/egress/allowlist.
type EgressRules struct {
	State    EgressState      `json:"state"`            // of new terminals
	Why      string           `json:"why,omitempty"`    // why it is only advisory
	Defaults []EgressCategory `json:"defaults"`         // for every session
	User     []string         `json:"user"`             // allowed by decision
	Denied   []string         `json:"denied"`           // denied by decision
	Static   []string         `json:"static,omitempty"` // hosts that the operator has given addresses
}

// An EgressCategory is a named part of the default allowlist.
type EgressCategory struct {
	Name     string   `json:"name"`
	Patterns []string `json:"patterns"`
}
