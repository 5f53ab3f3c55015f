package op

import "github.com/fairlead/fairlead/protocol"

// Kinds of operations that the control plane issues by itself.
const (
	KindGrantRevoke         = "grant.revoke"
	KindIntegrationsChanged = "integrations.changed"
)

var authority = []Spec{
	{Kind: KindGrantRevoke, Needs: protocol.CapAdmin, Target: TargetSandbox, Lane: LaneFree, Own: true, Body: (*GrantRevoke)(nil)},
	{Kind: KindIntegrationsChanged, Needs: protocol.CapAdmin, Target: TargetSessionOrTerminal, Lane: LaneFree, Own: true, Body: (*Plain)(nil)},
}

// maxRevoked bounds the grants of one grant.revoke.
const maxRevoked = 1000

// GrantRevoke is the body of grant.revoke: these grants are revoked.
type GrantRevoke struct {
	Grants []protocol.GrantID `json:"grants"` // 1 to 1,000
}

// Check requires grants.
func (b *GrantRevoke) Check() error {
	if len(b.Grants) == 0 || len(b.Grants) > maxRevoked {
		return protocol.Errorf(protocol.KindInvalid, "grants: from 1 to %d", maxRevoked)
	}
	for _, id := range b.Grants {
		if !protocol.ValidID(id) {
			return protocol.Errorf(protocol.KindInvalid, "grants: not an id")
		}
	}
	return nil
}
