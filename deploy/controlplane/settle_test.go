package controlplane

import (
	"net/http"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/fairlead/fairlead/deploy/controlplane/internal/metrics"
	"github.com/fairlead/fairlead/protocol"
)

// TestFound14EveryRelayIsTold: a command for pages is answered at one relay; the
// others are told, by the command's own token, also one whose offer is still
// under way. What a sandbox ran is nobody else's business.
func TestFound14EveryRelayIsTold(t *testing.T) {
	p := newPlane(t)
	answer := callback(`"status":"ok","result":{"kind":"cdp.send"}`)
	first := newFakeRelay(t, answer)
	second := newFakeRelay(t, func(_ http.ResponseWriter, _ protocol.CommandEnvelope) { panic(http.ErrAbortHandler) })
	second.unsettled = 2
	p.register("rl_1", relayToken, first.URL)
	p.register("rl_2", relay2Token, second.URL)
	p.want(commandCall(aliceToken, `{"target":{"sessionId":"ses_1","extensionId":"abc"},"op":{"kind":"cdp.send","method":"Page.reload"}}`), http.StatusOK, "")
	p.want(commandCall(aliceToken, createBody), http.StatusOK, "") // to the sandbox
	p.server.commands.Settlements.Close()

	command, err := p.keys().Command(t.Context(), first.got()[0].JWS, "browser-extension")
	if err != nil {
		t.Fatal(err)
	}
	for relay, times := range map[*fakeRelay]int{first: 1, second: 3} {
		for _, told := range relay.settled {
			if token, body, _ := strings.Cut(told, " "); token != command.Reply.CallbackToken || !strings.Contains(body, string(command.CommandID)) {
				t.Errorf("told %s", told)
			}
		}
		if len(relay.settled) != times {
			t.Errorf("told %d times, want %d: %v", len(relay.settled), times, relay.settled)
		}
	}
	if n := testutil.ToFloat64(p.server.metrics.Settled.WithLabelValues(metrics.SettledTold)); n != 2 {
		t.Errorf("%v relays were told", n)
	}
}
