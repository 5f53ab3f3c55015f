package hub

import (
	"bytes"
	"context"
	"log/slog"
	"slices"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/protocol/jws"
	"github.com/fairlead/fairlead/relay/internal/turn"
)

// still returns a hub that no goroutine runs: a test calls what run would.
func still() *Hub {
	h := newHub(testKey, nil, slog.New(slog.DiscardHandler), NewMetrics(prometheus.NewRegistry()))
	h.feed = newFeed(protocol.TerminalOpened{Epoch: 7, Cols: 80, Rows: 24}, &h.finished)
	h.state = turn.New("", true, held(3, 2))
	h.bearer.Store(&bearer{token: "opener"})
	return h
}

// seat adds a greeted viewer to a still hub.
func seat(h *Hub, id turn.SocketID, user protocol.UserID, expires time.Time) *Viewer {
	grant := &jws.Grant{
		Subject: user, ID: protocol.GrantID("gr_" + string(user)), Name: string(user), PTYs: []string{jws.AllPTYs},
		Caps: []protocol.Capability{protocol.CapView, protocol.CapControl}, ExpiresAt: expires.Unix(),
	}
	v := &Viewer{id: id, user: user, name: grant.Name, hub: h, wake: make(chan struct{}, 1), grant: grant, token: "token of " + string(user)}
	h.join(v)
	return v
}

// told returns the types of the text frames that wait for v, and forgets them.
func told(t *testing.T, v *Viewer) (kinds []string) {
	t.Helper()
	v.mu.Lock()
	defer v.mu.Unlock()
	for b := v.notices; len(b) > 0; {
		payload, rest, err := parse(b)
		if err != nil {
			t.Fatal(err)
		}
		kind, _, _ := bytes.Cut(bytes.TrimPrefix(payload, []byte(`{"type":"`)), []byte(`"`))
		kinds = append(kinds, string(kind))
		b = rest
	}
	v.notices = nil
	return kinds
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
		h.tick(now.Add(time.Duration(i) * presenceInterval / 10))
	}
	if kinds := told(t, first); len(kinds) != 0 {
		t.Errorf("told within a second: %q", kinds)
	}
	if wait := h.untilTick(now.Add(presenceInterval * 9 / 10)); wait != presenceInterval/10 {
		t.Errorf("looks again in %v", wait)
	}
	now = now.Add(presenceInterval)
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
	m := h.presence.message(h.viewers)
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
	if h.resize.wish == nil || h.untilTick(now) <= 0 {
		t.Fatal("a wish is lost, or waited for in a loop, without a link")
	}
	ctx, giveUp := context.WithCancel(t.Context())
	defer giveUp()
	h.link = &link{ready: make(chan struct{}, 1), abandon: ctx, giveUp: giveUp}
	for i := range 100 { // one each millisecond
		now = now.Add(time.Millisecond)
		h.resize.want(protocol.Resize{Term: 2, Cols: 1 + i, Rows: 1})
		h.tick(now)
	}
	h.tick(now.Add(resizeInterval))
	frames := protocol.NewFrameReader(bytes.NewReader(h.link.out))
	var cols []int
	for {
		frame, err := frames.Next()
		if err != nil {
			break
		}
		m, err := protocol.Decode(frame)
		if err != nil {
			t.Fatal(err)
		}
		cols = append(cols, m.(protocol.Resize).Cols)
	}
	if !slices.Equal(cols, []int{1, 51, 100}) {
		t.Errorf("sizes sent: %v", cols)
	}
}

func TestAnExpiredGrantIsNoticedInTime(t *testing.T) {
	h, now := still(), time.Now().Truncate(time.Second)
	v := seat(h, 1, "usr_1", now.Add(90*time.Second))
	seat(h, 2, "usr_2", now.Add(time.Hour))
	h.tick(now)
	// Events that come all the time don't put the look at the clock off.
	if wait := h.untilTick(now.Add(longestTick - time.Millisecond)); wait > time.Millisecond {
		t.Errorf("looks again in %v", wait)
	}
	h.tick(now.Add(90*time.Second - 1))
	if v.closing {
		t.Error("cut before its time")
	}
	h.tick(now.Add(90 * time.Second))
	if !v.closing || v.closeCode != 4401 || len(h.viewers) != 1 {
		t.Errorf("closing %v with %d, %d viewers", v.closing, v.closeCode, len(h.viewers))
	}
	if h.bearer.Load().token != "token of usr_2" {
		t.Errorf("the bearer is %+v", h.bearer.Load())
	}
}
