package e2e

import (
	"net/http"
	"strings"
	"testing"
	"time"
)

// TestTwoBrowsersAtTwoRelays: a person's browsers are connected to a relay each.
// A command that names none is refused; one that names one runs there alone.
// What one shares is seen at both relays.
func TestTwoBrowsersAtTwoRelays(t *testing.T) {
	s := own(t, "--relays", "2")
	ctx := within(t)
	first, second := s.at(0, "alice"), s.at(1, "alice")
	grant := mustGrant(ctx, t, s, "alice")
	laptop, tower := "br_"+strings.Repeat("a", 26), "br_"+strings.Repeat("b", 26)
	one, other := listenIn(ctx, t, first.Base, grant, "browser="+laptop), listenIn(ctx, t, second.Base, grant, "browser="+tower)

	unclear := toExtension(s, map[string]any{"method": "Page.reload"})
	must(t, call(ctx, http.StatusConflict, nil, http.MethodPost, first.Base+"/commands", first.Token, unclear))

	named := toExtension(s, map[string]any{"method": "Page.reload"})
	named["target"].(map[string]any)["browserId"] = tower
	done := make(chan error, 1)
	go func() { // received below
		done <- call(ctx, http.StatusOK, nil, http.MethodPost, first.Base+"/commands", first.Token, named)
	}()
	if cmd := playExtension(ctx, t, other, second.Base, `{"kind":"cdp.send"}`); cmd.Target.BrowserID != tower {
		t.Errorf("signed for %q", cmd.Target.BrowserID)
	}
	must(t, <-done)
	select {
	case env := <-one.events:
		t.Errorf("the other browser got %s", env.CommandID)
	default: // the command is over
	}

	path := "/sessions/" + string(s.Ready.SessionID) + "/tabs"
	report := map[string]any{"browserId": laptop, "extensionId": anExtension, "tabs": []any{map[string]any{
		"tabId": 7, "title": "Mail", "url": "https://mail.example/inbox?secret=1", "expiresAt": time.Now().Add(time.Minute).UnixMilli(),
	}}}
	must(t, call(ctx, http.StatusOK, nil, http.MethodPut, first.Base+path, grant, report))
	var seen struct {
		Tabs []struct{ BrowserID, URL string }
	}
	must(t, call(ctx, http.StatusOK, &seen, http.MethodGet, second.Base+path, grant, nil))
	if len(seen.Tabs) != 1 || seen.Tabs[0].BrowserID != laptop || seen.Tabs[0].URL != "https://mail.example/inbox" {
		t.Errorf("shared: %+v", seen)
	}
}
