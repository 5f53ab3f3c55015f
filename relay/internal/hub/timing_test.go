package hub

import (
	"bytes"
	"log/slog"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/protocol/jws"
	"github.com/fairlead/fairlead/relay/internal/agentstream"
	"github.com/fairlead/fairlead/relay/internal/feed"
	"github.com/fairlead/fairlead/relay/internal/presence"
	"github.com/fairlead/fairlead/relay/internal/relaytest"
	"github.com/fairlead/fairlead/relay/internal/roster"
	"github.com/fairlead/fairlead/relay/internal/turn"
)

// still returns a hub that no goroutine runs: a test calls what run would.
func still() *Hub {
	h := newHub(testKey, &jws.Grant{ID: "gr_opener"}, "opener", alone{}, nil, slog.New(slog.DiscardHandler), NewMetrics(prometheus.NewRegistry()))
	h.feed = feed.New(feed.Options{
		Opened: protocol.TerminalOpened{Epoch: 7, Cols: 80, Rows: 24}, Window: protocol.RingBytes,
		Metrics: h.metrics.Feeds, Ended: &h.finished,
	})
	h.audience.admitter = takesAll{h}
	h.audience.carry(h.audience.roster.Opened(h.dial.bearer.Load().key, h.dial.bearer.Load().grant, "", time.Now()))
	h.audience.carry(h.audience.roster.Pump())
	h.state = turn.New(protocol.TerminalOpened{Claimed: true, Lease: held(3, 2)})
	return h
}

// takesAll admits everybody at once.
type takesAll struct{ hub *Hub }

func (a takesAll) Ask(h roster.Handle, _ string) { a.hub.answer(protocol.Granted{Handle: uint64(h)}) }
func (takesAll) Forget(protocol.GrantID)         {}

// seat adds a greeted viewer to a still hub.
func seat(h *Hub, id turn.SocketID, user protocol.UserID, expires time.Time) *Viewer {
	return seatAs(h, id, user, expires, Guest{})
}

// seatAs is seat for a viewer that asks for more.
func seatAs(h *Hub, id turn.SocketID, user protocol.UserID, expires time.Time, g Guest) *Viewer {
	g.Grant = &jws.Grant{
		Subject: user, ID: protocol.GrantID("gr_" + string(user)), Name: string(user), PTYs: []string{jws.AllPTYs},
		Caps: []protocol.Capability{protocol.CapView, protocol.CapControl}, ExpiresAt: expires.Unix(),
	}
	g.Token = "token of " + string(user)
	v := newViewer(h, id, g)
	h.audience.join(v)
	return v
}

// told returns the types of the text frames that wait for v, and forgets them.
func told(t *testing.T, v *Viewer) (kinds []string) {
	t.Helper()
	v.outbox.mu.Lock()
	defer v.outbox.mu.Unlock()
	for b := v.outbox.notices; len(b) > 0; {
		payload, rest, err := relaytest.Frame(b)
		if err != nil {
			t.Fatal(err)
		}
		kind, _, _ := bytes.Cut(bytes.TrimPrefix(payload, []byte(`{"type":"`)), []byte(`"`))
		kinds = append(kinds, string(kind))
		b = rest
	}
	v.outbox.notices = nil
	return kinds
}

// deafLink returns a link to an agent that takes nothing.
func deafLink(t *testing.T) *link {
	life := agentstream.NewLife(t.Context())
	t.Cleanup(life.End)
	l := &link{bearer: &bearer{grant: roster.Grant{ID: "gr_opener"}}, life: life}
	l.Init(nil, life)
	return l
}

// sent returns what waits to be written to a deaf link.
func sent(t *testing.T, l *link) (messages []protocol.Message) {
	t.Helper()
	frames := protocol.NewFrameReader(bytes.NewReader(l.Waiting()))
	for {
		frame, err := frames.Next()
		if err != nil {
			return messages
		}
		m, err := protocol.Decode(frame)
		if err != nil {
			t.Fatal(err)
		}
		messages = append(messages, m)
	}
}

func TestPresenceAtMostOnceASecond(t *testing.T) {
	h, now := still(), time.Now()
	late := now.Add(time.Hour)
	first := seat(h, 1, "usr_1", late)
	if kinds := told(t, first); !slices.Contains(kinds, protocol.ServerPresence) {
		t.Errorf("greeted with %q", kinds)
	}
	h.tick(now)
	if kinds := told(t, first); len(kinds) != 0 {
		t.Errorf("told what the greeting said: %q", kinds)
	}
	second := seat(h, 2, "usr_2", late)
	told(t, second)
	for i := range 10 {
		h.tick(now.Add(time.Duration(i) * presence.Interval / 10))
	}
	if kinds := told(t, first); len(kinds) != 0 {
		t.Errorf("told within a second: %q", kinds)
	}
	if wait := h.untilTick(now.Add(presence.Interval * 9 / 10)); wait != presence.Interval/10 {
		t.Errorf("looks again in %v", wait)
	}
	now = now.Add(presence.Interval)
	h.tick(now)
	h.tick(now)
	if kinds := told(t, first); !slices.Equal(kinds, []string{protocol.ServerPresence}) {
		t.Errorf("after a second: %q", kinds)
	}
	if kinds := told(t, second); len(kinds) != 0 {
		t.Errorf("the second knew it: %q", kinds)
	}
	h.tick(now.Add(time.Hour / 2))
	if kinds := told(t, first); len(kinds) != 0 {
		t.Errorf("nothing has changed: %q", kinds)
	}
}

