package dispatch

import (
	"context"
	"encoding/json"
	"math/rand/v2"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/protocol/jws"
	"github.com/fairlead/fairlead/relay/internal/pagestream"
)

// seenIn returns the commands that a page of a browser gets that connects now.
func (w *world) seenIn(browser string) (all []protocol.CommandEnvelope) {
	grant, _ := w.authority.Grant(func(g *jws.Grant) { g.Caps = append(g.Caps, protocol.CapMCP) })
	ctx, cancel := context.WithCancel(w.t.Context())
	cancel()
	answer := httptest.NewRecorder()
	if err := w.pages.Serve(deadlines{answer}, httptest.NewRequest("GET", "/", nil).WithContext(ctx), pagestream.Page{Grant: grant, Browser: browser}); err != nil {
		w.t.Fatal(err)
	}
	for line := range strings.Lines(answer.Body.String()) {
		if data, ok := strings.CutPrefix(line, "data: "); ok {
			var env protocol.CommandEnvelope
			if err := json.Unmarshal([]byte(data), &env); err != nil {
				w.t.Fatal(err)
			}
			all = append(all, env)
		}
	}
	return all
}

// Whoever carries commands may keep, change, repeat, reorder and reroute them: no
// page gets one twice, changed, or in another browser.
func TestAHostileCarrier(t *testing.T) {
	synctest.Test(t, testAHostileCarrier) // whose pages come at the end, in time on any machine
}

func testAHostileCarrier(t *testing.T) {
	const tries = 10_000
	w := pageWorld(t)
	defer w.dispatcher.Close()
	browsers := []string{"br_" + strings.Repeat("a", 26), "br_" + strings.Repeat("b", 26)}
	var sound []protocol.CommandEnvelope
	for i := range 20 {
		sound = append(sound, w.authority.Command(func(c *jws.Command) {
			forPage(c)
			c.TTLMs = protocol.MaxCommandTTL.Milliseconds()
			c.Target.BrowserID = browsers[i%2]
		}))
	}
	random := rand.New(rand.NewPCG(1, 2))
	changes := []func(env *protocol.CommandEnvelope, other protocol.CommandEnvelope){
		func(env *protocol.CommandEnvelope, other protocol.CommandEnvelope) { env.CommandID = other.CommandID },
		func(env *protocol.CommandEnvelope, other protocol.CommandEnvelope) { env.TraceID = other.TraceID + "x" },
		func(env *protocol.CommandEnvelope, _ protocol.CommandEnvelope) { env.Target.TabID++ },
		func(env *protocol.CommandEnvelope, _ protocol.CommandEnvelope) { env.Target.BrowserID = "" },
		func(env *protocol.CommandEnvelope, _ protocol.CommandEnvelope) {
			env.Target.BrowserID = "br_" + strings.Repeat("c", 26)
		},
		func(env *protocol.CommandEnvelope, _ protocol.CommandEnvelope) { env.Target.ExtensionID = "another" },
		func(env *protocol.CommandEnvelope, _ protocol.CommandEnvelope) { env.Target.SessionID = "ses_9" },
		func(env *protocol.CommandEnvelope, _ protocol.CommandEnvelope) { env.Target.SandboxID = "sb_1" },
		func(env *protocol.CommandEnvelope, _ protocol.CommandEnvelope) { env.IssuedAt++ },
		func(env *protocol.CommandEnvelope, _ protocol.CommandEnvelope) { env.TTLMs++ },
		func(env *protocol.CommandEnvelope, other protocol.CommandEnvelope) { env.JWS = other.JWS },
		func(env *protocol.CommandEnvelope, _ protocol.CommandEnvelope) {
			at := random.IntN(len(env.JWS))
			swapped := byte('A')
			if env.JWS[at] == 'A' {
				swapped = 'B'
			}
			env.JWS = env.JWS[:at] + string(swapped) + env.JWS[at+1:]
		},
	}
	sent := map[protocol.CommandID]bool{}
	for range tries {
		i := random.IntN(len(sound))
		env, other := sound[i], sound[(i+1+random.IntN(len(sound)-1))%len(sound)]
		if k := random.IntN(len(changes) + 1); k < len(changes) {
			changes[k](&env, other)
			if _, err := w.dispatcher.SubmitTo(t.Context(), env, browsers[random.IntN(2)]); err == nil {
				t.Fatalf("change %d was taken: %+v", k, env)
			}
			continue
		}
		if _, err := w.dispatcher.SubmitTo(t.Context(), env, browsers[random.IntN(2)]); err != nil {
			t.Fatal(err)
		}
		sent[env.CommandID] = true
	}
	if len(sent) != len(sound) {
		t.Fatalf("%d of %d were sent", len(sent), len(sound))
	}
	got := map[protocol.CommandID]int{}
	for _, browser := range browsers {
		for _, env := range w.seenIn(browser) {
			got[env.CommandID]++
			for _, s := range sound {
				if s.CommandID == env.CommandID && (s != env || s.Target.BrowserID != browser) {
					t.Errorf("%s got %+v, sent %+v", browser, env, s)
				}
			}
		}
	}
	for _, s := range sound {
		if got[s.CommandID] != 1 {
			t.Errorf("%s came %d times", s.CommandID, got[s.CommandID])
		}
	}
	if other := w.seenIn("br_" + strings.Repeat("c", 26)); len(other) != 0 {
		t.Errorf("another browser got %+v", other)
	}
}
