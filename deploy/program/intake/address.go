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

// Address returns the client's address: the other end of the connection or,
// behind a proxy, the last entry of X-Forwarded-For, since clients can forge
// the others. It is invalid if neither is an address.
func Address(r *http.Request, behindProxy bool) netip.Addr {
	if lines := r.Header["X-Forwarded-For"]; behindProxy && len(lines) > 0 {
		line := lines[len(lines)-1]
		if ip := parse(strings.TrimSpace(line[strings.LastIndexByte(line, ',')+1:])); ip.IsValid() {
			return ip
		}
	}
	return parse(r.RemoteAddr)
}

// Relayed returns the client's address at a listener that only this machine and
// its relays reach: the one that the relay reports, otherwise the other end of
// the connection.
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

// Share returns the prefix that counts as one address.
func Share(ip netip.Addr) netip.Prefix { return share(ip) }

// share returns it: a whole IPv6 network belongs to one subscriber.
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
	// maxAddresses bounds the addresses with a limiter of their own; the others
	// share one.
	maxAddresses = 4096
	// sweepInterval is how often idle addresses are dropped.
	sweepInterval = time.Second
)

// Rates limit how often each address may do something.
type Rates struct {
	// Static after construction.
	perSecond rate.Limit
	burst     int
	rest      *rate.Limiter // shared by the addresses beyond maxAddresses

	mu        sync.Mutex
	addresses map[netip.Prefix]*rate.Limiter // guarded by mu
	swept     time.Time                      // guarded by mu
}

// NewRates allows each address so many actions per second, and bursts of burst.
func NewRates(perSecond float64, burst int) *Rates {
	return &Rates{
		perSecond: rate.Limit(perSecond), burst: burst, rest: rate.NewLimiter(rate.Limit(perSecond), burst),
		addresses: map[netip.Prefix]*rate.Limiter{},
	}
}

// Allow reports whether ip may do one more at now.
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
			if l.TokensAt(now) >= float64(r.burst) { // equal to a new one
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
