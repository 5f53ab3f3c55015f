package controlplane

import (
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/fairlead/fairlead/protocol"
)

type opSession struct {
	Kind string `json:"kind"`
	protocol.SessionCreate
}

func checkSession(*opSession, protocol.UserID) ([]protocol.Capability, error) { return nil, nil }

// opEnv is an env.apply as it is asked for: what is signed has its values
// sealed, see [Server.seal].
type opEnv struct {
	Kind string `json:"kind"`
	protocol.EnvApply
}

func checkEnv(op *opEnv, _ protocol.UserID) ([]protocol.Capability, error) {
	slices.Sort(op.Unset)
	return nil, op.Check()
}

type opEgress struct {
	Kind string `json:"kind"`
	protocol.EgressDecide
}

func checkEgress(op *opEgress, _ protocol.UserID) ([]protocol.Capability, error) {
	if err := checkDecision(op.ApprovalID, op.Revision, op.Pattern != "", op.Decision); err != nil {
		return nil, err
	}
	if op.Pattern == "" {
		return nil, nil
	}
	return nil, checkHost("op.pattern", op.Pattern)
}

type opEgressRevoke struct {
	Kind string `json:"kind"`
	protocol.EgressRevoke
}

func checkEgressRevoke(op *opEgressRevoke, _ protocol.UserID) ([]protocol.Capability, error) {
	return nil, checkHost("op.pattern", op.Pattern)
}

type opBroker struct {
	Kind string `json:"kind"`
	protocol.BrokerDecide
}

func checkBroker(op *opBroker, _ protocol.UserID) ([]protocol.Capability, error) {
	rule := op.Secret != "" || op.Domain != ""
	if err := checkDecision(op.ApprovalID, op.Revision, rule, op.Decision); err != nil {
		return nil, err
	}
	if !rule {
		return nil, nil
	}
	if err := protocol.CheckEnvName(op.Secret); err != nil {
		return nil, err
	}
	return nil, checkHost("op.domain", op.Domain)
}

func checkDecision(approval string, revision uint64, rule bool, d protocol.Decision) error {
	if approval == "" && revision != 0 {
		return protocol.Errorf(protocol.KindInvalid, "op.revision is that of an approval, and op.approvalId is missing")
	}
	return protocol.CheckDecision(approval, revision, rule, d)
}

// maxHostBytes bounds a host name or a pattern of host names.
const maxHostBytes = 255

// checkHost refuses what no sandbox would take for a host or a pattern. What it
// means is for the sandbox alone to say.
func checkHost(member, host string) error {
	if host == "" {
		return protocol.Errorf(protocol.KindInvalid, "%s is missing", member)
	}
	strange := func(r rune) bool { return unicode.IsSpace(r) || !unicode.IsPrint(r) }
	if len(host) > maxHostBytes || !utf8.ValidString(host) || strings.ContainsFunc(host, strange) {
		return protocol.Errorf(protocol.KindInvalid, "%s is not a host name", member)
	}
	return nil
}
