package intake

import (
	"net/http"
	"net/netip"
	"strings"
	"sync"
	"time"

	"golang.org/x/time/rate"

	"github.com/fairlead/fairlead/protocol"
)

// Address returns where r comes from: the other end of its connection or, behind
// a proxy, what that says last in X-Forwarded-For, since what stands before may
// be anybody's. It is invalid where neither is an address.
func Address(r *http.Request, behindProxy bool) netip.Addr {
	if lines := r.Header["X-Forwarded-For"]; behindProxy && len(lines) > 0 {
		line := lines[len(lines)-1]
		if ip := parse(strings.TrimSpace(line[strings.LastIndexByte(line, ',')+1:])); ip.IsValid() {
			return ip
		}
	}
	return parse(r.RemoteAddr)
}

// Relayed returns where r comes from at a listener that nobody but this machine
// and its relays reach: what the relay says, or else the other end of the
// connection.
func Relayed(r *http.Request) netip.Addr {
	if ip := parse(r.Header.Get(protocol.ClientAddressHeader)); ip.IsValid() {
		return ip
	}
	return parse(r.RemoteAddr)
}

// parse reads an address, with or without a port.
func parse(text string) netip.Addr {
	if at, err := netip.ParseAddrPort(text); err == nil {
		return at.Addr().Unmap().WithZone("")
	}
	ip, err := netip.ParseAddr(text)
	if err != nil {
		return netip.Addr{}
	}
	return ip.Unmap().WithZone("")
}

// Share returns what counts as one address.
func Share(ip netip.Addr) netip.Prefix { return share(ip) }

// share is what counts as one address: a whole IPv6 network is one subscriber's.
func share(ip netip.Addr) netip.Prefix {
	bits := 32
	if ip.Is6() {
		bits = 64
	}
	prefix, err := ip.Prefix(bits)
	if err != nil {
		return netip.Prefix{}
	}
	return prefix
}

const (
	// maxAddresses bounds the addresses whose rates are told apart; the others
	// share one.
	maxAddresses = 4096
	// sweepInterval is how often addresses are forgotten that have been quiet.
	sweepInterval = time.Second
)

// Rates bound how often each address may do something.
type Rates struct {
	// Static after construction.
	perSecond rate.Limit
	burst     int
	rest      *rate.Limiter // of the addresses that have none of their own

	mu        sync.Mutex
	addresses map[netip.Prefix]*rate.Limiter // guarded by mu
	swept     time.Time                      // guarded by mu
}

// NewRates lets each address do something so often per second, and burst times
// at once.
func NewRates(perSecond float64, burst int) *Rates {
	return &Rates{
		perSecond: rate.Limit(perSecond), burst: burst, rest: rate.NewLimiter(rate.Limit(perSecond), burst),
		addresses: map[netip.Prefix]*rate.Limiter{},
	}
}

// Allow reports whether ip may do it once more at now.
func (r *Rates) Allow(ip netip.Addr, now time.Time) bool {
	return r.limiter(share(ip), now).AllowN(now, 1)
}

func (r *Rates) limiter(key netip.Prefix, now time.Time) *rate.Limiter {
	r.mu.Lock()
	defer r.mu.Unlock()
	if known := r.addresses[key]; known != nil {
		return known
	}
	if len(r.addresses) >= maxAddresses && now.Sub(r.swept) >= sweepInterval {
		r.swept = now
		for key, l := range r.addresses {
			if l.TokensAt(now) >= float64(r.burst) { // as a new one would be
				delete(r.addresses, key)
			}
		}
	}
	if len(r.addresses) >= maxAddresses {
		return r.rest
	}
	next := rate.NewLimiter(r.perSecond, r.burst)
	r.addresses[key] = next
	return next
}
