package roster

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/fairlead/fairlead/protocol"
)

const wait = 5 * time.Second

// A model is a roster, the viewers it is asked about, and who admits them, at
// the other end of a line that keeps everything in order.
type model struct {
	t       *rapid.T
	r       *Roster
	now     time.Time
	viewers map[int]*viewer
	names   int

	open   bool
	told   []any                             // to who admits: Ask, Forget
	said   []answer                          // by who admits
	list   map[protocol.GrantID]bool         // that who admits keeps
	void   map[protocol.GrantID]bool         // that it doesn't take
	taken  map[Key]map[protocol.GrantID]bool // by its word, on this stream
	since  map[Key]time.Time                 // nobody has answered for a set that is admitted
	tokens map[string]protocol.GrantID       // what is in a token
	keys   map[protocol.GrantID]Key          // of each grant
	asked  map[Handle]protocol.GrantID       // on this stream, unanswered
	plain  bool                              // who admits doesn't know handles
}

type viewer struct {
	key      Key
	grant    protocol.GrantID
	admitted bool
}

type answer struct {
	handle Handle
	id     protocol.GrantID
	taken  bool
}

func (m *model) grant(key Key) Grant {
	m.names++
	g := Grant{ID: protocol.GrantID(fmt.Sprint("gr_", m.names)), Ends: int64(rapid.IntRange(1, 5).Draw(m.t, "ends"))}
	g.Token = string(g.ID) + strings.Repeat(".", rapid.SampledFrom([]int{600, 600, Window / 2}).Draw(m.t, "size"))
	m.tokens[g.Token], m.keys[g.ID] = g.ID, key
	return g
}

// apply carries out effects.
func (m *model) apply(effects []Effect) {
	for _, e := range effects {
		switch e := e.(type) {
		case Ask:
			if !m.open || e.Handle == 0 {
				m.t.Fatalf("asked %d of nobody", e.Handle)
			}
			m.told = append(m.told, e)
			m.asked[e.Handle] = m.tokens[e.Token]
		case Forget:
			if m.open {
				m.told = append(m.told, e)
			}
		case Admit:
			for _, v := range m.viewers {
				if v.key == e.Key {
					m.admit(v)
				}
			}
		case Refuse:
			m.cut(func(v *viewer) bool { return v.key == e.Key && v.grant == e.ID })
		case GiveUp:
			m.cut(func(v *viewer) bool { return v.key == e.Key })
		}
	}
}

// admit checks that who admits has taken a grant like v's on this stream.
func (m *model) admit(v *viewer) {
	if len(m.taken[v.key]) == 0 {
		m.t.Fatalf("%+v is admitted by nobody's word", *v)
	}
	v.admitted = true
}

func (m *model) cut(who func(*viewer) bool) {
	for id, v := range m.viewers {
		if who(v) {
			m.leave(id, false)
		}
	}
}

func (m *model) leave(id int, ended bool) {
	v := m.viewers[id]
	if v == nil {
		return
	}
	delete(m.viewers, id)
	if ended {
		delete(m.taken[v.key], v.grant)
	}
	m.apply(m.r.Leave(v.key, v.grant, ended, m.now))
}

func (m *model) join(key Key, g Grant) {
	m.names++
	v := &viewer{key: key, grant: g.ID}
	admitted, effects := m.r.Join(key, g, m.now)
	m.viewers[m.names] = v
	if admitted {
		m.admit(v)
	}
	m.apply(effects)
}

// work is a step of who admits.
func (m *model) work() {
	if len(m.told) == 0 {
		return
	}
	switch e := m.told[0].(type) {
	case Ask:
		id := m.tokens[e.Token]
		a := answer{e.Handle, id, !m.void[id]}
		if m.plain {
			a.handle = 0
		}
		if !a.taken {
			a.id = ""
		}
		if a.taken {
			m.list[id] = true
		}
		m.said = append(m.said, a)
	case Forget:
		delete(m.list, e.ID)
	}
	m.told = m.told[1:]
}

// hear is one answer that arrives.
func (m *model) hear() {
	if len(m.said) == 0 {
		return
	}
	a := m.said[0]
	m.said = m.said[1:]
	h := a.handle
	if m.plain {
		for asked := range m.asked {
			if h == 0 || asked < h {
				h = asked
			}
		}
	}
	id, asked := m.asked[h]
	if !asked {
		id = a.id
	}
	delete(m.asked, h)
	key := m.keys[id]
	if m.taken[key] == nil {
		m.taken[key] = map[protocol.GrantID]bool{}
	}
	if a.taken {
		m.taken[key][id] = true
	} else {
		delete(m.taken[key], id)
	}
	m.apply(m.r.Answer(a.handle, a.id, a.taken, m.now))
	if !a.taken {
		for _, v := range m.viewers {
			if v.grant == id && v.admitted {
				m.t.Fatalf("%+v sees on after a refusal", *v)
			}
		}
	}
}

