package egress

import (
	"errors"
	"fmt"
	"math"
	"os"
	"sync"

	"github.com/google/nftables"
	"github.com/google/nftables/binaryutil"
	"github.com/google/nftables/expr"
	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/protocol"
)

const (
	// dnsPort is blocked even on loopback: a resolver there asks others, and a
	// query can carry anything out.
	dnsPort = 53
	// What nftables' reject expression answers: a TCP reset, or the ICMP error
	// "administratively prohibited" of either version.
	rejectReset      = 1
	rejectICMPX      = 2
	rejectProhibited = 3

	sreg uint32 = 1 // the register used by expressions
)

// An Enforcer confines the processes of some users to the loopback interface,
// and so to the proxy, with its own nftables table. If it can't,
// [Enforcer.Status] says why and the rest does nothing. It is safe for
// concurrent use.
//
// It blocks every protocol over IP for processes of the user. It doesn't block
// what root does for them, AF_VSOCK, or a socket that another user opened and
// passed on. Users are those of the network namespace: two agents with the same
// uids share the restriction.
type Enforcer struct {
	// Static after construction.
	table *nftables.Table
	uids  *nftables.Set
	why   string // why nothing is enforced

	// Guarded by mu.
	mu      sync.Mutex
	members map[int]bool
	closed  bool
}

// NewEnforcer sets up a sandbox's table, without users. It replaces a table
// left by a killed agent of the same sandbox.
func NewEnforcer(sandbox protocol.SandboxID) *Enforcer {
	e := &Enforcer{members: map[int]bool{}}
	e.table = &nftables.Table{Family: nftables.TableFamilyINet, Name: "fairlead_" + string(sandbox)}
	e.uids = &nftables.Set{Table: e.table, Name: "uids", KeyType: nftables.TypeUID, KeyByteOrder: binaryutil.NativeEndian}
	if os.Geteuid() != 0 {
		e.why = "needs root"
		return e
	}
	if err := e.setUp(); err != nil {
		e.why = fmt.Sprintf("nftables: %v", err)
	}
	return e
}

// setUp replaces the table in one transaction.
func (e *Enforcer) setUp() error {
	conn, err := nftables.New()
	if err != nil {
		return err
	}
	conn.AddTable(e.table) // otherwise there may be nothing to delete
	conn.DelTable(e.table)
	conn.AddTable(e.table)
	if err := conn.AddSet(e.uids, nil); err != nil {
		return err
	}
	accept := nftables.ChainPolicyAccept
	// Before address translation, so that a resolver on loopback that is reached
	// by translation is still seen at port 53 ...
	output := conn.AddChain(&nftables.Chain{
		Name: "output", Table: e.table, Type: nftables.ChainTypeFilter, Policy: &accept,
		Hooknum: nftables.ChainHookOutput, Priority: nftables.ChainPriorityRaw,
	})
	// ... and after it, where the outgoing interface is final.
	last := conn.AddChain(&nftables.Chain{
		Name: "postrouting", Table: e.table, Type: nftables.ChainTypeFilter, Policy: &accept,
		Hooknum: nftables.ChainHookPostrouting, Priority: nftables.ChainPriorityLast,
	})
	prohibit := &expr.Reject{Type: rejectICMPX, Code: rejectProhibited}
	reset := &expr.Reject{Type: rejectReset}      // for TCP, which ignores other errors for a while
	drop := &expr.Verdict{Kind: expr.VerdictDrop} // the only verdict possible there
	for _, rule := range []struct {
		chain *nftables.Chain
		match []expr.Any
		then  expr.Any
	}{
		{output, append(offLoopback(), overTCP()...), reset},
		{output, offLoopback(), prohibit},
		{output, append(overTCP(), toPort(dnsPort)...), reset},
		{output, append(overUDP(), toPort(dnsPort)...), prohibit},
		{last, offLoopback(), drop},
	} {
		exprs := append(e.ofUsers(), rule.match...)
		conn.AddRule(&nftables.Rule{Table: e.table, Chain: rule.chain, Exprs: append(exprs, rule.then)})
	}
	return conn.Flush()
}

