package console_test

import (
	"context"
	"crypto/ecdh"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/cdproto/emulation"

	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/protocol/op"
	"github.com/fairlead/fairlead/protocol/seal"
)

const (
	alicesLaptop = protocol.PairingID("pr_aaaaaaaaaaaaaaaaaaaaaaaaaa")
	bobsSecret   = protocol.PairingID("pr_bbbbbbbbbbbbbbbbbbbbbbbbbb")
	unusedLaptop = protocol.PairingID("pr_cccccccccccccccccccccccccc")
)

// signedIn is a session with three pairings, one of them never used.
func signedIn() op.SyncState {
	at := time.Date(2026, 3, 14, 9, 26, 53, 0, time.UTC).UnixMilli()
	state := op.SyncState{
		Policy: op.SyncPolicyState{Policy: "blocklist", Domains: []op.SyncDomain{{Pattern: "mybank.example", Description: "the bank, never"}, {Pattern: "%.mybank.example"}}},
		Pairings: []op.SyncPairing{
			{ID: alicesLaptop, User: "usr_alice", Name: "alice’s laptop", Mode: "paired", Fingerprint: "0f3a91c2", URL: "https://relay.example/sync/sb_1/" + strings.Repeat("a", 26), Versions: []int{1}, PairedAt: at,
				Last: &op.SyncPush{At: at + 5_400_000, Hostname: "alice-thinkpad.lan", Sequence: 41, Written: 1_204, Dropped: 37, Refused: 2}},
			{ID: bobsSecret, User: "usr_dora", Name: "build machine of the platform team, on the second floor", Mode: "secret", Fingerprint: "77aa01bc", URL: "https://relay.example/sync/sb_1/" + strings.Repeat("b", 26), Versions: []int{1, 2}, PairedAt: at,
				Last: &op.SyncPush{At: at + 60_000, Hostname: "ci-\u202e7", Sequence: 2, Written: 3}},
			{ID: unusedLaptop, User: "usr_bob", Name: "bob-mac", Mode: "paired", Fingerprint: "5512ffee", URL: "https://relay.example/sync/sb_1/" + strings.Repeat("c", 26), Versions: []int{1}, PairedAt: at},
		},
		Sites: []op.SyncSite{{Site: "github.com", Cookies: 12, Pairing: alicesLaptop}, {Site: "github.com", Cookies: 3, Pairing: bobsSecret}},
	}
	for i := range 30 {
		state.Sites = append(state.Sites, op.SyncSite{Site: fmt.Sprintf("service-%02d.accounts.with-a-rather-long-name.example", i), Cookies: i + 1, Pairing: alicesLaptop})
	}
	return state
}

// sizes shows a panel on screens and a phone: nothing of it is beyond the window.
func (b *tab) sizes(name string) {
	b.Helper()
	for _, size := range []struct {
		name          string
		width, height int64
		phone         bool
	}{{"wide", 1440, 900, false}, {"narrow", 780, 860, false}, {"phone", 390, 844, true}} {
		b.run(command(emulation.SetDeviceMetricsOverride, emulation.SetDeviceMetricsOverrideParams{Width: size.width, Height: size.height, DeviceScaleFactor: 1, Mobile: size.phone}),
			command(emulation.SetTouchEmulationEnabled, emulation.SetTouchEmulationEnabledParams{Enabled: size.phone, MaxTouchPoints: 5}))
		b.until(fmt.Sprintf(`innerWidth === %d`, size.width))
		if wide := eval[string](b, `[...(innerWidth < 400 ? [document.documentElement] : []), ...document.querySelectorAll('#sync, #sync *')].filter((e) => e.checkVisibility() && (e.getBoundingClientRect().right > innerWidth + 1 || (e.scrollWidth > e.clientWidth + 1 && e.clientWidth > 0 && !e.matches('input, .hidden-label, svg *'))))
			.map((e) => e.tagName + '#' + e.id + '.' + e.className + ' ' + e.scrollWidth + '/' + e.clientWidth).slice(0, 6).join('; ')`); wide != "" {
			b.Errorf("%s at %s: too wide: %s", name, size.name, wide)
		}
		b.axe(name + ", " + size.name)
		b.picture("sync-" + name + "-" + size.name)
	}
}

