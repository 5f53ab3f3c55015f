package controlplane

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/url"
	"slices"
	"sync"
	"time"

	"github.com/fairlead/fairlead/deploy/controlplane/internal/oauth"
	"github.com/fairlead/fairlead/deploy/controlplane/internal/provider"
	"github.com/fairlead/fairlead/deploy/controlplane/internal/store"
	"github.com/fairlead/fairlead/protocol"
)

// upstreamTimeout bounds what is asked of a provider for one request.
const upstreamTimeout = 20 * time.Second

// errReconnect says that only a person can make the account work again.
func errReconnect(provider string) error {
	return protocol.Errorf(protocol.KindUpstream, "%s takes the tokens of this account no more: it must be connected again", provider)
}

// sealTokens seals the tokens of an account for it alone.
func (in *integrations) sealTokens(a store.Account, t oauth.Token) (keyID string, sealed []byte, err error) {
	if in.vault == nil {
		return "", nil, errNoVault
	}
	plain, err := json.Marshal(t)
	if err != nil {
		return "", nil, err
	}
	return in.vault.Seal(plain, string(a.User), a.Provider, a.ID)
}

func (in *integrations) openTokens(a store.Account) (t oauth.Token, err error) {
	if in.vault == nil {
		return t, errNoVault
	}
	plain, err := in.vault.Open(a.KeyID, a.Sealed, string(a.User), a.Provider, a.ID)
	if err != nil {
		return t, err
	}
	return t, json.Unmarshal(plain, &t)
}

// token returns the token of an account, renewed if it is about to end, or if it
// is the one that the provider just refused. One renewal of an account is under
// way at a time; whoever waited for it gets what it brought.
func (s *Server) token(ctx context.Context, p *oauth.Provider, id, refused string) (oauth.Token, error) {
	unlock := s.integrations.renewing.lock(ctx.Done(), id)
	if unlock == nil {
		return oauth.Token{}, ctx.Err()
	}
	defer unlock()
	account, err := s.store.Integrations.Account(ctx, id)
	if err != nil {
		return oauth.Token{}, err
	}
	if !account.FailedAt.IsZero() {
		return oauth.Token{}, errReconnect(p.Name)
	}
	t, err := s.integrations.openTokens(account)
	if err != nil {
		return oauth.Token{}, err
	}
	if t.Fresh(s.clock.Now()) && t.Access != refused {
		return t, nil
	}
	// What the provider gives for the old token must be kept, whoever waits.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), oauth.Timeout)
	defer cancel()
	renewed, err := p.Renew(ctx, t)
	switch {
	case errors.Is(err, oauth.ErrRefused):
		s.logger.Warn("an account must be connected again", "account", id, "provider", p.Name, "user", account.User)
		return oauth.Token{}, errors.Join(errReconnect(p.Name), s.store.Integrations.FailAccount(ctx, id, account.Version))
	case err != nil && t.Access != refused && s.clock.Now().Before(t.ExpiresAt):
		s.logger.Warn("a token was not renewed, and serves for a while", "account", id, "provider", p.Name, "error", err)
		return t, nil
	case err != nil:
		return oauth.Token{}, err
	}
	return renewed, s.keepTokens(ctx, account, renewed)
}

// keepTokens stores renewed tokens. Where the account got others meanwhile, by
// its user's connecting it again, those are kept.
func (s *Server) keepTokens(ctx context.Context, a store.Account, t oauth.Token) error {
	keyID, sealed, err := s.integrations.sealTokens(a, t)
	if err != nil {
		return err
	}
	err = s.store.Integrations.SetTokens(ctx, a.ID, a.Version, keyID, sealed)
	if err != nil && protocol.KindOf(err) == protocol.KindConflict {
		return nil
	}
	return err
}

// revokeUpstream takes the tokens of an account back at its provider.
func (s *Server) revokeUpstream(ctx context.Context, a store.Account) error {
	p := s.integrations.providers[a.Provider]
	if p == nil {
		return nil
	}
	t, err := s.integrations.openTokens(a)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), oauth.Timeout)
	defer cancel()
	return p.Revoke(ctx, t)
}

// A bearerTransport adds an account's token to requests to its provider, and
// renews a token that is refused, once. Nothing else gets the token.
type bearerTransport struct {
	server  *Server
	to      *oauth.Provider
	api     *url.URL
	account string

	mu sync.Mutex // a search asks for several messages at once
	// Guarded by mu.
	token oauth.Token
	seen  []string // every token that was sent
}

func (s *Server) newBearer(p *oauth.Provider, account string, t oauth.Token) (*bearerTransport, error) {
	api, err := url.Parse(p.APIURL)
	if err != nil {
		return nil, err
	}
	return &bearerTransport{server: s, to: p, api: api, account: account, token: t, seen: secretsOf(t)}, nil
}

func secretsOf(t oauth.Token) []string {
	secrets := []string{t.Access}
	if t.Refresh != "" {
		secrets = append(secrets, t.Refresh)
	}
	return secrets
}

func (b *bearerTransport) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.URL.Scheme != b.api.Scheme || r.URL.Host != b.api.Host {
		return nil, errors.New("the token is for another host")
	}
	token := b.current()
	res, err := b.send(r, token)
	if err != nil || res.StatusCode != http.StatusUnauthorized || r.Body != nil && r.GetBody == nil {
		return res, err
	}
	renewed, err := b.server.token(r.Context(), b.to, b.account, token)
	if err != nil {
		b.server.logger.Info("a refused token was not renewed", "account", b.account, "error", err)
		return res, nil // the provider's refusal says it all
	}
	if err := res.Body.Close(); err != nil {
		return nil, err
	}
	b.use(renewed)
	return b.send(r, renewed.Access)
}

func (b *bearerTransport) current() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.token.Access
}

// use takes a renewed token, unless another request has brought it already.
func (b *bearerTransport) use(renewed oauth.Token) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.token.Access == renewed.Access {
		return
	}
	b.token = renewed
	b.seen = append(b.seen, secretsOf(renewed)...)
}

// secrets returns every token that was sent, and what renews them.
func (b *bearerTransport) secrets() []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.Clone(b.seen)
}

// send sends a request with a token, and masks in the bytes of the answer each
// token that was sent: later they may be cut, or written as base64.
func (b *bearerTransport) send(r *http.Request, token string) (*http.Response, error) {
	out := r.Clone(r.Context())
	if r.GetBody != nil {
		body, err := r.GetBody()
		if err != nil {
			return nil, err
		}
		out.Body = body
	}
	out.Header.Set("Authorization", "Bearer "+token)
	res, err := b.server.integrations.upstream.RoundTrip(out)
	if err != nil {
		return nil, err
	}
	data, err := io.ReadAll(io.LimitReader(res.Body, provider.MaxAnswer+1))
	if err = errors.Join(err, res.Body.Close()); err != nil {
		return nil, err
	}
	if len(data) <= provider.MaxAnswer { // more of it is refused
		data = mask(data, b.secrets())
	}
	res.Body, res.ContentLength = io.NopCloser(bytes.NewReader(data)), -1
	return res, nil
}
