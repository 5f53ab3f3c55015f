package e2e

import (
	"bytes"
	"context"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/cdproto/storage"

	"github.com/fairlead/fairlead/protocol/op"
	"github.com/fairlead/fairlead/protocol/seal"
)

var syncBlocks = flag.Int("sync.blocks", 1, "blocks in which sealed sync is measured; from 9 on a bound that was missed fails")

const (
	// undecidedBelow is for how many blocks a bound is nothing that one could miss.
	undecidedBelow = 9
	speedCookies   = 3000
	perSite        = 10 // of which Chromium keeps 180 of a site
)

// speedSet is a set of cookies whose values are those of a block.
func speedSet(block int) []seal.Cookie {
	all := make([]seal.Cookie, speedCookies)
	for i := range all {
		all[i] = loginCookie(fmt.Sprintf("name-%d", i%perSite), fmt.Sprintf("%d-%s", block, strings.Repeat("v", 100)), time.Hour)
		all[i].HostKey, all[i].Secure, all[i].SourceScheme, all[i].SourcePort = fmt.Sprintf(".site-%d.example", i/perSite), 1, 2, 443
	}
	return all
}

// bare is what DevTools is told of cookies that need no thought.
func bare(all []seal.Cookie) (params storage.SetCookiesParams) {
	for _, c := range all {
		expires := cdp.TimeSinceEpoch(c.Expires.Time().Unix())
		params.Cookies = append(params.Cookies, &network.CookieParam{
			Name: c.Name, Value: c.Value, Domain: c.HostKey, Path: c.Path, Secure: true, HTTPOnly: true, SameSite: network.CookieSameSiteLax, Expires: expires,
		})
	}
	return params
}

// TestSyncSpeed: 3,000 cookies are pushed to a Chromium that runs, beside one
// Storage.setCookies of them at another one that does nothing else. The push is to take
// twice as long and 50 ms at most.
func TestSyncSpeed(t *testing.T) {
	findChromium(t)
	s := own(t)
	ctx, cancel := context.WithTimeout(t.Context(), patience+time.Duration(*syncBlocks)*patience/4)
	defer cancel()
	l := pair(ctx, t, s, "alice")
	_, port := startWebapp(t, s)
	sent(ctx, t, s, port) // its Chromium runs
	alone := openWindow(t, "bare", "about:blank", 800, 600)
	var pushes, sets, beyond []float64
	for block := range *syncBlocks {
		all := speedSet(block)
		body, params := l.body(all...), bare(all)
		push := func() {
			began := time.Now()
			status, text := l.post(ctx, body)
			if pushes = append(pushes, millis(time.Since(began))); status != 200 || !strings.Contains(text, fmt.Sprintf(`"written":%d,`, speedCookies)) {
				t.Fatalf("status %d: %s", status, text)
			}
		}
		set := func() {
			began := time.Now()
			alone.run(devtools(storage.SetCookies, params))
			sets = append(sets, millis(time.Since(began)))
		}
		if block%2 == 0 {
			push()
			set()
		} else {
			set()
			push()
		}
		beyond = append(beyond, pushes[block]-2*sets[block])
	}
	low, high := medianInterval(beyond)
	t.Logf("%d blocks: push p50 %.0f ms, bare p50 %.0f ms; push less twice the bare one %.0f ms [%.0f, %.0f], to be 50 at most",
		*syncBlocks, median(pushes), median(sets), median(beyond), low, high)
	if *syncBlocks >= undecidedBelow && low > 50 {
		t.Error("a push takes longer than it may")
	}
}

// TestSyncWatchSpeed: from the moment in which a person's Chromium has written its file
// to that in which the sandbox's has what was signed in to: 5 s at most, of 95 in 100.
func TestSyncWatchSpeed(t *testing.T) {
	findChromium(t)
	s := own(t)
	ctx, cancel := context.WithTimeout(t.Context(), patience+time.Duration(*syncBlocks)*patience/4)
	defer cancel()
	c, site := newComputer(t), signIn(t)
	_, port := startWebapp(t, s)
	sent(ctx, t, s, port) // its Chromium runs
	c.want(ctx, s.Ready.User("alice").Token, "login", s.Ready.ControlPlane.URL)
	c.want(ctx, "", "pair", "--site", "127.0.0.1")
	c.visits(site.URL + "/before")
	watch := c.command(context.WithoutCancel(ctx), "push", "--watch", "--json")
	var said bytes.Buffer
	watch.Stdout, watch.Stderr = &said, &said
	must(t, watch.Start())
	t.Cleanup(func() {
		_ = watch.Process.Signal(os.Interrupt)
		if err := watch.Wait(); err != nil {
			t.Errorf("the watch ended with %v: %s", err, said.Bytes())
		}
	})
	there := func(n int) func() bool {
		return func() bool {
			state, _ := readSync(ctx, t, s, "alice")
			return slices.ContainsFunc(state.Sites, func(one op.SyncSite) bool { return one.Cookies == n })
		}
	}
	await(t, "what was there before", there(1))
	var took []float64
	for block := range *syncBlocks {
		c.visits(fmt.Sprintf("%s/later-%d", site.URL, block))
		await(t, "what was signed in to", there(block+2))
		came := time.Now()
		took = append(took, millis(came.Sub(c.written())))
	}
	slices.Sort(took)
	p95 := took[min(len(took)-1, len(took)*95/100)]
	t.Logf("%d sign-ins: written → there p50 %.0f ms, p95 %.0f ms", len(took), median(took), p95)
	if p95 > 5000 {
		t.Error("a sign-in takes longer than it may")
	}
}

// written returns when the computer's Chromium has last written its cookies.
func (c *computer) written() time.Time {
	c.t.Helper()
	found, err := filepath.Glob(filepath.Join(c.home, ".config", "chromium", "Default", "*", "Cookies"))
	must(c.t, err)
	st, err := os.Stat(append(found, filepath.Join(c.home, ".config", "chromium", "Default", "Cookies"))[0])
	must(c.t, err)
	return st.ModTime()
}

func median(of []float64) float64 {
	sorted := slices.Sorted(slices.Values(of))
	n := len(sorted)
	return (sorted[(n-1)/2] + sorted[n/2]) / 2
}

// medianInterval is the bootstrap interval of a median: 95 in 100 of those of samples
// drawn from the values.
func medianInterval(of []float64) (low, high float64) {
	const samples = 2000
	random := rand.New(rand.NewPCG(1, uint64(len(of))))
	medians, drawn := make([]float64, samples), make([]float64, len(of))
	for i := range medians {
		for j := range drawn {
			drawn[j] = of[random.IntN(len(of))]
		}
		medians[i] = median(drawn)
	}
	slices.Sort(medians)
	return medians[samples/40], medians[samples-1-samples/40]
}