// readings counts how often the page has asked.
func (f *fakeRelay) readings() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.sync.asked
}

// Everybody who watches reads whose logins there are; addresses and buttons are for
// those who may pair.
func testSignedIn(t *testing.T, browser context.Context) {
	relay := newFakeRelay(t)
	relay.give("ut_alice", protocol.CapSync)
	relay.mu.Lock()
	relay.sync.state = signedIn()
	relay.users["ut_dora"] = fakeUser{"usr_dora", "dora", nil} // a member who isn't here
	relay.mu.Unlock()
	alice, carol := newTab(t, browser, axeCore(t)), newTab(t, browser)
	alice.open(relay.link("alice"))
	alice.untilText("controller", "You have control")
	if n := relay.readings(); n != 0 {
		t.Errorf("asked %d times before anybody wanted to know", n)
	}
	alice.click("btn-sync")
	alice.untilText("sync-pairing-"+string(alicesLaptop), "of you")
	for _, fact := range []string{"alice-thinkpad.lan", "1,204 cookies written · 37 kept back by the policy below · 2 refused", "0f3a91c2", "477 cookies of 31 sites"} {
		alice.untilText("sync-pairing-"+string(alicesLaptop), fact)
	}
	alice.untilText("sync-pairing-"+string(bobsSecret), "of dora")
	alice.untilText("sync-pairing-"+string(bobsSecret), "shared secret")
	alice.untilText("sync-pairing-"+string(bobsSecret), "ci-⟨U+202E⟩7")
	alice.untilText("sync-pairing-"+string(unusedLaptop), "none yet")
	alice.untilText("sync-sites", "github.com")
	alice.untilText("policy-list", "the bank, never")
	alice.run(focus("sync-find"))
	alice.typing("SERVICE-07")
	alice.until(`document.querySelectorAll('[data-testid=sync-sites] li').length === 1`)
	alice.eval(`(() => { const find = document.querySelector('[data-testid=sync-find]'); find.value = ''; find.dispatchEvent(new Event('input')) })()`)
	alice.sizes("list")

	carol.open(relay.link("carol"))
	carol.click("btn-sync")
	carol.untilText("sync-pairing-"+string(alicesLaptop), "0f3a91c2")
	if has := eval[string](carol, `[...document.querySelectorAll('#sync button, #sync summary, #sync input')].filter((e) => e.checkVisibility()).map((e) => e.id || e.dataset.testid || e.innerText).join()`); has != "sync-refresh,sync-close,sync-find" {
		t.Errorf("carol has %s", has)
	}
	if eval[bool](carol, `document.body.innerText.includes('relay.example')`) {
		t.Error("carol reads an address")
	}
	testSyncActs(t, relay, alice)
	testSyncTroubles(t, relay, alice, carol)
	alice.check()
	carol.check()
	relay.check(t)
}

