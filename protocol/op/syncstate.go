package op

import "github.com/fairlead/fairlead/protocol"

// SyncAnswer is the body of the 200 with which a sink answers an envelope, of at
// most 64 KiB as JSON. Values are nowhere in it.
type SyncAnswer struct {
	Written      int            `json:"written"`
	Dropped      int            `json:"dropped"` // by the sink's policy
	DroppedHosts map[string]int `json:"dropped_hosts"`
	Refused      []SyncRefusal  `json:"refused"`           // what can't stand in Chromium
	Ignored      []string       `json:"ignored"`           // members that the sink has no use for
	Duplicates   int            `json:"duplicates"`        // the last one of a host, name and path counts
	Removed      int            `json:"removed,omitempty"` // of a complete envelope: those that weren't in it
	More         int            `json:"more,omitempty"`    // of DroppedHosts and Refused, what didn't fit
}

// A SyncRefusal is a cookie that isn't set, and why.
type SyncRefusal struct {
	HostKey string `json:"host_key"`
	Name    string `json:"name"`
	Reason  string `json:"reason"`
}

// SyncState is the answer of GET /sessions/{sid}/sync: whose logins a session's
// browser has.
type SyncState struct {
	Policy   SyncPolicyState `json:"policy"`
	Pairings []SyncPairing   `json:"pairings"`
	Sites    []SyncSite      `json:"sites"`
}

// SyncPolicyState is which sites' cookies the session takes.
type SyncPolicyState struct {
	Policy  string       `json:"policy"` // sync-all, blocklist or allowlist
	Domains []SyncDomain `json:"domains"`
	Error   string       `json:"error,omitempty"` // why it can't be read, so that nothing is taken
}

// A SyncPairing is one browser of somebody's whose cookies the session gets.
type SyncPairing struct {
	ID          protocol.PairingID `json:"id"`
	User        protocol.UserID    `json:"user"`           // who has paired it
	Name        string             `json:"name"`           // what they call it
	Mode        string             `json:"mode"`           // paired or secret
	Fingerprint string             `json:"fingerprint"`    // of the key that both sides have
	URL         string             `json:"url,omitempty"`  // for whoever has the capability sync
	Versions    []int              `json:"versions"`       // of envelopes
	PairedAt    int64              `json:"pairedAt"`       // Unix ms
	Last        *SyncPush          `json:"last,omitempty"` // nil: none yet
}

// A SyncPush is what came of an envelope.
type SyncPush struct {
	At       int64  `json:"at"`       // Unix ms
	Hostname string `json:"hostname"` // as the envelope has it
	Sequence int64  `json:"sequence"`
	Written  int    `json:"written"`
	Dropped  int    `json:"dropped"`
	Refused  int    `json:"refused"`
}

// A SyncSite is a host of which the session has cookies by a pairing.
type SyncSite struct {
	Site    string             `json:"site"` // host_key without the leading dot
	Cookies int                `json:"cookies"`
	Pairing protocol.PairingID `json:"pairing"`
}
