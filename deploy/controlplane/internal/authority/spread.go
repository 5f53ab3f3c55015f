package authority

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/fairlead/fairlead/deploy/controlplane/internal/clock"
	"github.com/fairlead/fairlead/deploy/controlplane/internal/metrics"
	"github.com/fairlead/fairlead/deploy/controlplane/internal/relays"
	"github.com/fairlead/fairlead/deploy/controlplane/internal/store"
	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/protocol/op"
)

const (
	spreadInterval  = 200 * time.Millisecond // between two looks at the store
	spreadTimeout   = 2 * time.Second        // for one relay to take a part of the list
	spreadLists     = 32                     // lists under way to relays, at most
	spreadTells     = 64                     // commands under way to sandboxes, at most
	spreadMaxPause  = 2 * time.Second        // between two tries at one relay
	grantsInCommand = 256                    // in one grant.revoke
)

// A Teller has an operation of the control plane's own done.
type Teller interface {
	Tell(ctx context.Context, do op.Op, target protocol.CommandTarget) error
}

// A Spread makes sure that every relay has the newest revocation list, and
// tells sandboxes at once which grants are void. A sandbox that isn't reached
// fetches the list itself, so that is tried once.
type Spread struct {
	// Static after construction. Tests set Clock and Timeout.
	Clock   clock.Clock
	Timeout time.Duration // for one relay to take a part of the list

	list   *List
	relays *relays.Directory
	teller Teller
	logger *slog.Logger
	counts *metrics.Metrics
	kicked chan struct{} // 1
	lists  chan struct{} // one for each list under way
	tells  chan struct{} // one for each command under way

	// Owned by Run.
	told map[protocol.GrantID]time.Time // sandboxes know of them; until they expire

	wg sync.WaitGroup // requests under way; Run waits for them

	mu sync.Mutex
	// Guarded by mu.
	targets map[protocol.RelayID]*spreadTarget
}

// A spreadTarget is what is known of one relay.
type spreadTarget struct {
	url     string
	number  uint64 // it has, or is being sent
	any     bool   // it has one
	busy    bool   // it is being sent one
	retryAt time.Time
	pause   time.Duration
}

// NewSpread returns one that spreads list while Run runs.
func NewSpread(list *List, all *relays.Directory, teller Teller, counts *metrics.Metrics, logger *slog.Logger) *Spread {
	return &Spread{
		Timeout: spreadTimeout, list: list, relays: all, teller: teller, logger: logger, counts: counts,
		kicked:  make(chan struct{}, 1),
		lists:   make(chan struct{}, spreadLists),
		tells:   make(chan struct{}, spreadTells),
		told:    make(map[protocol.GrantID]time.Time),
		targets: make(map[protocol.RelayID]*spreadTarget),
	}
}

// Kick makes Run look now rather than in 200 ms.
func (p *Spread) Kick() {
	select {
	case p.kicked <- struct{}{}:
	default: // it will look anyway
	}
}

// Run looks for changes until ctx ends, and then waits for what is under way.
func (p *Spread) Run(ctx context.Context) {
	defer p.wg.Wait()
	ticker := time.NewTicker(spreadInterval)
	defer ticker.Stop()
	var reported time.Time
	for {
		if err := p.Look(ctx); err != nil && ctx.Err() == nil && p.Clock.Now().Sub(reported) >= time.Minute {
			reported = p.Clock.Now()
			p.logger.Error("revocations can't be spread", "error", err)
		}
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		case <-p.kicked:
		}
	}
}

// Wait waits for what [Spread.Look] has started.
func (p *Spread) Wait() { p.wg.Wait() }

// Look starts whatever is to be sent, and doesn't wait for it. What would be too
// much at a time is left to the next look.
func (p *Spread) Look(ctx context.Context) error {
	list, err := p.list.current(ctx)
	if err != nil {
		return err
	}
	if list.number == 0 {
		return nil // nothing was ever revoked
	}
	all, err := p.relays.Registered(ctx)
	if err != nil {
		return err
	}
	p.dropGone(all)
	for _, relay := range all {
		p.send(ctx, relay, list)
	}
	if len(all) > 0 {
		p.tellSandboxes(ctx, list)
	}
	return nil
}

// dropGone forgets the relays that aren't registered any more.
func (p *Spread) dropGone(all []store.Relay) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for id, t := range p.targets {
		registered := slices.ContainsFunc(all, func(r store.Relay) bool { return r.ID == id })
		if !registered && !t.busy {
			delete(p.targets, id)
		}
	}
}

