package pagestream

import (
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/fairlead/fairlead/protocol"
)

// Two installations of the extension, of one person.
var (
	laptop = "br_" + strings.Repeat("a", 26)
	tower  = "br_" + strings.Repeat("b", 26)
)

// in opens a stream of a browser.
func in(t *testing.T, p *Pages, browser, after string) *page {
	t.Helper()
	return connectPage(t, p, Page{Grant: grantOf(protocol.CapMCP), Browser: browser, After: after})
}

// quiet fails unless the next thing that a page gets is a heartbeat.
func (v *page) quiet(t *testing.T) {
	t.Helper()
	if line, err := v.lines.ReadString('\n'); line != ": \n" {
		t.Errorf("%q, %v", line, err)
	}
}

// A command that names its browser goes there alone, also when it connects later.
func TestACommandOfABrowser(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPages()
		defer p.Close()
		one, other, nameless := in(t, p, laptop, ""), in(t, p, tower, ""), in(t, p, "", "")
		skip(t, one, other, nameless)
		for browser, command := range map[string]protocol.CommandID{laptop: "cmd_1", tower: "cmd_2"} {
			to := scope()
			to.Browser = browser
			offered, err := p.Offer(user, to, protocol.CommandEnvelope{CommandID: command})
			if err != nil {
				t.Fatal(err)
			}
			defer offered.Withdraw()
		}
		one.expect(t, "cmd_1")
		other.expect(t, "cmd_2")
		in(t, p, tower, "").expect(t, "cmd_2")
		nameless.quiet(t)
	})
}

// A command that names none is refused while two browsers listen, as both would
// run it.
func TestWhichBrowserIsNotSaid(t *testing.T) {
	p := newPages()
	defer p.Close()
	one, other := in(t, p, laptop, ""), in(t, p, tower, "")
	skip(t, one, other)
	if got := p.Browsers(user, scope()); !slices.Equal(got, []string{laptop, tower}) {
		t.Errorf("browsers %q", got)
	}
	if _, err := p.Offer(user, scope(), protocol.CommandEnvelope{CommandID: "cmd_1"}); protocol.KindOf(err) != protocol.KindConflict {
		t.Fatalf("%v, want a conflict", err)
	}
	for _, elsewhere := range []Scope{
		{Needs: protocol.CapAdmin, Ends: time.Now().Add(time.Minute)}, // what neither may have
		{Needs: protocol.CapMCP}, // over
	} {
		offered, err := p.Offer(user, elsewhere, protocol.CommandEnvelope{CommandID: "cmd_2"})
		if err != nil {
			t.Fatalf("%+v: %v", elsewhere, err)
		}
		offered.Withdraw()
	}
	if p.bytes != 0 {
		t.Errorf("%d bytes of what was refused", p.bytes)
	}
}

// Of browsers that come later the first one alone gets it, also after it was
// away; pages that name none don't, where one does.
func TestTheFirstBrowserHasIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPages()
		defer p.Close()
		defer offer(t, p, "cmd_1")()
		one := in(t, p, laptop, "")
		one.expect(t, "cmd_1")
		other := in(t, p, tower, "")
		skip(t, other)
		other.quiet(t)
		one.Close()
		in(t, p, laptop, "").expect(t, "cmd_1")
	})
}

func TestPagesThatNameNoBrowser(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPages()
		defer p.Close()
		nameless, one := in(t, p, "", ""), in(t, p, laptop, "")
		skip(t, nameless, one)
		synctest.Wait()
		defer offer(t, p, "cmd_1")()
		one.expect(t, "cmd_1")
		nameless.quiet(t)
		one.Close()
		synctest.Wait()
		in(t, p, "", "").quietAfter(t)
	})
}

// quietAfter is quiet for a page that has just connected.
func (v *page) quietAfter(t *testing.T) {
	t.Helper()
	skip(t, v)
	v.quiet(t)
}

// What only pages without a name have had is nobody else's.
func TestNamelessPagesHaveIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPages()
		defer p.Close()
		nameless := in(t, p, "", "")
		skip(t, nameless)
		defer offer(t, p, "cmd_1")()
		nameless.expect(t, "cmd_1")
		in(t, p, laptop, "").quietAfter(t)
		in(t, p, "", "").expect(t, "cmd_1") // another window, as ever
	})
}

// A command that a page has had is not called back.
func TestRecall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPages()
		defer p.Close()
		one := in(t, p, tower, "")
		skip(t, one)
		give := func(browser string, id protocol.CommandID) Offered {
			to := scope()
			to.Browser = browser
			offered, err := p.Offer(user, to, protocol.CommandEnvelope{CommandID: id})
			if err != nil {
				t.Fatal(err)
			}
			return offered
		}
		missed := give(laptop, "cmd_1")
		if !missed.Recall() || missed.Recall() || p.bytes != 0 {
			t.Errorf("what nobody had is called back once; %d bytes are left", p.bytes)
		}
		had := give(tower, "cmd_2")
		one.expect(t, "cmd_2")
		if had.Recall() || p.bytes == 0 {
			t.Error("what a page has had is called back")
		}
		had.Withdraw()
		had.Withdraw()
		for outcome, want := range map[string]float64{offerTaken: 1, offerMissed: 1, offerTooMany: 0, offerSeveral: 0} {
			if got := testutil.ToFloat64(p.offers.WithLabelValues(outcome)); got != want {
				t.Errorf("%s is counted %v times", outcome, got)
			}
		}
	})
}
