package oauth

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"time"

	"golang.org/x/oauth2"

	"github.com/fairlead/fairlead/protocol"
)

const (
	// Timeout bounds each request about tokens.
	Timeout = 15 * time.Second
	// RenewBefore is how long before its end a token is renewed.
	RenewBefore = 2 * time.Minute

	maxAnswer     = 256 << 10 // of a token endpoint
	maxTokenBytes = 16 << 10
)

// A Token is what an account's requests carry, and what renews it.
type Token struct {
	Access    string    `json:"access"`
	Refresh   string    `json:"refresh,omitempty"` // empty: it can't be renewed
	ExpiresAt time.Time `json:"expires_at,omitzero"`
	Scopes    string    `json:"-"` // as granted, separated by spaces; empty: not said
}

// Fresh reports whether the token serves for a while after now.
func (t Token) Fresh(now time.Time) bool {
	return t.ExpiresAt.IsZero() || now.Add(RenewBefore).Before(t.ExpiresAt)
}

// A Provider is one that is set up. It is safe for concurrent use.
type Provider struct {
	Name   string
	APIURL string // of its REST interface

	config    oauth2.Config
	params    map[string]string
	revokeURL string // empty: none
	revoke    revocation
	client    *http.Client
	now       func() time.Time
}

// ErrRefused says that the provider takes the account's tokens no more: a person
// must connect it again.
var ErrRefused = errors.New("the provider takes the tokens no more")

func newClient() *http.Client {
	transport := http.DefaultTransport.(*http.Transport).Clone()
	transport.MaxIdleConnsPerHost = 4
	return &http.Client{
		Timeout:       Timeout,
		Transport:     limitBody{transport},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
}

// limitBody bounds what is read of any answer.
type limitBody struct{ next *http.Transport }

func (l limitBody) RoundTrip(r *http.Request) (*http.Response, error) {
	res, err := l.next.RoundTrip(r)
	if err == nil {
		res.Body = struct {
			io.Reader
			io.Closer
		}{io.LimitReader(res.Body, maxAnswer), res.Body}
	}
	return res, err
}

// Close ends idle connections.
func (p *Provider) Close() { p.client.Transport.(limitBody).next.CloseIdleConnections() }

// CallbackPath is where browsers come back to, at the origin they came from.
func (p *Provider) CallbackPath() string { return "/integrations/" + p.Name + "/callback" }

// at returns the client for browsers of one origin.
func (p *Provider) at(origin string) *oauth2.Config {
	config := p.config
	config.RedirectURL = origin + p.CallbackPath()
	return &config
}

// AuthURL returns where a browser goes to connect an account. It comes back to
// CallbackPath at origin with state and a code; verifier is PKCE's.
func (p *Provider) AuthURL(origin, state, verifier string) string {
	options := []oauth2.AuthCodeOption{oauth2.S256ChallengeOption(verifier)}
	for name, value := range p.params {
		options = append(options, oauth2.SetAuthURLParam(name, value))
	}
	return p.at(origin).AuthCodeURL(state, options...)
}

// Exchange returns the token for a code that came back to origin. KindUpstream says that the provider
// didn't give one.
func (p *Provider) Exchange(ctx context.Context, origin, code, verifier string) (Token, error) {
	token, err := p.at(origin).Exchange(p.context(ctx), code, oauth2.VerifierOption(verifier))
	if err != nil {
		return Token{}, p.explain("did not connect the account", err)
	}
	return p.token(token)
}

// Renew returns a new token for an old one. It is ErrRefused when that can't be
// renewed ever, KindUpstream when the provider didn't do so now.
func (p *Provider) Renew(ctx context.Context, old Token) (Token, error) {
	if old.Refresh == "" {
		return Token{}, ErrRefused
	}
	source := p.config.TokenSource(p.context(ctx), &oauth2.Token{RefreshToken: old.Refresh})
	token, err := source.Token()
	if err != nil {
		if e, ok := errors.AsType[*oauth2.RetrieveError](err); ok && (e.ErrorCode == "invalid_grant" || e.ErrorCode == "bad_refresh_token") {
			return Token{}, fmt.Errorf("%s: %w", p.Name, ErrRefused)
		}
		return Token{}, p.explain("did not renew the token", err)
	}
	renewed, err := p.token(token)
	if renewed.Refresh == "" {
		renewed.Refresh = old.Refresh
	}
	return renewed, err
}

func (p *Provider) token(t *oauth2.Token) (Token, error) {
	if t.AccessToken == "" || len(t.AccessToken) > maxTokenBytes || len(t.RefreshToken) > maxTokenBytes || !visible(t.AccessToken) {
		return Token{}, protocol.Errorf(protocol.KindUpstream, "%s gave a token that is none", p.Name)
	}
	token := Token{Access: t.AccessToken, Refresh: t.RefreshToken}
	switch {
	case t.ExpiresIn > 0:
		token.ExpiresAt = p.now().Add(time.Duration(t.ExpiresIn) * time.Second)
	case !t.Expiry.IsZero():
		token.ExpiresAt = p.now().Add(time.Until(t.Expiry))
	}
	if scope, ok := t.Extra("scope").(string); ok && len(scope) <= 4096 {
		token.Scopes = strings.Join(strings.FieldsFunc(scope, func(r rune) bool { return r == ' ' || r == ',' }), " ")
	}
	return token, nil
}

// visible: what may stand in a header.
func visible(s string) bool {
	for i := range len(s) {
		if s[i] <= ' ' || s[i] >= 0x7f {
			return false
		}
	}
	return true
}

// Revoke takes an account's token back at the provider, if it can do so.
func (p *Provider) Revoke(ctx context.Context, t Token) error {
	if p.revokeURL == "" {
		return nil
	}
	req, err := p.revokeRequest(ctx, t)
	if err != nil {
		return err
	}
	res, err := p.client.Do(req)
	if err != nil {
		return p.explain("did not take the token back", err)
	}
	defer res.Body.Close()
	if res.StatusCode/100 != 2 && res.StatusCode != http.StatusNotFound {
		return protocol.Errorf(protocol.KindUpstream, "%s did not take the token back: status %d", p.Name, res.StatusCode)
	}
	return nil
}

func (p *Provider) revokeRequest(ctx context.Context, t Token) (*http.Request, error) {
	if p.revoke == revokeApplication {
		body, err := json.Marshal(map[string]string{"access_token": t.Access})
		if err != nil {
			return nil, err
		}
		req, err := http.NewRequestWithContext(ctx, http.MethodDelete, p.revokeURL, bytes.NewReader(body))
		if err != nil {
			return nil, err
		}
		req.SetBasicAuth(p.config.ClientID, p.config.ClientSecret)
		req.Header.Set("Content-Type", "application/json")
		return req, nil
	}
	token := t.Refresh // with it goes what it renewed
	if token == "" {
		token = t.Access
	}
	form := url.Values{"token": {token}}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, p.revokeURL, strings.NewReader(form.Encode()))
	if err != nil {
		return nil, err
	}
	req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	return req, nil
}

func (p *Provider) context(ctx context.Context) context.Context {
	return context.WithValue(ctx, oauth2.HTTPClient, p.client)
}

// explain tells what failed without the provider's own words, which may hold
// what it was sent.
func (p *Provider) explain(what string, err error) error {
	status := ""
	if e, ok := errors.AsType[*oauth2.RetrieveError](err); ok && e.Response != nil {
		status = fmt.Sprintf(": status %d", e.Response.StatusCode)
	}
	return &protocol.Error{Kind: protocol.KindUpstream, Message: p.Name + " " + what + status}
}