// claim reports whether the list is to be sent to relay now, and marks it.
func (p *Spread) claim(relay store.Relay, number uint64) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	t := p.targets[relay.ID]
	if t == nil || t.url != relay.URL && !t.busy {
		t = &spreadTarget{url: relay.URL}
		p.targets[relay.ID] = t
	}
	if t.busy || t.any && t.number >= number || p.Clock.Now().Before(t.retryAt) {
		return false
	}
	t.busy, t.any, t.number = true, true, number
	return true
}

// Renew sends relay id the list again: whoever registers may have just started.
func (p *Spread) Renew(id protocol.RelayID) {
	p.mu.Lock()
	if t := p.targets[id]; t != nil {
		t.any = false
	}
	p.mu.Unlock()
	p.Kick()
}

// start runs f if a slot is free; Run waits for it.
func (p *Spread) start(slots chan struct{}, f func()) bool {
	select {
	case slots <- struct{}{}:
	default:
		return false
	}
	p.wg.Go(func() {
		defer func() { <-slots }()
		f()
	})
	return true
}

// send posts the list to one relay, if that needs it.
func (p *Spread) send(ctx context.Context, relay store.Relay, list signedList) {
	if !p.claim(relay, list.number) {
		return
	}
	if !p.start(p.lists, func() { p.sent(relay.ID, list.number, p.post(ctx, relay, list.tokens)) }) {
		p.sent(relay.ID, list.number, errBusy)
	}
}

// errBusy says that enough is under way.
var errBusy = errors.New("too many lists are under way")

// sent notes how it went to send the list. A relay that has registered anew
// meanwhile needs it again all the same.
func (p *Spread) sent(id protocol.RelayID, number uint64, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	t := p.targets[id]
	t.busy = false
	p.counts.Lists.WithLabelValues(metrics.Outcome(err)).Inc()
	if err == nil {
		t.pause, t.retryAt = 0, time.Time{}
		return
	}
	t.any = false
	if t.pause == 0 {
		p.logger.Warn("a relay doesn't take the revocation list", "relay", id, "number", number, "error", err)
	}
	t.pause = min(max(2*t.pause, spreadInterval), spreadMaxPause)
	t.retryAt = p.Clock.Now().Add(t.pause)
}

// Behind returns how many relays haven't taken the list that they were sent
// last.
func (p *Spread) Behind() int {
	if p == nil {
		return 0
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	n := 0
	for _, t := range p.targets {
		if t.pause > 0 {
			n++
		}
	}
	return n
}

// post gives a relay the list, part by part.
func (p *Spread) post(ctx context.Context, relay store.Relay, tokens []string) error {
	for _, token := range tokens {
		if err := p.postPart(ctx, relay, token); err != nil {
			return err
		}
	}
	return nil
}

func (p *Spread) postPart(ctx context.Context, relay store.Relay, token string) error {
	ctx, cancel := context.WithTimeout(ctx, p.Timeout)
	defer cancel()
	req, err := relays.Post(ctx, relay, "/control/revocations", "application/jose", []byte(token))
	if err != nil {
		return err
	}
	res, err := p.relays.Do(req)
	if err != nil {
		return err
	}
	defer res.Body.Close()
	if res.StatusCode/100 != 2 {
		return fmt.Errorf("status %d", res.StatusCode)
	}
	return nil
}

// tellSandboxes tells each sandbox which grants are newly void there.
func (p *Spread) tellSandboxes(ctx context.Context, list signedList) {
	now := p.Clock.Now()
	for id, until := range p.told {
		if now.After(until) {
			delete(p.told, id)
		}
	}
	bySandbox := make(map[protocol.SandboxID][]protocol.GrantID)
	for _, g := range list.grants {
		if _, told := p.told[g.ID]; !told && g.Sandbox != "" {
			p.told[g.ID] = g.ExpiresAt.Add(2 * protocol.ClockSkew)
			bySandbox[g.Sandbox] = append(bySandbox[g.Sandbox], g.ID)
		}
	}
	for sandbox, grants := range bySandbox {
		for part := range slices.Chunk(grants, grantsInCommand) {
			started := p.start(p.tells, func() {
				err := p.teller.Tell(ctx, op.Op{Kind: op.KindGrantRevoke, Body: &op.GrantRevoke{Grants: part}}, protocol.CommandTarget{SandboxID: sandbox})
				p.counts.Told.WithLabelValues(metrics.Outcome(err)).Inc()
				if err != nil {
					p.logger.Warn("a sandbox was not told of revoked grants", "sandbox", sandbox, "grants", len(part), "error", err)
				}
			})
			for _, id := range part {
				if !started {
					delete(p.told, id)
				}
			}
		}
	}
}
