package e2e

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/fairlead/fairlead/deploy/program/sitepolicy"
	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/protocol/op"
	"github.com/fairlead/fairlead/protocol/seal"
)

// A badSource pushes what nobody should, through relay and agent, each time as another
// client: the relay takes ten of one at once.
type badSource struct {
	*laptop
	ctx     context.Context
	clients int
}

func (b *badSource) send(body []byte) (status int, text []byte) {
	b.t.Helper()
	b.clients++
	dialer := &net.Dialer{LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 1, byte(b.clients/250), byte(2+b.clients%250))}}
	client := &http.Client{Transport: &http.Transport{DialContext: dialer.DialContext, DisableKeepAlives: true}}
	request, err := http.NewRequestWithContext(b.ctx, http.MethodPost, b.url, bytes.NewReader(body))
	must(b.t, err)
	answer, err := client.Do(request)
	must(b.t, err)
	defer answer.Body.Close()
	text, err = io.ReadAll(answer.Body)
	must(b.t, err)
	return answer.StatusCode, text
}

// refused sends a body that has to be answered with an error of a status and a name.
func (b *badSource) refused(what string, body []byte, kind protocol.Kind) {
	b.t.Helper()
	var told struct{ Error protocol.ErrorBody }
	status, text := b.send(body)
	if err := json.Unmarshal(text, &told); err != nil || status != kind.Status() || told.Error.Name != kind.Name() || told.Error.Message == "" {
		b.t.Errorf("%s: status %d: %.200s", what, status, text)
	}
}

// sealed seals an envelope, which may be none.
func (b *badSource) sealed(hostname string, sequence any, more string) []byte {
	return b.key.Seal(fmt.Appendf(nil, `{"protocol_version":1,"source_hostname":%q,"sequence":%v,"cookies":[]%s}`, hostname, sequence, more))
}

func newBadSource(t *testing.T) (*badSource, string) {
	t.Helper()
	s := own(t)
	b := &badSource{laptop: pair(within(t), t, s, "alice"), ctx: within(t)}
	b.push(b.ctx, loginCookie("before", "1", time.Hour))
	return b, filepath.Join(s.Ready.Sandboxes[0].StateDir, "sync", string(s.Ready.SessionID))
}

// stays fails if anything has come of what was sent.
func (b *badSource) stays() {
	b.t.Helper()
	state, _ := readSync(b.ctx, b.t, b.s, "alice")
	if last := state.Pairings[0].Last; last.Sequence != b.sequence || len(state.Sites) != 1 || state.Sites[0].Cookies != 1 {
		b.t.Errorf("it has %+v, %+v", last, state.Sites)
	}
}

// TestSyncBadEnvelopes: cut at each byte, with each bit of nonce and tag changed, and
// with members that aren't what they should be, an envelope is answered with an error
// that has a name, and nothing has come of it.
func TestSyncBadEnvelopes(t *testing.T) {
	b, _ := newBadSource(t)
	whole := b.sealed("laptop", b.sequence+1, "")
	for n := range whole {
		b.refused(fmt.Sprintf("%d bytes", n), whole[:n], protocol.KindUnauthenticated)
	}
	const nonce, tag = 12, 16
	for bit := range (nonce + tag) * 8 {
		at := bit / 8
		if at >= nonce {
			at += len(whole) - nonce - tag
		}
		changed := bytes.Clone(whole)
		changed[at] ^= 1 << (bit % 8)
		b.refused(fmt.Sprintf("bit %d of byte %d", bit%8, at), changed, protocol.KindUnauthenticated)
	}
	b.refused("a sequence too great", b.sealed("laptop", "9223372036854775808", ""), protocol.KindInvalid)
	b.refused("a fraction", b.sealed("laptop", "1.5", ""), protocol.KindInvalid)
	b.refused("a hostname of 1 MiB", b.sealed(strings.Repeat("h", 1<<20), 1, ""), protocol.KindInvalid)
	b.refused("no hostname", b.sealed("", 1, ""), protocol.KindInvalid)
	b.refused("more behind it", b.key.Seal([]byte(`{"protocol_version":1,"source_hostname":"x","sequence":1,"cookies":[]}{}`)), protocol.KindInvalid)
	b.refused("too many cookies", b.sealed("laptop", 1, `,"cookies":[`+strings.Repeat("{},", seal.MaxCookies)+`{}]`), protocol.KindInvalid)
	b.refused("what was taken", b.sealed("laptop", b.sequence, ""), protocol.KindConflict)
	b.stays()
	if status, text := b.send(whole); status != http.StatusOK {
		t.Errorf("and the right one: status %d: %s", status, text)
	}
	if status, text := b.send(b.sealed("another", math.MaxInt64, "")); status != http.StatusOK {
		t.Errorf("the greatest sequence: status %d: %s", status, text)
	}
	b.refused("after the greatest sequence", b.sealed("another", math.MaxInt64, ""), protocol.KindConflict)
}

// TestSyncBadCookies: one that can't stand is named with a reason, and doesn't keep
// back the one beside it.
func TestSyncBadCookies(t *testing.T) {
	b, _ := newBadSource(t)
	for i, c := range []seal.Cookie{
		{HostKey: "a.test", Name: "n", Value: strings.Repeat("v", 4096)}, {HostKey: "a.test", Name: "n", Value: "a\x00b"},
		{HostKey: "a.test", Name: "n\x00", Value: "v"}, {HostKey: "a.test", Name: "n", Value: "a;b"}, {HostKey: "..", Name: "n", Value: "v"},
		{HostKey: "bücher.test", Name: "n", Value: "v"}, {HostKey: "", Name: "n", Value: "v"},
	} {
		c.Path, c.SameSite, c.Priority, c.SourcePort = "/", -1, 1, -1
		var answer op.SyncAnswer
		status, text := b.send(b.body(c, loginCookie(fmt.Sprintf("beside-%d", i), "v", time.Hour)))
		if err := json.Unmarshal(text, &answer); err != nil || status != http.StatusOK || answer.Written != 1 || len(answer.Refused) != 1 ||
			answer.Refused[0].HostKey != c.HostKey || answer.Refused[0].Name != c.Name || answer.Refused[0].Reason == "" {
			t.Errorf("%q %q: status %d: %s", c.HostKey, c.Name, status, text)
		}
	}
}

// TestSyncBadPolicy: with a policy that can't be read nothing is taken and no sequence
// used; one of a thousand wildcards takes no time.
func TestSyncBadPolicy(t *testing.T) {
	b, dir := newBadSource(t)
	file := filepath.Join(dir, sitepolicy.Name)
	whole := b.sealed("laptop", b.sequence+1, "")
	for _, text := range []string{"", "# nothing\n", "version: 1\ndomains: [\n", "version: 2\n", "version: 1\nother: 1\n", "version: 1\ndomains:\n  - pattern: \"\"\n", "\x00"} {
		must(t, os.WriteFile(file, []byte(text), 0o600))
		b.refused(fmt.Sprintf("%q", text), whole, protocol.KindInternal)
	}
	must(t, os.Remove(file))
	must(t, os.Mkdir(file, 0o700))
	b.refused("a folder", whole, protocol.KindInternal)
	must(t, os.Remove(file))
	b.stays()
	must(t, os.WriteFile(file, []byte("version: 1\ndomains:\n  - pattern: \""+strings.Repeat("%a", 500)+"%\"\n"), 0o600))
	if status, text := b.send(whole); status != http.StatusOK {
		t.Errorf("then: status %d: %s", status, text)
	}
}
