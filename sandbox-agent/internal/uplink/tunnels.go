package uplink

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/tunnel"
)

const (
	// maxTunnels is how many relays are connected at the same time.
	maxTunnels = 2
	// replacedTime is how long a tunnel that a newer one of ours replaces waits
	// until that is registered here, which is a little later than at the relay.
	replacedTime = time.Second
)

// errSameRelay ends a dial whose address belongs to a relay that has a tunnel.
var errSameRelay = errors.New("the address belongs to a relay that is connected already")

// Tunnels knows the relays of a sandbox and its tunnels to them, and says which
// one is primary. As a Prometheus collector it shows them and how they were
// reached. Make it with New.
type Tunnels struct {
	// Static after construction.
	options Options
	metrics *metrics
	events  *tunnel.Events  // counts into metrics
	begun   chan struct{}   // closed when the first dial has ended
	hurry   []chan struct{} // one for each keeper
	begin   sync.Once       // of begun

	// Guarded by mu.
	mu      sync.Mutex
	where   addresses
	relays  map[string]protocol.RelayID // who answered last, by address
	busy    map[string]bool             // addresses that are dialled or connected
	up      []*connection               // the oldest first
	primary *connection                 // one of up, or nil
	said    uint64                      // the generation of the last ROLE
	spare   uint64                      // one for the next ROLE, 0: none
	changed chan struct{}               // closed and replaced with any of the above
}

// A connection is one registered tunnel.
type connection struct {
	session *tunnel.Session
	addr    string
	leaving bool          // its relay has said GOAWAY
	told    protocol.Role // the last ROLE; generation 0: none
}

// New returns the tunnels of a sandbox, of which there are none before Run.
func New(options Options) *Tunnels {
	if options.Patience == 0 {
		options.Patience = time.Second
	}
	m := newMetrics()
	t := &Tunnels{
		options: options, metrics: m, events: m.events(), begun: make(chan struct{}),
		where:  newAddresses(options.Hello.SandboxID, options.Relays, options.Pinned),
		relays: map[string]protocol.RelayID{}, busy: map[string]bool{}, changed: make(chan struct{}),
	}
	for range maxTunnels {
		t.hurry = append(t.hurry, make(chan struct{}, 1))
	}
	return t
}

// announce wakes who waits for a change. The caller holds mu.
func (t *Tunnels) announce() {
	close(t.changed)
	t.changed = make(chan struct{})
}

// Primary returns the primary tunnel, nil when there is none.
func (t *Tunnels) Primary() *tunnel.Session {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.primary == nil {
		return nil
	}
	return t.primary.session
}

// Sessions returns all tunnels that are up.
func (t *Tunnels) Sessions() []*tunnel.Session {
	t.mu.Lock()
	defer t.mu.Unlock()
	list := make([]*tunnel.Session, 0, len(t.up))
	for _, c := range t.up {
		list = append(list, c.session)
	}
	return list
}

// A RelayStatus is one relay that the agent is connected to.
type RelayStatus struct {
	ID      protocol.RelayID `json:"id"`
	Address string           `json:"address"` // "host:port"
	Primary bool             `json:"primary"`
	Carrier tunnel.Carrier   `json:"carrier"` // what the tunnel runs over
}

// Status describes the relays that tunnels lead to.
func (t *Tunnels) Status() []RelayStatus {
	t.mu.Lock()
	defer t.mu.Unlock()
	var list []RelayStatus
	for _, c := range t.up {
		list = append(list, RelayStatus{
			ID: c.session.Welcome().RelayID, Address: c.addr, Primary: c == t.primary, Carrier: c.session.Carrier(),
		})
	}
	return list
}

// Changed returns a channel that is closed with the next change.
func (t *Tunnels) Changed() <-chan struct{} {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.changed
}

// Adopt replaces the list of relays, unless that is pinned or relays is empty.
// From now on those that are new are dialled, too, and those that are gone no
// more. Tunnels that are up stay, also to a relay that is gone, and the primary
// stays primary: otherwise a relay that comes would have its share of all
// terminals moved at once.
func (t *Tunnels) Adopt(relays []string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.where.adopt(relays) {
		t.options.Log.Info("the control plane names other relays", "relays", t.where.listed)
		t.forget()
		t.announce()
	}
}

// learn notes the addresses of other relays, if a relay names any.
func (t *Tunnels) learn(alternates []string) {
	if len(alternates) == 0 {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.where.learn(alternates)
	t.forget()
	t.announce()
}

// forget drops what is remembered of addresses that are no longer known. The
// caller holds mu.
func (t *Tunnels) forget() {
	all := t.where.all()
	for addr := range t.relays {
		if !slices.Contains(all, addr) {
			delete(t.relays, addr)
		}
	}
}

// known returns the addresses of all relays that are known.
func (t *Tunnels) known() []string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.where.all()
}

// take waits for an address to dial, and reserves it. The search begins behind
// last, or with it when again is set, and leaves out relays that are dialled
// or connected already.
func (t *Tunnels) take(ctx context.Context, last string, again bool) (string, error) {
	for {
		t.mu.Lock()
		addr := t.pick(last, again)
		changed := t.changed
		if addr != "" {
			t.busy[addr] = true
		}
		t.mu.Unlock()
		if addr != "" {
			return addr, nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return "", ctx.Err()
		}
	}
}

// pick returns a free address, or none. The caller holds mu.
func (t *Tunnels) pick(last string, again bool) string {
	all := t.where.all()
	first := slices.Index(all, last)
	if !again {
		first++
	}
	for i := range all {
		addr := all[(max(first, 0)+i)%len(all)]
		if !t.busy[addr] && !t.connected(t.relays[addr]) {
			return addr
		}
	}
	return ""
}

