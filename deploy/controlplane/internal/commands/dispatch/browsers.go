package dispatch

import (
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"net/http"
	"net/url"
	"slices"
	"time"

	"github.com/fairlead/fairlead/deploy/controlplane/internal/relays"
	"github.com/fairlead/fairlead/deploy/controlplane/internal/store"
	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/protocol/op"
)

const (
	// askTimeout bounds the question which browsers are connected, and
	// maxBrowsersAnswer the answer, in bytes.
	askTimeout        = 2 * time.Second
	maxBrowsersAnswer = 64 << 10
)

// An offered command is one as relays take it.
type offered struct {
	body    []byte // the envelope
	browser string // of its user, the only one to get it; empty: it isn't known
}

func (o offered) path() string {
	path := "/control/commands?wait=1"
	if o.browser != "" {
		path += "&browser=" + url.QueryEscape(o.browser)
	}
	return path
}

// An inquirer asks relays which browsers listen there.
type inquirer struct {
	relays *relays.Directory
	logger *slog.Logger
}

// only returns the browser that a command for pages is for, where several
// relays would give it to their own pages each: the one that it names, or else
// the only one whose pages listen. It fails with kind conflict if there are
// several. None may be connected yet; then it is empty. A relay that doesn't
// answer counts for none: it won't take the command either.
func (q inquirer) only(ctx context.Context, all []store.Relay, target protocol.CommandTarget, body []byte) (string, error) {
	if target.BrowserID != "" || len(all) < 2 { // a relay alone decides for itself
		return target.BrowserID, nil
	}
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	answers := make(chan []string, len(all))
	for _, relay := range all {
		go func() { answers <- q.browsersAt(ctx, relay, body) }() // ends with ctx
	}
	var browsers []string
	for range all {
		browsers = append(browsers, <-answers...)
	}
	slices.Sort(browsers)
	switch browsers = slices.Compact(browsers); len(browsers) {
	case 0:
		return "", nil
	case 1:
		return browsers[0], nil
	}
	return "", protocol.Errorf(protocol.KindConflict, "several browsers of this user are connected: target.browserId must say which one")
}

// browsersAt asks a relay which browsers would get a command there.
func (q inquirer) browsersAt(ctx context.Context, relay store.Relay, body []byte) []string {
	req, err := relays.Post(ctx, relay, "/control/browsers", "application/json", body)
	if err != nil {
		return nil
	}
	res, err := q.relays.Do(req)
	if err != nil {
		q.logger.Warn("relay doesn't say which browsers it has", "relay", relay.ID, "error", err)
		return nil
	}
	defer res.Body.Close()
	data, err := io.ReadAll(io.LimitReader(res.Body, maxBrowsersAnswer))
	var answer op.Browsers
	if err != nil || res.StatusCode != http.StatusOK || json.Unmarshal(data, &answer) != nil {
		q.logger.Info("relay doesn't say which browsers it has", "relay", relay.ID, "status", res.StatusCode)
		return nil
	}
	return slices.DeleteFunc(answer.Browsers, func(id string) bool { return !op.ValidBrowserID(id) })
}
