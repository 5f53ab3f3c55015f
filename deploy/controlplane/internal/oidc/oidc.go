// Package oidc signs people in at an OpenID Connect provider: the code flow
// with state, nonce and PKCE, from discovery to a verified identity.
package oidc

import (
	"context"
	"crypto/subtle"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	upstream "github.com/coreos/go-oidc/v3/oidc"
	"golang.org/x/oauth2"

	"github.com/fairlead/fairlead/protocol"
)

// A Config names the provider and what it knows us by.
type Config struct {
	Issuer       string // URL; https, or http on loopback
	ClientID     string
	ClientSecret string // empty: a public client
	RedirectURL  string // ours, where the provider sends people back
	Now          func() time.Time
}

const (
	requestTimeout = 10 * time.Second
	maxAnswer      = 1 << 20 // bytes of one answer of the provider
	maxClaim       = 256     // bytes of a name or address that is kept
	retryAfter     = 5 * time.Second
)

// A Provider is safe for concurrent use. It asks for the provider's metadata
// when somebody first signs in: that the provider is away keeps nobody from
// starting.
type Provider struct {
	// Static after construction.
	cfg    Config
	client *http.Client
	finder *http.Client // for discovery and keys

	// Guarded by mu.
	mu       sync.Mutex
	found    *discovered // nil until discovery succeeded
	failure  error       // of the last discovery
	failedAt time.Time
}

// A discovered provider has told its endpoints and algorithms.
type discovered struct {
	oauth    oauth2.Config
	verifier *upstream.IDTokenVerifier
}

// New returns the provider of cfg. An error says which setting can't be right.
func New(cfg Config) (*Provider, error) {
	u, err := url.Parse(cfg.Issuer)
	switch {
	case err != nil || u.Host == "" || u.User != nil || u.RawQuery != "" || u.Fragment != "":
		return nil, fmt.Errorf("issuer %q: want a URL without query", cfg.Issuer)
	case u.Scheme != "https" && (u.Scheme != "http" || !loopback(u.Hostname())):
		return nil, fmt.Errorf("issuer %q: want https, or http on loopback", cfg.Issuer)
	case cfg.ClientID == "":
		return nil, errors.New("the client id is missing")
	}
	transport := &http.Transport{
		Proxy:               http.ProxyFromEnvironment,
		TLSHandshakeTimeout: requestTimeout,
		MaxIdleConnsPerHost: 2,
		IdleConnTimeout:     time.Minute,
		ForceAttemptHTTP2:   true,
	}
	plain := limited{transport}
	return &Provider{
		cfg: cfg, client: &http.Client{Transport: plain, Timeout: requestTimeout},
		finder: &http.Client{Transport: uniqueKids{plain}, Timeout: requestTimeout},
	}, nil
}

func loopback(host string) bool {
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}

// Close ends idle connections.
func (p *Provider) Close() { p.client.CloseIdleConnections() }

// discover returns the provider's endpoints, and asks for them if nobody has
// had an answer yet. KindUpstream says that there is none now; for some seconds
// nobody else asks then, so that a provider that hangs holds up one request.
func (p *Provider) discover(ctx context.Context) (*discovered, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := p.cfg.Now()
	if p.found != nil || p.failure != nil && now.Sub(p.failedAt) < retryAfter {
		return p.found, p.failure
	}
	ctx, cancel := context.WithTimeout(upstream.ClientContext(ctx, p.finder), requestTimeout)
	defer cancel()
	provider, err := upstream.NewProvider(ctx, p.cfg.Issuer)
	if err != nil {
		p.failure, p.failedAt = upstreamError("the sign-in provider can't be reached", err), now
		return nil, p.failure
	}
	p.failure = nil
	p.found = &discovered{
		oauth: oauth2.Config{
			ClientID: p.cfg.ClientID, ClientSecret: p.cfg.ClientSecret, RedirectURL: p.cfg.RedirectURL,
			Endpoint: provider.Endpoint(),
			Scopes:   []string{upstream.ScopeOpenID, "profile", "email"},
		},
		verifier: provider.Verifier(&upstream.Config{ClientID: p.cfg.ClientID, Now: p.cfg.Now}),
	}
	return p.found, nil
}

func upstreamError(text string, err error) error {
	return &protocol.Error{Kind: protocol.KindUpstream, Message: text, Err: err}
}

// An Attempt is one sign-in under way. Its members are secrets between us and
// the browser that began it.
type Attempt struct {
	State    string
	Nonce    string
	Verifier string // of PKCE
}

// Start returns where to send the browser for a sign-in.
func (p *Provider) Start(ctx context.Context, a Attempt) (string, error) {
	d, err := p.discover(ctx)
	if err != nil {
		return "", err
	}
	return d.oauth.AuthCodeURL(a.State, upstream.Nonce(a.Nonce), oauth2.S256ChallengeOption(a.Verifier)), nil
}