// lose ends the stream, and everything on it.
func (m *model) lose() {
	m.open, m.told, m.said = false, nil, nil
	m.list, m.taken, m.asked = map[protocol.GrantID]bool{}, map[Key]map[protocol.GrantID]bool{}, map[Handle]protocol.GrantID{}
	m.apply(m.r.Lost(false))
}

// reopen opens a stream under the bearer, if who admits takes it.
func (m *model) reopen() {
	for range 100 {
		key, g := m.r.Bearer()
		if g.ID == "" && len(m.viewers) > 0 {
			m.t.Fatal("there is no bearer")
		}
		if g.ID == "" {
			return
		}
		if m.void[g.ID] {
			another, effects := m.r.RefuseBearer(key, g.ID, m.now)
			m.apply(effects)
			if !another {
				return
			}
			continue
		}
		m.open, m.list[g.ID] = true, true
		m.taken[key] = map[protocol.GrantID]bool{g.ID: true}
		m.apply(m.r.Opened(key, g, rapid.SampledFrom([]protocol.UserID{"a", "b", ""}).Draw(m.t, "first"), m.now))
		m.apply(m.r.Pump())
		return
	}
	m.t.Fatal("always another bearer")
}

// check holds what must be true at every moment.
func (m *model) check(*rapid.T) {
	if err := m.r.checkCandidates(); err != nil {
		m.t.Fatal(err)
	}
	bytes := 0
	for _, q := range m.r.asks {
		bytes += q.bytes()
	}
	if bytes != m.r.bytes || bytes > Window+3*(Window/2+100) { // the first are asked about in any case
		m.t.Fatalf("%d bytes of %d questions, counted %d", bytes, len(m.r.asks), m.r.bytes)
	}
	used := map[Key]bool{}
	for _, v := range m.viewers {
		used[v.key] = true
		if s := m.r.sets[v.key]; s == nil || m.open && !s.settled() && s.until.IsZero() {
			m.t.Fatalf("%+v is forgotten", *v)
		}
		if since, waits := m.since[v.key]; v.admitted && waits && m.open && len(m.taken[v.key]) == 0 && m.now.Sub(since) > wait {
			m.t.Fatalf("%+v sees for too long", *v)
		}
	}
	for key, s := range m.r.sets {
		if !used[key] && s != m.r.bearer {
			m.t.Fatalf("set %v is kept for nobody", key)
		}
		if !m.open || len(m.taken[key]) > 0 {
			delete(m.since, key)
		} else if _, waits := m.since[key]; !waits {
			m.since[key] = m.now
		}
	}
}

// quiet lets everything arrive, and checks what is left.
func (m *model) quiet() {
	for len(m.told) > 0 || len(m.said) > 0 {
		m.work()
		m.hear()
	}
	if !m.open {
		return
	}
	fronts := map[Key]int{}
	for id := range m.list {
		fronts[m.keys[id]]++
	}
	users := map[Key]int{}
	for _, v := range m.viewers {
		users[v.key]++
		if !v.admitted || m.void[m.r.Front(v.key)] {
			m.t.Fatalf("%+v is left waiting, or by a void grant %q", *v, m.r.Front(v.key))
		}
	}
	for key, n := range fronts {
		if n != 1 || users[key] == 0 && key != m.r.bearer.key {
			m.t.Fatalf("%d grants of %v are known, with %d viewers", n, key, users[key])
		}
	}
	for key := range users {
		if fronts[key] != 1 {
			m.t.Fatalf("no grant of %v is known", key)
		}
	}
}