// release gives an address back.
func (t *Tunnels) release(addr string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.busy[addr] {
		delete(t.busy, addr)
		t.announce()
	}
}

// connected reports whether there is a tunnel to a relay. The caller holds mu.
func (t *Tunnels) connected(relay protocol.RelayID) bool {
	return relay != "" && slices.ContainsFunc(t.up, func(c *connection) bool {
		return c.session.Welcome().RelayID == relay
	})
}

// meet notes which relay answers at addr. It fails when there is a tunnel to
// that one: registering there again would end it.
func (t *Tunnels) meet(addr string, relay protocol.RelayID) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.relays[addr] = relay
	if t.connected(relay) {
		return errSameRelay
	}
	return nil
}

// dialled notes that a dial has ended. The second keeper waits for the first
// dial, so that the first relay of the list is primary if it can be reached.
func (t *Tunnels) dialled() { t.begin.Do(func() { close(t.begun) }) }

// arrive adds a registered tunnel and says its role. One that leads to a relay
// to which there is a tunnel takes the place and the role of that one, which the
// relay ends.
func (t *Tunnels) arrive(session *tunnel.Session, addr string) *connection {
	c := &connection{session: session, addr: addr}
	defer t.dialled()
	t.learn(session.Welcome().Alternates)
	t.mu.Lock()
	if i := slices.IndexFunc(t.up, func(o *connection) bool {
		return o.session.Welcome().RelayID == session.Welcome().RelayID
	}); i >= 0 {
		if t.primary == t.up[i] {
			t.primary = c
		}
		t.up[i] = c
	} else {
		t.up = append(t.up, c)
	}
	t.assign()
	t.mu.Unlock()
	t.refill()
	return c
}

// awaitReplaced waits until another tunnel has taken c's place, c is over, or it
// takes too long.
func (t *Tunnels) awaitReplaced(ctx context.Context, c *connection) {
	timer := time.NewTimer(replacedTime)
	defer timer.Stop()
	for {
		t.mu.Lock()
		there, changed := slices.Contains(t.up, c), t.changed
		t.mu.Unlock()
		if !there {
			return
		}
		select {
		case <-changed:
		case <-c.session.Done():
			return
		case <-timer.C:
			return
		case <-ctx.Done():
			return
		}
	}
}

// depart removes a tunnel that is over. If it was primary, it first promotes
// another one.
func (t *Tunnels) depart(c *connection) {
	t.mu.Lock()
	i := slices.Index(t.up, c)
	if i >= 0 {
		t.up = slices.Delete(t.up, i, i+1)
		t.assign()
	}
	t.mu.Unlock()
	if i >= 0 {
		t.refill()
	}
}

// leave notes that c's relay goes away: a tunnel to another relay becomes
// primary, now or when there is one. A keeper that pauses before its next dial
// goes on at once.
func (t *Tunnels) leave(c *connection) {
	t.mu.Lock()
	c.leaving = true
	t.assign()
	t.mu.Unlock()
	for _, hurry := range t.hurry {
		select {
		case hurry <- struct{}{}:
		default:
		}
	}
	t.refill()
}

// replaced reports whether c need not wait for another tunnel: one is primary
// already, or no other address is known.
func (t *Tunnels) replaced(c *connection) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.primary != c || !slices.ContainsFunc(t.where.all(), func(addr string) bool { return addr != c.addr })
}

// assign chooses the primary tunnel and tells every relay what has changed for
// it, the new primary's first. The caller holds mu.
func (t *Tunnels) assign() {
	defer t.announce()
	next := t.primary
	if i := slices.Index(t.up, t.primary); i < 0 || t.primary.leaving {
		stays := slices.IndexFunc(t.up, func(c *connection) bool { return !c.leaving })
		switch {
		case stays >= 0:
			next = t.up[stays]
		case i < 0 && len(t.up) > 0:
			next = t.up[0]
		case i < 0:
			next = nil
		}
	}
	if t.primary = next; next == nil {
		return
	}
	if t.tell(next, true, "") && len(t.up) > 1 {
		// It was idle, and may be dead as well: a probe finds out soon.
		next.session.Probe()
	}
	for _, c := range t.up {
		if c != next {
			t.tell(c, false, next.session.Welcome().Origin)
		}
	}
}

// tell sends c its ROLE if that has changed, and reports whether it did. The
// caller holds mu.
func (t *Tunnels) tell(c *connection, primary bool, origin string) bool {
	if c.told.Generation != 0 && c.told.Primary == primary && c.told.Origin == origin {
		return false
	}
	generation := t.spare
	if t.spare = 0; generation == 0 {
		var err error
		if generation, err = t.options.Generations.NextGeneration(); err != nil {
			// A ROLE needs a generation of its own. The tunnel ends, and the
			// next one tries again.
			t.options.Log.Error("no role", "err", err)
			c.session.CloseWith(protocol.Fault(protocol.KindInternal, err))
			return false
		}
	}
	t.said = generation
	c.told = protocol.Role{Primary: primary, Generation: generation, Origin: origin}
	if err := c.session.SendRole(c.told); err != nil {
		return false // it is over, and will depart
	}
	t.options.Log.Info("role", "relay", c.session.Welcome().RelayID, "primary", primary, "generation", generation)
	return true
}

// refill gets the generation of the next ROLE beforehand, so that a promotion
// doesn't wait for the disk.
func (t *Tunnels) refill() {
	t.mu.Lock()
	full := t.spare != 0
	t.mu.Unlock()
	if full {
		return
	}
	generation, err := t.options.Generations.NextGeneration()
	if err != nil {
		return // tell tries again
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if generation > t.said {
		t.spare = generation
	}
}
