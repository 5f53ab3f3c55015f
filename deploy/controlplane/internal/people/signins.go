package people

import (
	"context"
	"net/netip"
	"sync"
	"time"

	"github.com/fairlead/fairlead/deploy/program/intake"
	"github.com/fairlead/fairlead/protocol"
)

const (
	// Returns from the provider with a code: how many of one address are looked at
	// per second, and at once; each asks the provider something.
	returnsPerSecond = 10
	returnsBurst     = 100
	// Codes that the provider is being asked about.
	maxRedemptions        = 32
	redemptionsPerAddress = 8
	// States that came back and haven't expired.
	maxSpentStates  = 10_000
	spentPerAddress = 1000
)

// signIns bound what people who sign in cost, by the address that they come
// from: nobody knows yet who they are. At a bound something gives way: of the
// address that asks for more, or of the one that has the most.
type signIns struct {
	rates *intake.Rates // static after construction

	mu sync.Mutex
	// Guarded by mu.
	spent     map[string]time.Time // states that came back, until their attempts expire
	states    shares[string]       // of spent
	redeeming shares[*redemption]
}

// A redemption asks the provider about a code.
type redemption struct{ cancel context.CancelFunc }

func newSignIns() *signIns {
	return &signIns{
		rates:     intake.NewRates(returnsPerSecond, returnsBurst),
		spent:     make(map[string]time.Time),
		states:    newShares[string](maxSpentStates, spentPerAddress),
		redeeming: newShares[*redemption](maxRedemptions, redemptionsPerAddress),
	}
}

// redeem takes the state of an attempt that came back with a code and expires at
// ends. It takes each state once, and returns a context in which the provider may
// be asked until done is called. The provider takes a code once, too: this keeps
// whoever finds an old address and its cookie from even asking it.
func (s *signIns) redeem(ctx context.Context, from netip.Addr, state string, ends, now time.Time) (_ context.Context, done func(), err error) {
	if !s.rates.Allow(from, now) {
		return nil, nil, protocol.Errorf(protocol.KindTooMany, "too many people sign in from this address at the moment")
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.forget(now)
	if _, spent := s.spent[state]; spent {
		return nil, nil, refusedLogin("this sign-in is over: begin again")
	}
	address := intake.Share(from)
	s.spent[state] = ends
	if old, full := s.states.add(address, state); full {
		delete(s.spent, old)
	}
	ctx, cancel := context.WithCancel(ctx)
	r := &redemption{cancel}
	if old, full := s.redeeming.add(address, r); full {
		old.cancel()
	}
	return ctx, func() {
		cancel()
		s.mu.Lock()
		defer s.mu.Unlock()
		s.redeeming.remove(address, r)
	}, nil
}

// forget takes out the states whose attempts have expired. The oldest come
// first, and attempts live equally long. It is called with mu held.
func (s *signIns) forget(now time.Time) {
	for {
		address, state, ok := s.states.oldest()
		if !ok || !now.After(s.spent[state]) {
			return
		}
		s.states.remove(address, state)
		delete(s.spent, state)
	}
}

// shares are things that addresses have, each in the order of their coming:
// so many in all, and of each address. It is for one goroutine at a time.
type shares[T comparable] struct {
	most, each int // static
	all        []shared[T]
	count      map[netip.Prefix]int
}

type shared[T comparable] struct {
	address netip.Prefix
	thing   T
}

func newShares[T comparable](most, each int) shares[T] {
	return shares[T]{most: most, each: each, count: make(map[netip.Prefix]int)}
}

// add adds a thing of address. Where there is no room another one gives way,
// the oldest of that address or of the one that has the most.
func (s *shares[T]) add(address netip.Prefix, thing T) (gone T, full bool) {
	from := address
	switch {
	case s.count[address] >= s.each:
		full = true
	case len(s.all) >= s.most:
		full = true
		for other, n := range s.count {
			if n > s.count[from] {
				from = other
			}
		}
	}
	if full {
		for _, one := range s.all {
			if one.address == from {
				gone = one.thing
				break
			}
		}
		s.remove(from, gone)
	}
	s.all = append(s.all, shared[T]{address, thing})
	s.count[address]++
	return gone, full
}

// remove takes a thing of address out, if it is there.
func (s *shares[T]) remove(address netip.Prefix, thing T) {
	for i, one := range s.all {
		if one != (shared[T]{address, thing}) {
			continue
		}
		s.all = append(s.all[:i], s.all[i+1:]...)
		if s.count[address]--; s.count[address] == 0 {
			delete(s.count, address)
		}
		return
	}
}

// oldest returns what came first.
func (s *shares[T]) oldest() (address netip.Prefix, thing T, ok bool) {
	if len(s.all) == 0 {
		return address, thing, false
	}
	return s.all[0].address, s.all[0].thing, true
}

// refusedLogin is the error of a sign-in that must be begun again.
func refusedLogin(text string) error {
	return protocol.Errorf(protocol.KindUnauthenticated, "%s", text)
}
