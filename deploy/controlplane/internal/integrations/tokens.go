package integrations

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"net/url"
	"slices"
	"sync"
	"time"

	"github.com/fairlead/fairlead/deploy/controlplane/internal/clock"
	"github.com/fairlead/fairlead/deploy/controlplane/internal/oauth"
	"github.com/fairlead/fairlead/deploy/controlplane/internal/provider"
	"github.com/fairlead/fairlead/deploy/controlplane/internal/store"
	"github.com/fairlead/fairlead/deploy/controlplane/internal/vault"
	"github.com/fairlead/fairlead/protocol"
)

// upstreamTimeout bounds what is asked of a provider for one request.
const upstreamTimeout = 20 * time.Second

// errNoVault says why nothing can be kept.
var errNoVault = errors.New("integrations: no vault key file is named, and tokens are only kept encrypted")

// openVault opens the vault whose keys are in a file; nil: there is no file, and
// none is needed.
func openVault(keyFile string, needed bool) (*vault.Vault, error) {
	if keyFile == "" && needed {
		return nil, errNoVault
	}
	if keyFile == "" {
		return nil, nil
	}
	return vault.Open(keyFile)
}

// A tokenStore keeps tokens, sealed.
type tokenStore interface {
	Account(ctx context.Context, id string) (store.Account, error)
	SetTokens(ctx context.Context, id string, expectVersion int64, keyID string, sealed []byte) error
	FailAccount(ctx context.Context, id string, expectVersion int64) error
}

// tokens keeps the tokens of accounts in a vault, and renews them.
type tokens struct {
	// Static after construction.
	vault    *vault.Vault // nil: there is no key file
	store    tokenStore
	upstream *http.Transport
	clock    clock.Clock
	logger   *slog.Logger

	renewing keyedLocks // by account: one renewal at a time
}

func newTokens(v *vault.Vault, st tokenStore, clk clock.Clock, logger *slog.Logger) *tokens {
	upstream := http.DefaultTransport.(*http.Transport).Clone()
	upstream.MaxIdleConnsPerHost = 8
	upstream.ResponseHeaderTimeout = upstreamTimeout
	return &tokens{vault: v, store: st, upstream: upstream, clock: clk, logger: logger}
}

func (t *tokens) close() { t.upstream.CloseIdleConnections() }

// errReconnect says that only a person can make the account work again.
func errReconnect(provider string) error {
	return protocol.Errorf(protocol.KindUpstream, "%s takes the tokens of this account no more: it must be connected again", provider)
}

// seal seals the tokens of an account for it alone.
func (t *tokens) seal(a store.Account, token oauth.Token) (keyID string, sealed []byte, err error) {
	if t.vault == nil {
		return "", nil, errNoVault
	}
	plain, err := json.Marshal(token)
	if err != nil {
		return "", nil, err
	}
	return t.vault.Seal(plain, string(a.User), a.Provider, a.ID)
}

// open opens what seal sealed.
func (t *tokens) open(a store.Account) (token oauth.Token, err error) {
	if t.vault == nil {
		return token, errNoVault
	}
	plain, err := t.vault.Open(a.KeyID, a.Sealed, string(a.User), a.Provider, a.ID)
	if err != nil {
		return token, err
	}
	return token, json.Unmarshal(plain, &token)
}

// get returns the token of an account, renewed if it is about to end, or if it
// is the one that the provider just refused. One renewal of an account is under
// way at a time; whoever waited for it gets what it brought.
func (t *tokens) get(ctx context.Context, p *oauth.Provider, id, refused string) (oauth.Token, error) {
	unlock := t.renewing.lock(ctx.Done(), id)
	if unlock == nil {
		return oauth.Token{}, ctx.Err()
	}
	defer unlock()
	account, err := t.store.Account(ctx, id)
	if err != nil {
		return oauth.Token{}, err
	}
	if !account.FailedAt.IsZero() {
		return oauth.Token{}, errReconnect(p.Name)
	}
	old, err := t.open(account)
	if err != nil {
		return oauth.Token{}, err
	}
	if old.Fresh(t.clock.Now()) && old.Access != refused {
		return old, nil
	}
	// What the provider gives for the old token must be kept, whoever waits.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), oauth.Timeout)
	defer cancel()
	renewed, err := p.Renew(ctx, old)
	switch {
	case errors.Is(err, oauth.ErrRefused):
		t.logger.Warn("an account must be connected again", "account", id, "provider", p.Name, "user", account.User)
		return oauth.Token{}, errors.Join(errReconnect(p.Name), t.store.FailAccount(ctx, id, account.Version))
	case err != nil && old.Access != refused && t.clock.Now().Before(old.ExpiresAt):
		t.logger.Warn("a token was not renewed, and serves for a while", "account", id, "provider", p.Name, "error", err)
		return old, nil
	case err != nil:
		return oauth.Token{}, err
	}
	return renewed, t.keep(ctx, account, renewed)
}

// keep stores renewed tokens. Where the account got others meanwhile, by its
// user's connecting it again, those are kept.
func (t *tokens) keep(ctx context.Context, a store.Account, renewed oauth.Token) error {
	keyID, sealed, err := t.seal(a, renewed)
	if err != nil {
		return err
	}
	err = t.store.SetTokens(ctx, a.ID, a.Version, keyID, sealed)
	if err != nil && protocol.KindOf(err) == protocol.KindConflict {
		return nil
	}
	return err
}

// revoke takes the tokens of an account back at its provider; nil: it isn't set
// up any more, and nothing is done.
func (t *tokens) revoke(ctx context.Context, p *oauth.Provider, a store.Account) error {
	if p == nil {
		return nil
	}
	token, err := t.open(a)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), oauth.Timeout)
	defer cancel()
	return p.Revoke(ctx, token)
}

// A bearerTransport adds an account's token to requests to its provider, and
// renews a token that is refused, once. Nothing else gets the token.
type bearerTransport struct {
	tokens  *tokens
	to      *oauth.Provider
	api     *url.URL
	account string

	mu sync.Mutex // a search asks for several messages at once
	// Guarded by mu.
	token oauth.Token
	seen  []string // every token that was sent
}

// bearer returns a transport for the requests of an account that has a token.
func (t *tokens) bearer(p *oauth.Provider, account string, token oauth.Token) (*bearerTransport, error) {
	api, err := url.Parse(p.APIURL)
	if err != nil {
		return nil, err
	}
	return &bearerTransport{tokens: t, to: p, api: api, account: account, token: token, seen: secretsOf(token)}, nil
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
	renewed, err := b.tokens.get(r.Context(), b.to, b.account, token)
	if err != nil {
		b.tokens.logger.Info("a refused token was not renewed", "account", b.account, "error", err)
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
	res, err := b.tokens.upstream.RoundTrip(out)
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
