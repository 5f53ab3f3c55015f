package cookies

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/fairlead/fairlead/protocol/op"
	"github.com/fairlead/fairlead/protocol/seal"
)

// A model is what a session should have, by the rules alone.
type model struct {
	pairings []*modelPairing
	allowed  map[string]bool // hosts; nil: all
	pushes   int64
}

type modelPairing struct {
	source *source
	has    map[seal.CookieID]kept
}

func (m *model) passes(host string) bool { return m.allowed == nil || m.allowed[host] }

// odd are cookies that Chromium doesn't take.
func odd(c seal.Cookie) bool { return strings.Contains(c.Value, "odd") }

// push is what an envelope does to a pairing.
func (m *model) push(p *modelPairing, cookies []seal.Cookie, complete bool) (answer op.SyncAnswer) {
	m.pushes++
	fresh := map[seal.CookieID]kept{}
	for _, c := range cookies {
		id := c.ID()
		if !m.passes(c.HostKey) {
			answer.Dropped++
			continue
		}
		if _, twice := fresh[id]; twice {
			answer.Duplicates++
		}
		fresh[id] = kept{m.pushes, c}
	}
	if complete {
		for id := range p.has {
			if _, again := fresh[id]; !again {
				answer.Removed++
			}
		}
		p.has = map[seal.CookieID]kept{}
	}
	for id, k := range fresh {
		if odd(k.Cookie) {
			delete(p.has, id)
			continue
		}
		p.has[id] = k
		answer.Written++
	}
	return answer
}

// want is what Chromium should have.
func (m *model) want() string {
	newest := map[seal.CookieID]kept{}
	for _, p := range m.pairings {
		for id, k := range p.has {
			if before, there := newest[id]; !there || before.Push < k.Push {
				newest[id] = k
			}
		}
	}
	var all []seal.Cookie
	for _, k := range newest {
		all = append(all, k.Cookie)
	}
	return values(all)
}

func (m *model) prune() {
	for _, p := range m.pairings {
		maps.DeleteFunc(p.has, func(id seal.CookieID, _ kept) bool { return !m.passes(id.HostKey) })
	}
}

// TestModel: after whatever pushes, pairings that begin and end, policies and restarts
// Chromium has what the rules say, and so would a new one.
func TestModel(t *testing.T) {
	outer := t
	rapid.Check(t, func(t *rapid.T) {
		r := newRig(outer)
		m := &model{}
		r.chromium.refuse = func(c seal.Cookie) string {
			if odd(c) {
				return "not taken"
			}
			return ""
		}
		hosts := rapid.SampledFrom([]string{"a.test", ".a.test", "b.test", "c.test"})
		names := rapid.SampledFrom([]string{"n", "m", "o"})
		pairing := func(t *rapid.T) *modelPairing {
			if len(m.pairings) == 0 {
				t.Skip("there is no pairing")
			}
			return rapid.SampledFrom(m.pairings).Draw(t, "pairing")
		}
		value := 0
		t.Repeat(map[string]func(*rapid.T){
			"pair": func(t *rapid.T) {
				if len(m.pairings) > 3 {
					t.Skip("enough of them")
				}
				m.pairings = append(m.pairings, &modelPairing{r.laptop(fmt.Sprint(value)), map[seal.CookieID]kept{}})
			},
			"unpair": func(t *rapid.T) {
				p := pairing(t)
				r.unpair(p.source)
				m.pairings = slices.DeleteFunc(m.pairings, func(q *modelPairing) bool { return p == q })
			},
			"push": func(t *rapid.T) {
				p := pairing(t)
				e := p.source.envelope()
				for range rapid.IntRange(0, 6).Draw(t, "cookies") {
					value++
					text := fmt.Sprint(rapid.SampledFrom([]string{"", "", "odd"}).Draw(t, "odd"), value)
					e.Cookies = append(e.Cookies, cookie(hosts.Draw(t, "host"), names.Draw(t, "name"), text))
				}
				e.Complete = rapid.Bool().Draw(t, "complete")
				want := m.push(p, e.Cookies, e.Complete)
				got := p.source.pushed(e)
				if got.Written != want.Written || got.Dropped != want.Dropped || got.Duplicates != want.Duplicates || got.Removed != want.Removed {
					t.Fatalf("%+v, want %+v", got, want)
				}
				p.source.refused(409, p.source.seal(e))
			},
			"policy": func(t *rapid.T) {
				allowed := rapid.SliceOfDistinct(hosts, rapid.ID).Draw(t, "allowed")
				m.allowed = map[string]bool{}
				for _, host := range allowed {
					m.allowed[host] = true
				}
				r.setPolicy("allowlist", allowed...)
				m.prune()
			},
			"no policy": func(*rapid.T) {
				m.allowed = nil
				r.setPolicy("blocklist")
			},
			"restart": func(*rapid.T) {
				r.reopen()
				r.chromium.has = map[seal.CookieID]seal.Cookie{}
				for _, c := range r.Kept(sid) {
					r.chromium.has[c.ID()] = c
				}
			},
			"": func(t *rapid.T) {
				if got := r.chromium.values(); got != m.want() {
					t.Fatalf("Chromium has %q, want %q", got, m.want())
				}
				if got := values(r.Kept(sid)); got != m.want() {
					t.Fatalf("kept is %q, want %q", got, m.want())
				}
			},
		})
	})
}