// ofUsers matches packets of sockets that a member opened.
func (e *Enforcer) ofUsers() []expr.Any {
	return []expr.Any{
		&expr.Meta{Key: expr.MetaKeySKUID, Register: sreg},
		&expr.Lookup{SourceRegister: sreg, SetName: e.uids.Name, SetID: e.uids.ID},
	}
}

// offLoopback matches packets that leave by another interface than lo.
func offLoopback() []expr.Any {
	return []expr.Any{
		&expr.Meta{Key: expr.MetaKeyOIFTYPE, Register: sreg},
		&expr.Cmp{Op: expr.CmpOpNeq, Register: sreg, Data: binaryutil.NativeEndian.PutUint16(unix.ARPHRD_LOOPBACK)},
	}
}

func overTCP() []expr.Any { return over(unix.IPPROTO_TCP) }
func overUDP() []expr.Any { return over(unix.IPPROTO_UDP) }

// over matches packets of a transport protocol.
func over(transport byte) []expr.Any {
	return []expr.Any{
		&expr.Meta{Key: expr.MetaKeyL4PROTO, Register: sreg},
		&expr.Cmp{Op: expr.CmpOpEq, Register: sreg, Data: []byte{transport}},
	}
}

// toPort matches packets of TCP or UDP to a port.
func toPort(port uint16) []expr.Any {
	return []expr.Any{
		&expr.Payload{DestRegister: sreg, Base: expr.PayloadBaseTransportHeader, Offset: 2, Len: 2},
		&expr.Cmp{Op: expr.CmpOpEq, Register: sreg, Data: binaryutil.BigEndian.PutUint16(port)},
	}
}

// Status returns how well terminals with egress are confined to the proxy, and
// why not better.
func (e *Enforcer) Status() (state protocol.EgressState, why string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	switch {
	case e.why != "":
		return protocol.EgressAdvisory, e.why
	case e.closed:
		return protocol.EgressAdvisory, "the agent is stopping"
	default:
		return protocol.EgressEnforced, ""
	}
}

// errUID says that a user can't be confined.
var errUID = errors.New("egress: only users above 0 can be confined")

// Add confines a user, from the next packet on. An error means that it isn't
// confined; if nothing is enforced there is none.
func (e *Enforcer) Add(uid int) error { return e.change(uid, true) }

// Remove lifts a user's confinement.
func (e *Enforcer) Remove(uid int) error { return e.change(uid, false) }

func (e *Enforcer) change(uid int, member bool) error {
	if uid <= 0 || uid >= math.MaxUint32 {
		return errUID
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.why != "" || e.closed || e.members[uid] == member {
		return nil
	}
	conn, err := nftables.New()
	if err != nil {
		return fmt.Errorf("egress: nftables: %w", err)
	}
	element := []nftables.SetElement{{Key: binaryutil.NativeEndian.PutUint32(uint32(uid))}}
	if member {
		err = conn.SetAddElements(e.uids, element)
	} else {
		err = conn.SetDeleteElements(e.uids, element)
	}
	if err == nil {
		err = conn.Flush()
	}
	if err != nil {
		return fmt.Errorf("egress: nftables: user %d: %w", uid, err)
	}
	if member {
		e.members[uid] = true
	} else {
		delete(e.members, uid)
	}
	return nil
}

// Close removes the table, so that nobody is confined any more. Call it after
// the terminals have ended.
func (e *Enforcer) Close() error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.why != "" || e.closed {
		return nil
	}
	e.closed = true
	conn, err := nftables.New()
	if err != nil {
		return fmt.Errorf("egress: nftables: %w", err)
	}
	conn.DelTable(e.table)
	if err := conn.Flush(); err != nil {
		return fmt.Errorf("egress: nftables: %w", err)
	}
	return nil
}