// An Identity is who the provider says somebody is.
type Identity struct {
	Issuer  string
	Subject string
	Name    string // may be empty
	Email   string // in lower case; empty unless the provider has verified it
}

// Finish redeems the code that the browser came back with. KindUnauthenticated
// says that the provider, or its token, doesn't vouch for this attempt.
func (p *Provider) Finish(ctx context.Context, a Attempt, code string) (Identity, error) {
	d, err := p.discover(ctx)
	if err != nil {
		return Identity{}, err
	}
	ctx, cancel := context.WithTimeout(upstream.ClientContext(ctx, p.client), requestTimeout)
	defer cancel()
	tokens, err := d.oauth.Exchange(ctx, code, oauth2.VerifierOption(a.Verifier))
	if err != nil {
		if refusal, ok := errors.AsType[*oauth2.RetrieveError](err); ok && refusal.Response.StatusCode < http.StatusInternalServerError {
			// Its text quotes the provider's answer, which may hold anything.
			return Identity{}, refused("the provider refused the code", fmt.Errorf("status %d", refusal.Response.StatusCode))
		}
		return Identity{}, upstreamError("the sign-in provider gave no token", err)
	}
	raw, ok := tokens.Extra("id_token").(string)
	if !ok {
		return Identity{}, refused("the provider gave no id token", nil)
	}
	token, err := d.verifier.Verify(ctx, raw)
	if err != nil {
		return Identity{}, refused("the provider's id token is not valid", err)
	}
	return p.identify(token, tokens.AccessToken, a)
}

func refused(text string, err error) error {
	return &protocol.Error{Kind: protocol.KindUnauthenticated, Message: text, Err: err}
}

// claims are what we read from an id token beside what every token has.
type claims struct {
	AuthorizedParty string `json:"azp"`
	Name            string `json:"name"`
	Email           string `json:"email"`
	EmailVerified   truth  `json:"email_verified"`
}

// truth is a JSON boolean, which some providers write as a text.
type truth bool

func (t *truth) UnmarshalJSON(data []byte) error {
	*t = truth(string(data) == "true" || string(data) == `"true"`)
	return nil
}

// identify checks what go-oidc leaves to its caller: that a valid token belongs
// to this attempt and to us alone.
func (p *Provider) identify(token *upstream.IDToken, access string, a Attempt) (Identity, error) {
	var c claims
	if err := token.Claims(&c); err != nil {
		return Identity{}, refused("the provider's id token is not valid", err)
	}
	switch {
	case subtle.ConstantTimeCompare([]byte(token.Nonce), []byte(a.Nonce)) != 1:
		return Identity{}, refused("the id token is of another sign-in", nil)
	case c.AuthorizedParty != "" && c.AuthorizedParty != p.cfg.ClientID,
		c.AuthorizedParty == "" && len(token.Audience) > 1:
		return Identity{}, refused("the id token is another client's", nil)
	case token.Subject == "" || len(token.Subject) > maxClaim:
		return Identity{}, refused("the id token names nobody", nil)
	}
	if token.AccessTokenHash != "" {
		if err := token.VerifyAccessToken(access); err != nil {
			return Identity{}, refused("the access token is of another id token", err)
		}
	}
	id := Identity{Issuer: token.Issuer, Subject: token.Subject, Name: plain(c.Name)}
	if email := strings.ToLower(c.Email); bool(c.EmailVerified) && ValidEmail(email) {
		id.Email = email
	}
	return id, nil
}

// ValidEmail reports whether text looks like one address in lower case, and
// nothing else that could be shown or compared wrongly.
func ValidEmail(text string) bool {
	user, domain, ok := strings.Cut(text, "@")
	visible := func(r rune) bool {
		return '!' <= r && r <= '~' && !('A' <= r && r <= 'Z') && !strings.ContainsRune(`"(),:;<>@[\]`, r)
	}
	hidden := func(r rune) bool { return !visible(r) }
	return ok && user != "" && domain != "" && len(text) <= maxClaim &&
		!slices.ContainsFunc([]rune(user+domain), hidden)
}

// plain returns text without control characters, cut to a bounded length.
func plain(text string) string {
	text = strings.TrimSpace(strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7f || r == '\uFFFD' || 0x202A <= r && r <= 0x202E || 0x2066 <= r && r <= 0x2069 {
			return -1 // also the marks that turn the direction of text around
		}
		return r
	}, text))
	if len(text) > maxClaim {
		text = strings.ToValidUTF8(text[:maxClaim], "")
	}
	return text
}

// limited bounds the answers of the provider, which the libraries read whole.
type limited struct{ next *http.Transport }

func (l limited) RoundTrip(r *http.Request) (*http.Response, error) {
	res, err := l.next.RoundTrip(r)
	if err == nil {
		res.Body = http.MaxBytesReader(nil, res.Body, maxAnswer)
	}
	return res, err
}

// CloseIdleConnections makes [http.Client.CloseIdleConnections] reach the transport.
func (l limited) CloseIdleConnections() { l.next.CloseIdleConnections() }