// testSyncActs: versions are accepted, and a pairing is ended once somebody agrees.
func testSyncActs(t *testing.T, relay *fakeRelay, alice *tab) {
	t.Helper()
	did := func(want op.Body) {
		t.Helper()
		relay.until(t, "the command is there", func() bool {
			return len(relay.sync.commands) > 0 && fmt.Sprint(relay.sync.commands[len(relay.sync.commands)-1]) == fmt.Sprint(want)
		})
	}
	checked := func(want bool) {
		t.Helper()
		alice.until(fmt.Sprintf(`(({checked, disabled}) => checked === %v && !disabled)(document.querySelector('[data-testid=sync-accept-%s]'))`, want, alicesLaptop))
	}
	press := func(id string) { alice.eval(fmt.Sprintf(`document.querySelector(%q).click()`, testid(id))) }
	press("sync-accept-" + string(alicesLaptop))
	did(&op.SyncAccept{Pairing: alicesLaptop, Versions: []int{1, 2}})
	checked(true)
	press("sync-accept-" + string(alicesLaptop))
	did(&op.SyncAccept{Pairing: alicesLaptop, Versions: []int{1}})
	checked(false)

	// What is refused is said, and shown as it is.
	relay.mu.Lock()
	relay.sync.refused = protocol.Errorf(protocol.KindUnavailable, "the sandbox is not connected")
	relay.mu.Unlock()
	press("sync-accept-" + string(alicesLaptop))
	alice.untilText("sync-problem", "the sandbox is not connected")
	checked(false)

	commands := func() int {
		relay.mu.Lock()
		defer relay.mu.Unlock()
		return len(relay.sync.commands)
	}
	before := commands()
	press("btn-unpair-" + string(bobsSecret))
	alice.until(`document.querySelector('#ask').open && document.querySelector('#ask-text').innerText.includes('cookies leave the sandbox')`)
	alice.picture("sync-forget-phone")
	alice.eval(`document.querySelector('#ask-no').click()`)
	alice.until(`!document.querySelector('#ask').open`)
	if n := commands(); n != before {
		t.Errorf("%d commands though nobody agreed", n-before)
	}
	press("btn-unpair-" + string(bobsSecret))
	alice.until(`document.querySelector('#ask').open`)
	alice.eval(`document.querySelector('#ask-yes').click()`)
	did(&op.SyncUnpair{Pairing: bobsSecret})
	alice.until(fmt.Sprintf(`document.querySelector('[data-testid=sync-pairing-%s]') === null && document.querySelectorAll('[data-testid=sync-sites] li').length === 31`, bobsSecret))
}

// testSyncTroubles: what can't be read is said, and nothing asks unless somebody looks.
func testSyncTroubles(t *testing.T, relay *fakeRelay, alice, carol *tab) {
	t.Helper()
	relay.mu.Lock()
	relay.sync.away = true
	relay.mu.Unlock()
	carol.click("btn-sync-refresh")
	carol.untilText("sync-note", "This may be old")
	carol.untilText("sync-pairings", "alice-thinkpad.lan")
	relay.mu.Lock()
	relay.sync.away = false
	relay.mu.Unlock()
	carol.click("btn-sync-refresh")
	carol.until(`document.querySelector('#sync-note').hidden`)
	carol.click("btn-sync-close")
	alice.eval(`document.querySelector('#sync-close').click()`)
	before := relay.readings()
	for _, b := range []*tab{alice, carol} {
		b.eval(`document.dispatchEvent(new Event('visibilitychange'))`)
	}
	alice.eval(`document.querySelector('#tool-sync').click()`)
	relay.until(t, "asked when it is opened", func() bool { return relay.sync.asked > before })
	if n := relay.readings() - before; n != 1 {
		t.Errorf("asked %d times, opened once", n)
	}
	alice.eval(`document.dispatchEvent(new Event('visibilitychange'))`)
	relay.until(t, "asked when the page is seen again", func() bool { return relay.sync.asked == before+2 })
}

