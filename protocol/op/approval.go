package op

import (
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/fairlead/fairlead/protocol"
)

// Kinds of operations that decide what a sandbox may do.
const (
	KindEgressDecide = "egress.decide"
	KindEgressRevoke = "egress.revoke"
	KindBrokerDecide = "broker.decide"
)

var approvals = []Spec{
	{Kind: KindEgressDecide, Needs: protocol.CapApprove, Target: TargetSession, Lane: LaneDecision, Body: (*EgressDecide)(nil)},
	{Kind: KindEgressRevoke, Needs: protocol.CapApprove, Target: TargetSession, Lane: LaneDecision, Body: (*EgressRevoke)(nil)},
	{Kind: KindBrokerDecide, Needs: protocol.CapApprove, Target: TargetSession, Lane: LaneDecision, Body: (*BrokerDecide)(nil)},
}

// EgressDecide is the body of egress.decide. It either answers an approval or
// makes a rule for Pattern.
type EgressDecide struct {
	ApprovalID string            `json:"approvalId,omitempty"`
	Revision   uint64            `json:"revision,omitempty"` // of the approval
	Pattern    string            `json:"pattern,omitempty"`  // a host or *.host; Decision is allow_always or deny_always
	Decision   protocol.Decision `json:"decision"`
}

// Rule reports whether the decision is a rule rather than an answer.
func (b *EgressDecide) Rule() bool { return b.Pattern != "" }

// Check requires either an answer or a rule.
func (b *EgressDecide) Check() error {
	if err := checkDecision(b.ApprovalID, b.Revision, b.Rule(), b.Decision); err != nil || !b.Rule() {
		return err
	}
	return CheckHost("op.pattern", b.Pattern)
}

// EgressRevoke is the body of egress.revoke: it removes the session's rules for
// Pattern.
type EgressRevoke struct {
	Pattern string `json:"pattern"`
}

// Check requires a pattern.
func (b *EgressRevoke) Check() error { return CheckHost("op.pattern", b.Pattern) }

// BrokerDecide is the body of broker.decide. It either answers an approval, or
// says whether Secret may go to Domain from now on.
type BrokerDecide struct {
	ApprovalID string            `json:"approvalId,omitempty"`
	Revision   uint64            `json:"revision,omitempty"` // of the approval
	Secret     string            `json:"secret,omitempty"`
	Domain     string            `json:"domain,omitempty"`
	Decision   protocol.Decision `json:"decision"`
}

// Rule reports whether the decision is a rule rather than an answer.
func (b *BrokerDecide) Rule() bool { return b.Secret != "" || b.Domain != "" }

// Check requires either an answer or a rule.
func (b *BrokerDecide) Check() error {
	if err := checkDecision(b.ApprovalID, b.Revision, b.Rule(), b.Decision); err != nil || !b.Rule() {
		return err
	}
	if err := protocol.CheckEnvName(b.Secret); err != nil {
		return err
	}
	return CheckHost("op.domain", b.Domain)
}

// checkDecision reports what is wrong with a decision that either answers an
// approval or makes a rule.
func checkDecision(approval string, revision uint64, rule bool, d protocol.Decision) error {
	switch {
	case approval == "" && revision != 0:
		return protocol.Errorf(protocol.KindInvalid, "op.revision is that of an approval, and op.approvalId is missing")
	case !d.Known():
		return protocol.Errorf(protocol.KindInvalid, "decision: allow_once, allow_always, deny or deny_always")
	case approval == "" && !rule:
		return protocol.Errorf(protocol.KindInvalid, "approvalId is missing")
	case approval != "" && rule:
		return protocol.Errorf(protocol.KindInvalid, "either an approval is answered or a rule is made")
	case approval != "" && (!protocol.ValidID(approval) || revision == 0):
		return protocol.Errorf(protocol.KindInvalid, "approvalId must be an id, revision that of the approval as it was shown")
	case rule && !d.Lasts():
		return protocol.Errorf(protocol.KindInvalid, "a rule is allow_always or deny_always")
	}
	return nil
}

// maxHostBytes bounds a host name or a pattern of host names.
const maxHostBytes = 255

// CheckHost refuses what no sandbox would accept as a host or a pattern. The
// sandbox makes the final check.
func CheckHost(member, host string) error {
	if host == "" {
		return protocol.Errorf(protocol.KindInvalid, "%s is missing", member)
	}
	strange := func(r rune) bool { return unicode.IsSpace(r) || !unicode.IsPrint(r) }
	if len(host) > maxHostBytes || !utf8.ValidString(host) || strings.ContainsFunc(host, strange) {
		return protocol.Errorf(protocol.KindInvalid, "%s is not a host name", member)
	}
	return nil
}
