package plugin

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"time"

	"github.com/fairlead/fairlead/deploy/program/pause"
	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/protocol/pluginsocket"
)

const (
	// offerTimeout bounds one request to the agent.
	offerTimeout = 5 * time.Second
	// offerPause is the time between two, while nothing listens at the port yet.
	offerPause = 100 * time.Millisecond
	// maxOfferAnswer bounds its answer, in bytes.
	maxOfferAnswer = 16 << 10
)

// Offer registers a port of a terminal's program at the agent, by the terminal's
// credentials, which lead to this machine. For patience it waits for the program to
// listen there. No error holds the secret.
func Offer(ctx context.Context, c protocol.MCPCredentials, offer pluginsocket.Offer, patience time.Duration) (pluginsocket.Info, error) {
	client := &http.Client{
		Transport: &http.Transport{Proxy: nil}, Timeout: offerTimeout,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	defer client.CloseIdleConnections()
	ends := time.Now().Add(patience)
	for {
		info, err := post(ctx, client, c, offer)
		if protocol.KindOf(err) != protocol.KindNotFound || err == nil || !time.Now().Before(ends) {
			return info, err
		}
		if waited := pause.For(ctx, offerPause); waited != nil {
			return info, err
		}
	}
}

// post makes one request. What the agent refuses is an error of its kind.
func post(ctx context.Context, client *http.Client, c protocol.MCPCredentials, offer pluginsocket.Offer) (info pluginsocket.Info, err error) {
	at, err := url.Parse(c.URL)
	if err != nil {
		return info, errors.New("the address of the agent is malformed")
	}
	target := (&url.URL{Scheme: "http", Host: at.Host}).JoinPath("sessions", string(c.SessionID), "ptys", string(c.PTYID), "plugins")
	body, err := json.Marshal(offer)
	if err != nil {
		return info, err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, target.String(), bytes.NewReader(body))
	if err != nil {
		return info, err
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set(protocol.MCPSecretHeader, c.Secret)
	resp, err := client.Do(req)
	if err != nil {
		return info, fmt.Errorf("the sandbox agent doesn't answer: %w", err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(io.LimitReader(resp.Body, maxOfferAnswer))
	if err != nil {
		return info, err
	}
	if resp.StatusCode == http.StatusOK {
		return info, json.Unmarshal(text, &info)
	}
	var refusal struct{ Error protocol.ErrorBody }
	if json.Unmarshal(text, &refusal) != nil || refusal.Error.Message == "" {
		return info, fmt.Errorf("the sandbox agent answered %d", resp.StatusCode)
	}
	kind := protocol.KindInvalid
	switch resp.StatusCode {
	case http.StatusNotFound:
		kind = protocol.KindNotFound
	case http.StatusConflict:
		kind = protocol.KindConflict
	case http.StatusForbidden:
		kind = protocol.KindForbidden
	}
	return info, protocol.Errorf(kind, "%s", refusal.Error.Message)
}