// A program that shows a code is paired from the page, with real keys on both sides.
func testPairing(t *testing.T, browser context.Context) {
	relay := newFakeRelay(t)
	relay.give("ut_alice", protocol.CapSync)
	alice, bob := newTab(t, browser, axeCore(t)), newTab(t, browser)
	bob.open(relay.link("bob"))
	bob.untilText("status", "Connected")
	bob.click("btn-sync")
	bob.untilText("sync-none", "An owner or editor of the dashboard can pair one")
	alice.open(relay.link("alice"))
	alice.untilText("controller", "You have control")
	alice.click("btn-sync")
	alice.untilText("sync-none", "Nobody’s laptop is paired")
	alice.untilText("sync-more", "No cookies are here")
	alice.untilText("policy-says", "Every site that somebody sends is taken")
	alice.click("btn-pair")
	for _, part := range []string{"fairlead-source login --session ses_demo https://CONTROL-PLANE", "fairlead-source pair --site", "fairlead-source push --watch"} {
		alice.untilText("pair-commands", part)
	}
	alice.sizes("pair")
	alice.eval(`document.querySelector('[data-testid=pair-other]').open = true`)
	begin := func() {
		t.Helper()
		alice.until(`!document.querySelector('[data-testid=btn-pair-begin]').disabled`)
		alice.eval(`document.querySelector('[data-testid=btn-pair-begin]').click()`)
		alice.until(`document.activeElement.matches('[data-testid=pair-code]')`)
	}
	put := func(id, text string) {
		t.Helper()
		alice.eval(fmt.Sprintf(`(() => { const field = document.querySelector(%q); field.value = %q; field.dispatchEvent(new Event('input')) })()`, testid(id), text))
	}
	finish := func() {
		t.Helper()
		alice.until(`(({disabled, hidden}) => !disabled && !hidden)(document.querySelector('[data-testid=btn-pair-finish]'))`)
		alice.eval(`document.querySelector('[data-testid=btn-pair-finish]').click()`)
	}
	put("pair-name", "old tower")
	begin()
	put("pair-code", "ABCD-1890")
	alice.until(`!document.querySelector('[data-testid=btn-pair-finish]').checkVisibility()`)
	code := seal.NewCode()
	put("pair-code", strings.ToLower(string(code)))
	alice.untilText("pair-ask", string(code))
	put("pair-answer", "curl: (7) Failed to connect")
	finish()
	alice.untilText("pair-problem", "paste all of it")
	alice.sizes("other")

	// Somebody in between has another key, and it is void.
	said, _ := sourceAnswer(t, eval[string](alice, `document.querySelector('[data-testid=pair-ask]').innerText`), code)
	said["fingerprint"] = "00000000"
	text, _ := json.Marshal(said)
	put("pair-answer", string(text))
	finish()
	alice.untilText("pair-problem", "the fingerprint differs")
	finish()
	alice.untilText("pair-problem", "begin another one")
	alice.eval(`document.querySelector('[data-testid=btn-pair-cancel]').click()`)

	begin()
	put("pair-code", string(code))
	said, fingerprint := sourceAnswer(t, eval[string](alice, `document.querySelector('[data-testid=pair-ask]').innerText`), code)
	text, _ = json.Marshal(said)
	put("pair-answer", string(text))
	finish()
	alice.untilText("pair-made", fingerprint)
	alice.untilText("pair-config", "url: https://relay.example/sync/sb_1/")
	alice.untilText("pair-config", "hostname: ses_demo.sb_1")
	alice.untilText("sync-pairings", "old-tower.lan")
	alice.sizes("made")
	if eval[bool](alice, fmt.Sprintf(`[document.body.innerHTML, ...[...document.querySelectorAll('input, textarea')].map((i) => i.value), JSON.stringify(sessionStorage), JSON.stringify(localStorage)].some((text) => text.includes(%q))`, code)) {
		t.Error("the code is still in the page")
	}
	alice.check()
	bob.check()
	relay.check(t)
}

// sourceAnswer is what the other program answers to the command that the page shows.
func sourceAnswer(t *testing.T, command string, code seal.Code) (said map[string]any, fingerprint string) {
	t.Helper()
	lines := strings.Split(command, "\n")
	if len(lines) != 3 || strings.Contains(lines[0], string(code)) || lines[2] != "END" {
		t.Fatalf("the command is %q", command)
	}
	var asked struct {
		Version int       `json:"protocol_version"`
		Code    seal.Code `json:"code"`
		Key     []byte    `json:"sink_public_key"`
		Host    string    `json:"sink_hostname"`
	}
	if err := json.Unmarshal([]byte(lines[1]), &asked); err != nil || asked.Version != 1 || asked.Code != code || asked.Host != "ses_demo.sb_1" {
		t.Fatalf("it asks %q: %v", lines[1], err)
	}
	private, err := ecdh.X25519().GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	key, err := seal.Pair(private, asked.Key, code)
	if err != nil {
		t.Fatal(err)
	}
	return map[string]any{
		"protocol_version": 1, "source_public_key": private.PublicKey().Bytes(), "source_hostname": "old-tower.lan", "fingerprint": key.Fingerprint(),
	}, key.Fingerprint()
}