// TestModel: whatever happens in whichever order, nobody is admitted but by the
// word of who admits, no refusal is passed over, nobody is forgotten, and one
// grant of each set is known.
func TestModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m := &model{
			t: t, now: time.Unix(1000, 0), viewers: map[int]*viewer{}, void: map[protocol.GrantID]bool{}, since: map[Key]time.Time{},
			tokens: map[string]protocol.GrantID{}, keys: map[protocol.GrantID]Key{}, plain: rapid.Bool().Draw(t, "plain"),
		}
		first := Key{"a", Control}
		m.r = New(wait, first, m.grant(first))
		m.lose()
		m.reopen()
		known := func() (list []*viewer, ids []int) {
			for id := range m.names + 1 {
				if v := m.viewers[id]; v != nil {
					list, ids = append(list, v), append(ids, id)
				}
			}
			return list, ids
		}
		some := func() int {
			_, ids := known()
			if len(ids) == 0 {
				t.Skip()
			}
			return rapid.SampledFrom(ids).Draw(t, "viewer")
		}
		t.Repeat(map[string]func(*rapid.T){
			"": m.check,
			"newcomer": func(t *rapid.T) {
				key := Key{rapid.SampledFrom([]protocol.UserID{"a", "b", "c"}).Draw(t, "user"), Rights(rapid.IntRange(0, 1).Draw(t, "rights"))}
				m.join(key, m.grant(key))
			},
			"another socket": func(*rapid.T) {
				v := m.viewers[some()]
				for token, id := range m.tokens {
					if id == v.grant {
						m.join(v.key, Grant{ID: id, Ends: 3, Token: token})
						return
					}
				}
			},
			"leaves": func(*rapid.T) { m.leave(some(), false) },
			"ends": func(*rapid.T) {
				v := m.viewers[some()]
				m.void[v.grant] = true
				for id, other := range m.viewers {
					if other.grant == v.grant {
						m.leave(id, true)
					}
				}
			},
			"revoked there": func(*rapid.T) {
				v := m.viewers[some()]
				m.void[v.grant] = true
				if m.list[v.grant] && !m.plain {
					delete(m.list, v.grant)
					m.said = append(m.said, answer{0, v.grant, false})
				} else if m.list[v.grant] { // it ends the stream, or says nothing
					m.lose()
				}
			},
			"works": func(*rapid.T) { m.work() },
			"hears": func(*rapid.T) { m.hear() },
			"quiet": func(*rapid.T) { m.quiet() },
			"lost":  func(*rapid.T) { m.lose() },
			"opened": func(t *rapid.T) {
				if !m.open {
					m.reopen()
				}
			},
			"time": func(t *rapid.T) {
				m.now = m.now.Add(time.Duration(rapid.IntRange(1, 3000).Draw(t, "ms")) * time.Millisecond)
				m.apply(m.r.Late(m.now))
			},
		})
		m.quiet()
	})
}

// TestFound11Window: however many come back with a stream, so many are asked
// about at a time; all are, in the end, and one who is needed goes first.
func TestFound11Window(t *testing.T) {
	now := time.Unix(1000, 0)
	first := Key{"usr_0", Control}
	r := New(wait, first, Grant{ID: "gr_0", Ends: 1, Token: "t"})
	r.Opened(first, Grant{ID: "gr_0", Ends: 1, Token: "t"}, "", now)
	r.Pump()
	const people, size = 500, 2000
	asks := map[Handle]bool{}
	note := func(effects []Effect) {
		for _, e := range effects {
			if e, ok := e.(Ask); ok {
				asks[e.Handle] = true
			}
		}
	}
	answer := func() {
		for h := range asks {
			delete(asks, h)
			note(r.Answer(h, "", true, now))
			return
		}
	}
	for i := range people {
		key := Key{protocol.UserID(fmt.Sprint("usr_", i)), Control}
		_, effects := r.Join(key, Grant{ID: protocol.GrantID(fmt.Sprint("gr_", i)), Ends: 1, Token: fmt.Sprint(i, strings.Repeat(".", size))}, now)
		note(effects)
	}
	for len(asks) > 0 {
		answer()
	}
	r.Lost(false)
	key, g := r.Bearer()
	note(r.Opened(key, g, "usr_77", now))
	if len(asks) != 1 {
		t.Errorf("%d are asked about before the first", len(asks))
	}
	note(r.Pump())
	if n := len(asks); n*size > Window || (n+1)*(size+2*askOverhead) < Window {
		t.Errorf("%d are asked about at a time", n)
	}
	before := len(asks)
	if note(r.Hurry("gr_499")); len(asks) != before+1 {
		t.Error("nobody is asked about who is needed")
	}
	answered := 0
	for ; len(asks) > 0; answered++ {
		if n := len(asks); n*size > Window+2*size {
			t.Fatalf("%d are asked about at a time", n)
		}
		answer()
	}
	if answered != people-1 { // but the bearer
		t.Errorf("%d were answered", answered)
	}
}