func TestPresenceNamesPeople(t *testing.T) {
	h, late := still(), time.Now().Add(time.Hour)
	for i := range turn.SocketID(protocol.MaxPresenceViewers + 10) {
		seat(h, i, protocol.UserID("usr_"+string(rune('A'+i))), late)
	}
	seat(h, 1000, "usr_A", late)
	m := h.presence.Message()
	if m.Count != protocol.MaxPresenceViewers+10 || len(m.Viewers) != protocol.MaxPresenceViewers {
		t.Errorf("%d people, %d named", m.Count, len(m.Viewers))
	}
	if m.Viewers[0] != (protocol.PresentViewer{UserID: "usr_A", Name: "usr_A", Sockets: 2, CanControl: true}) {
		t.Errorf("%+v", m.Viewers[0])
	}
}

func TestSizesAreLimited(t *testing.T) {
	h, now := still(), time.Now()
	h.resize.want(protocol.Resize{Term: 2, Cols: 1, Rows: 1})
	h.tick(now)
	if h.resize.asked == nil || h.untilTick(now) <= 0 {
		t.Fatal("a request is lost, or waited for in a loop, without a link")
	}
	h.link = deafLink(t)
	h.tellCrowd(now)
	h.link.Take()
	for i := range 100 { // one each millisecond
		now = now.Add(time.Millisecond)
		h.resize.want(protocol.Resize{Term: 2, Cols: 1 + i, Rows: 1})
		h.tick(now)
	}
	h.tick(now.Add(resizeInterval))
	var cols []int
	for _, m := range sent(t, h.link) {
		cols = append(cols, m.(protocol.Resize).Cols)
	}
	if !slices.Equal(cols, []int{1, 51, 100}) {
		t.Errorf("sizes sent: %v", cols)
	}
}

func TestAnExpiredGrantIsNoticedInTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, now := still(), time.Now()
		v := seat(h, 1, "usr_1", now.Add(90*time.Second))
		seat(h, 2, "usr_2", now.Add(time.Hour))
		h.tick(now)
		// Events that come all the time don't put the look at the clock off.
		if wait := h.untilTick(now.Add(longestTick - time.Millisecond)); wait > time.Millisecond {
			t.Errorf("looks again in %v", wait)
		}
		time.Sleep(90*time.Second - 1)
		synctest.Wait()
		if len(h.audience.ended) != 0 {
			t.Error("cut before its time")
		}
		h.audience.cutEnded()
		if v.outbox.closing {
			t.Error("cut before its time, by run")
		}
		time.Sleep(1)
		synctest.Wait()
		if len(h.audience.ended) != 1 {
			t.Fatal("run doesn't know of it")
		}
		h.audience.cutEnded()
		if !v.outbox.closing || v.outbox.closeCode != 4401 || len(h.audience.viewers) != 1 {
			t.Errorf("closing %v with %d, %d viewers", v.outbox.closing, v.outbox.closeCode, len(h.audience.viewers))
		}
		if h.dial.bearer.Load().grant.Token != "token of usr_2" {
			t.Errorf("the bearer is %+v", h.dial.bearer.Load())
		}
	})
}

// A socket is pinged when it is quiet, and is dead when it doesn't answer; not
// while it is merely slow to take what is written.
func TestPings(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := still()
		v := seat(h, 1, "usr_1", time.Now().Add(time.Hour))
		s := &sink{changed: make(chan struct{}, 1), heard: time.Now()}
		v.socket.sink = s
		ended := make(chan struct{})
		go func() { // waited for below
			defer close(ended)
			v.Serve(t.Context())
		}()
		pings := func(want int) {
			t.Helper()
			synctest.Wait()
			s.mu.Lock()
			defer s.mu.Unlock()
			if s.pings != want {
				t.Errorf("%d pings, want %d", s.pings, want)
			}
		}
		hear := func() {
			s.mu.Lock()
			defer s.mu.Unlock()
			s.heard = time.Now()
		}
		time.Sleep(pingInterval)
		pings(1)
		hear()
		s.block(true)
		says(t, h, 1000)
		time.Sleep(10 * pongTimeout)
		pings(1)
		s.block(false)
		pings(2)
		time.Sleep(pongTimeout + 2*pingInterval) // nothing comes back
		<-ended
		pings(2)
		h.life.stop()
	})
}

func TestPresenceForgetsPeople(t *testing.T) {
	h, late := still(), time.Now().Add(time.Hour)
	a, b := seat(h, 1, "usr_b", late), seat(h, 2, "usr_a", late)
	again := seat(h, 3, "usr_b", late)
	h.audience.renew(again, &jws.Grant{Subject: "usr_b", ID: "gr_view", PTYs: []string{jws.AllPTYs}, ExpiresAt: late.Unix()}, "token")
	h.audience.leave(a)
	got := h.presence.Message().Viewers
	want := []protocol.PresentViewer{{UserID: "usr_a", Name: "usr_a", Sockets: 1, CanControl: true}, {UserID: "usr_b", Name: "usr_b", Sockets: 1}}
	if !slices.Equal(got, want) {
		t.Errorf("%+v, want %+v", got, want)
	}
	h.audience.leave(again)
	h.audience.leave(b)
	if m := h.presence.Message(); m.Count != 0 || len(m.Viewers) != 0 {
		t.Errorf("%+v", m)
	}
}