// The policy is changed; one that can't be read is said, and replaced.
func testSyncPolicy(t *testing.T, browser context.Context) {
	relay := newFakeRelay(t)
	relay.give("ut_alice", protocol.CapSync)
	relay.mu.Lock()
	relay.sync.state = signedIn()
	relay.sync.state.Policy = op.SyncPolicyState{Domains: []op.SyncDomain{}, Error: "blocklist.yaml can't be read: no cookies are taken until it is right again"}
	relay.mu.Unlock()
	alice := newTab(t, browser, axeCore(t))
	alice.open(relay.link("alice"))
	alice.untilText("controller", "You have control")
	alice.click("btn-sync")
	alice.untilText("policy-says", "blocklist.yaml can't be read")
	press := func(id string) { alice.eval(fmt.Sprintf(`document.querySelector(%q).click()`, testid(id))) }
	press("btn-policy")
	alice.until(`document.querySelector('[data-testid=policy-mode]').value === 'allowlist'`)
	alice.untilText("sync-policy", "takes its place")
	alice.eval(`document.querySelector('[data-testid=policy-patterns]').value = 'calendar.example # only the calendar\n'`)
	alice.run(focus("policy-site"))
	alice.typing("https://GitHub.com/login\r")
	alice.until(`document.querySelector('[data-testid=policy-patterns]').value === 'calendar.example # only the calendar\ngithub.com\n%.github.com'`)
	alice.typing("no site!\r")
	alice.untilText("policy-problem", "is no site")
	alice.eval(`document.querySelector('.sync-policy form').scrollIntoView()`)
	alice.sizes("policy")

	relay.mu.Lock()
	relay.sync.refused = protocol.Errorf(protocol.KindTooLarge, "domains: 16001 bytes, and 16000 are allowed")
	relay.mu.Unlock()
	press("btn-policy-save")
	alice.untilText("policy-problem", "16000 are allowed")
	alice.until(`document.querySelector('[data-testid=policy-patterns]').value.includes('calendar') && !document.querySelector('[data-testid=btn-policy-save]').disabled`)
	press("btn-policy-save")
	alice.untilText("policy-says", "Only the sites of 3 patterns are taken.")
	alice.untilText("policy-list", "only the calendar")
	want := op.SyncPolicy{Policy: "allowlist", Domains: []op.SyncDomain{{Pattern: "calendar.example", Description: "only the calendar"}, {Pattern: "github.com"}, {Pattern: "%.github.com"}}}
	relay.mu.Lock()
	got := *relay.sync.commands[len(relay.sync.commands)-1].(*op.SyncPolicy)
	relay.mu.Unlock()
	if got.Policy != want.Policy || !slices.Equal(got.Domains, want.Domains) {
		t.Errorf("saved %+v", got)
	}
	alice.until(`!document.querySelector('[data-testid=btn-policy]').disabled`)
	press("btn-policy")
	alice.eval(`(() => { const mode = document.querySelector('[data-testid=policy-mode]'); mode.value = 'all'; mode.dispatchEvent(new Event('change')) })()`)
	alice.until(`!document.querySelector('[data-testid=policy-patterns]').checkVisibility()`)
	press("btn-policy-save")
	alice.untilText("policy-says", "Every site that somebody sends is taken.")
	alice.check()
	relay.check(t)
}
