// Package jar puts the cookies of somebody's own browser into a running Chromium by
// the DevTools protocol, and compares them with what Chromium made of them.
package jar

import (
	"context"
	"time"

	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/cdproto/storage"

	"github.com/fairlead/fairlead/protocol/seal"
)

const (
	// batchSize is how many cookies are set by one call: Chromium answers nothing else
	// meanwhile.
	batchSize = 500
	// maxSingly bounds the cookies that are set one by one, since Chromium has refused
	// a batch.
	maxSingly = 1000
)

// Why a cookie isn't there, where Chromium doesn't say.
const (
	notTaken = "Chromium didn't take it"
	tooMany  = "Chromium refuses too many"
)

// A Chromium runs.
type Chromium interface {
	Call(ctx context.Context, method string, params, result any) error
}

// Pending are cookies of which a Chromium that starts may have another one than is kept.
type Pending map[seal.CookieID]bool

// And adds to p, which may be nil.
func (p Pending) And(ids []seal.CookieID) Pending {
	if p == nil {
		p = make(Pending, len(ids))
	}
	for _, id := range ids {
		p[id] = true
	}
	return p
}

// Give gives a Chromium that has just started what is kept for it: what it doesn't
// have, and what is pending and not there exactly as it is kept. It loses what is
// pending and not kept. What a site has changed there stays. refused counts what it
// doesn't take.
func Give(ctx context.Context, c Chromium, kept []seal.Cookie, pending Pending) (refused int, err error) {
	if len(kept) == 0 && len(pending) == 0 {
		return 0, nil
	}
	has, err := cookies(ctx, c)
	if err != nil {
		return 0, err
	}
	now, wanted := time.Now(), make(map[seal.CookieID]bool, len(kept))
	var missing []seal.Cookie
	for _, k := range kept {
		wanted[k.ID()] = true
		got := has[k.ID()]
		if (got == nil || pending[k.ID()] && !exact(k, got, now)) && k.Check(now) == nil {
			missing = append(missing, k)
		}
	}
	var lost []seal.CookieID
	for id := range pending {
		if has[id] != nil && !wanted[id] {
			lost = append(lost, id)
		}
	}
	if err := Remove(ctx, c, lost); err != nil {
		return 0, err
	}
	not, err := Set(ctx, c, missing)
	return len(not), err
}

// Set sets cookies, and reads back what came of it. They were checked, see
// [seal.Cookie.Check]. refused says of some, by their index, why they aren't there.
func Set(ctx context.Context, c Chromium, all []seal.Cookie) (refused map[int]string, err error) {
	if len(all) == 0 {
		return nil, nil
	}
	for from := 0; from < len(all); from += batchSize {
		_ = set(ctx, c, all[from:min(from+batchSize, len(all))]...) // one of them may spoil the rest: what lacks is set singly
	}
	missing, err := lacking(ctx, c, all)
	if err != nil || len(missing) == 0 {
		return nil, err
	}
	refused = map[int]string{}
	for n, i := range missing {
		if n >= maxSingly {
			refused[i] = tooMany
		} else if set(ctx, c, all[i]) != nil && ctx.Err() != nil {
			return nil, ctx.Err()
		}
	}
	if missing, err = lacking(ctx, c, all); err != nil {
		return nil, err
	}
	for _, i := range missing {
		if refused[i] == "" {
			refused[i] = notTaken
		}
	}
	return refused, nil
}

// set sets cookies by one call. Chromium takes all of them or none.
func set(ctx context.Context, c Chromium, some ...seal.Cookie) error {
	params := storage.SetCookiesParams{}
	for _, k := range some {
		params.Cookies = append(params.Cookies, Param(k))
	}
	return c.Call(ctx, storage.SetCookies.Method, params, nil)
}

// cookies returns those that Chromium has, but for partitioned ones, which no laptop
// sends.
func cookies(ctx context.Context, c Chromium) (map[seal.CookieID]*network.Cookie, error) {
	var got storage.GetCookiesResult
	if err := c.Call(ctx, storage.GetCookies.Method, storage.GetCookiesParams{}, &got); err != nil {
		return nil, err
	}
	has := make(map[seal.CookieID]*network.Cookie, len(got.Cookies))
	for _, k := range got.Cookies {
		if k.PartitionKey == nil && !k.PartitionKeyOpaque {
			has[seal.CookieID{HostKey: k.Domain, Name: k.Name, Path: k.Path}] = k
		}
	}
	return has, nil
}

// lacking returns the indices of cookies that Chromium doesn't have as they are
// meant.
func lacking(ctx context.Context, c Chromium, all []seal.Cookie) (indices []int, err error) {
	has, err := cookies(ctx, c)
	if err != nil {
		return nil, err
	}
	for i, k := range all {
		if got := has[k.ID()]; got == nil || !Same(k, got) {
			indices = append(indices, i)
		}
	}
	return indices, nil
}

// Remove has Chromium forget cookies, those that it has.
func Remove(ctx context.Context, c Chromium, ids []seal.CookieID) error {
	if len(ids) == 0 {
		return nil
	}
	has, err := cookies(ctx, c)
	if err != nil {
		return err
	}
	var params storage.SetCookiesParams
	for _, id := range ids {
		if k := has[id]; k != nil {
			params.Cookies = append(params.Cookies, Expired(k))
		}
	}
	if len(params.Cookies) == 0 {
		return nil
	}
	return c.Call(ctx, storage.SetCookies.Method, params, nil)
}
