package environment

import (
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/sandbox-agent/internal/feature"
	"github.com/fairlead/fairlead/sandbox-agent/internal/mask"
	"github.com/fairlead/fairlead/sandbox-agent/internal/redact"
)

const (
	sid = protocol.SessionID("ses_a")
	pid = protocol.PTYID("pty_a")
)

// fakeBroker remembers what it is told.
type fakeBroker struct {
	mu      sync.Mutex
	secrets map[string]string // session/pty/name
	domains map[string][]string
	ended   []string
	fail    error
}

func newBroker() *fakeBroker {
	return &fakeBroker{secrets: make(map[string]string), domains: make(map[string][]string)}
}

func (b *fakeBroker) Environ(session protocol.SessionID, pty protocol.PTYID, uid int, names []string) (map[string]string, error) {
	env := make(map[string]string)
	for _, name := range names {
		env[name] = "[BROKERED]" + name
		if stem, ok := strings.CutSuffix(name, "_API_KEY"); ok {
			env[stem+"_BASE_URL"] = fmt.Sprintf("http://broker/%s/%s/%d", session, pty, uid)
		} else {
			env[name+"_BROKER"] = fmt.Sprintf("http://broker/%s/%s/%d", session, pty, uid)
		}
	}
	return env, b.fail
}

func (b *fakeBroker) PutSecret(session protocol.SessionID, pty protocol.PTYID, name, value string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.secrets[fmt.Sprintf("%s/%s/%s", session, pty, name)] = value
}

func (b *fakeBroker) RemoveSecret(session protocol.SessionID, pty protocol.PTYID, name string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.secrets, fmt.Sprintf("%s/%s/%s", session, pty, name))
}

func (b *fakeBroker) CheckDomain(d protocol.ApprovedDomain) error {
	if strings.Contains(d.Domain, " ") {
		return protocol.Errorf(protocol.KindInvalid, "a domain is a host name")
	}
	return nil
}

func (b *fakeBroker) ApproveDomain(_ protocol.SessionID, d protocol.ApprovedDomain) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.domains[d.Secret] = append(b.domains[d.Secret], d.Domain)
	return nil
}

func (b *fakeBroker) Domains(_ protocol.SessionID, secret string) []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.domains[secret]
}

func (b *fakeBroker) EndTerminal(session protocol.SessionID, pty protocol.PTYID) {
	b.ended = append(b.ended, string(session)+"/"+string(pty))
}

func (b *fakeBroker) EndSession(session protocol.SessionID) {
	b.ended = append(b.ended, string(session))
}

// fakeTerminals note what they are told.
type fakeTerminals struct {
	mu      sync.Mutex
	secrets [][]string
	scripts map[protocol.PTYID][]string
	lost    error  // of ApplyEnv
	masking func() // called by SetSecrets; nil: nothing
}

func newTerminals() *fakeTerminals {
	return &fakeTerminals{scripts: make(map[protocol.PTYID][]string)}
}

func (f *fakeTerminals) UID(protocol.SessionID, protocol.PTYID) (int, bool) { return -1, true }

func (f *fakeTerminals) SetSecrets(_ *redact.Set, secrets []string) {
	f.secrets = append(f.secrets, slices.Clone(secrets))
	if f.masking != nil {
		f.masking()
	}
}

func (f *fakeTerminals) ApplyEnv(_ protocol.SessionID, pty protocol.PTYID, script []byte) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.scripts[pty] = append(f.scripts[pty], string(script))
	return f.lost
}

// fixture is a Store with what it has told.
type fixture struct {
	*Store
	*fakeTerminals
	broker *fakeBroker
}

// noMasks stand for those of everything but terminals.
type noMasks struct{}

func (noMasks) Change([]string) (*redact.Set, error) { return nil, nil }

func newFixture() *fixture {
	f := &fixture{broker: newBroker(), fakeTerminals: newTerminals()}
	f.Store = New(Options{Broker: f.broker, Terminals: f.fakeTerminals, Masks: noMasks{}})
	return f
}

func set(pairs ...string) protocol.EnvValues {
	v := protocol.EnvValues{Set: make(map[string]string)}
	for i := 0; i < len(pairs); i += 2 {
		v.Set[pairs[i]] = pairs[i+1]
	}
	return v
}

func secret(name, value string, protected bool) protocol.EnvValues {
	return protocol.EnvValues{Secrets: map[string]protocol.EnvSecret{name: {Value: value, BrokerProtected: protected}}}
}

func (f *fixture) apply(t *testing.T, pty protocol.PTYID, values protocol.EnvValues, unset []string, now bool) {
	t.Helper()
	if err := f.Apply(sid, pty, values, unset, now); err != nil {
		t.Fatal(err)
	}
}

func (f *fixture) wantEnv(t *testing.T, pty protocol.PTYID, want ...string) {
	t.Helper()
	got, err := f.Environ(sid, pty, 2001)
	if err != nil || !slices.Equal(got, want) {
		t.Errorf("environment of %s: %q, %v, want %q", pty, got, err, want)
	}
}

func TestScopes(t *testing.T) {
	f := newFixture()
	f.wantEnv(t, pid)
	f.apply(t, "", set("A", "session", "B", "session"), nil, false)
	f.apply(t, pid, set("B", "terminal", "C", "terminal"), nil, false)
	f.wantEnv(t, pid, "A=session", "B=terminal", "C=terminal")
	f.wantEnv(t, "pty_b", "A=session", "B=session")
	f.apply(t, pid, protocol.EnvValues{}, []string{"B"}, false)
	f.wantEnv(t, pid, "A=session", "B=session", "C=terminal")
	if got, err := f.Environ("ses_b", pid, 2001); err != nil || len(got) != 0 {
		t.Errorf("another session: %q, %v", got, err)
	}
	f.TerminalEnded(feature.Terminal{Session: sid, PTY: pid})
	f.wantEnv(t, pid, "A=session", "B=session")
}

func TestSecrets(t *testing.T) {
	f := newFixture()
	f.apply(t, "", secret("OPENAI_API_KEY", "sk-0123456789", true), nil, false)
	f.apply(t, "", secret("TOKEN", "custom-0123456789", true), nil, false)
	f.apply(t, pid, secret("PLAIN_API_KEY", "plain-0123456789", false), nil, false)
	f.wantEnv(t, pid,
		"OPENAI_API_KEY=[BROKERED]OPENAI_API_KEY", "OPENAI_BASE_URL=http://broker/ses_a/pty_a/2001", "PLAIN_API_KEY=plain-0123456789",
		"TOKEN=[BROKERED]TOKEN", "TOKEN_BROKER=http://broker/ses_a/pty_a/2001")
	if want := map[string]string{"ses_a//OPENAI_API_KEY": "sk-0123456789", "ses_a//TOKEN": "custom-0123456789"}; !maps.Equal(f.broker.secrets, want) {
		t.Errorf("the broker has %v", f.broker.secrets)
	}
	if want := []string{"custom-0123456789", "plain-0123456789", "sk-0123456789"}; !slices.Equal(f.secrets[len(f.secrets)-1], want) || !slices.Equal(f.Secrets(), want) {
		t.Errorf("masked: %q", f.secrets)
	}
	told := len(f.secrets)
	f.apply(t, "", secret("AGAIN", "sk-0123456789", false), nil, false)
	if len(f.secrets) != told {
		t.Error("told the same secrets again")
	}
	// What a user sets by name goes before what the broker says.
	f.apply(t, "", set("OPENAI_BASE_URL", "https://mine.example"), nil, false)
	if got, _ := f.Environ(sid, "pty_b", 1); !slices.Contains(got, "OPENAI_BASE_URL=https://mine.example") {
		t.Errorf("%q", got)
	}
	// No longer protected, or gone: the broker forgets; what was printed stays masked.
	f.apply(t, "", secret("OPENAI_API_KEY", "sk-0123456789", false), []string{"TOKEN"}, false)
	if len(f.broker.secrets) != 0 {
		t.Errorf("the broker has %v", f.broker.secrets)
	}
	f.apply(t, "", protocol.EnvValues{}, []string{"OPENAI_API_KEY", "AGAIN"}, false)
	f.TerminalEnded(feature.Terminal{Session: sid, PTY: pid})
	if got := f.Secrets(); len(got) != 3 {
		t.Errorf("masked: %q", got)
	}
	if err := f.SessionEnded(sid); err != nil {
		t.Fatal(err)
	}
	if len(f.Secrets()) != 0 || len(f.secrets[len(f.secrets)-1]) != 0 || len(f.scopes) != 0 || len(f.terminals) != 0 || len(f.seen) != 0 {
		t.Errorf("left: %q", f.secrets)
	}
	if !slices.Equal(f.broker.ended, []string{"ses_a/pty_a", "ses_a"}) {
		t.Errorf("ended %q", f.broker.ended)
	}
}

// TestMaskedFirst: no terminal can have a secret before output is masked.
func TestMaskedFirst(t *testing.T) {
	terminals, elsewhere := newTerminals(), &mask.Secrets{}
	s := New(Options{Terminals: terminals, Masks: elsewhere})
	terminals.masking = func() {
		if env, err := s.Environ(sid, pid, 1); err != nil || len(env) != 0 {
			t.Errorf("already there: %q, %v", env, err)
		}
		if got := elsewhere.Mask([]byte("0123456789")); string(got) != "**********" {
			t.Errorf("shown elsewhere: %s", got)
		}
	}
	if err := s.Apply(sid, "", secret("A", "0123456789", false), nil, false); err != nil {
		t.Fatal(err)
	}
}

func TestCase60ShortSecrets(t *testing.T) {
	f := newFixture()
	for _, value := range []string{"", "1234567", "        ", "  1234567  "} {
		values := secret("MY_SECRET", value, false)
		values.Set = map[string]string{"A": "b"}
		err := f.Apply(sid, "", values, nil, true)
		if protocol.KindOf(err) != protocol.KindInvalid || !strings.Contains(err.Error(), "MY_SECRET") {
			t.Errorf("%q: %v", value, err)
		}
	}
	f.wantEnv(t, pid)
	if len(f.secrets) != 0 {
		t.Errorf("masked %q", f.secrets)
	}
}

// TestCase61Forms: what a secret may be printed as is masked as well.
func TestCase61Forms(t *testing.T) {
	f := newFixture()
	pem := "-----BEGIN KEY-----\r\nMIIEvQIBADANBgkqhkiG9w0BAQ\nshort\nMIIEvQIBADANBgkqhkiG9w0BAR\n-----END KEY-----\n"
	f.apply(t, "", secret("PEM", pem, false), nil, false)
	want := []string{pem, strings.TrimSpace(pem), "MIIEvQIBADANBgkqhkiG9w0BAQ", "MIIEvQIBADANBgkqhkiG9w0BAR"}
	slices.Sort(want)
	if got := f.Secrets(); !slices.Equal(got, want) {
		t.Errorf("%q", got)
	}
	set, err := redact.Compile(f.Secrets())
	if err != nil || set.Empty() {
		t.Errorf("%v", err)
	}
}

func TestRefusals(t *testing.T) {
	long := strings.Repeat("x", MaxValueBytes)
	for _, c := range []struct {
		name   string
		values protocol.EnvValues
		unset  []string
		kind   protocol.Kind
	}{
		{"nothing", protocol.EnvValues{}, nil, protocol.KindInvalid},
		{"lower case", set("abc", "x"), nil, protocol.KindInvalid},
		{"reserved", set("LD_PRELOAD", "x"), nil, protocol.KindInvalid},
		{"proxy", set("HTTPS_PROXY", "x"), nil, protocol.KindInvalid},
		{"unset reserved", protocol.EnvValues{}, []string{"PATH"}, protocol.KindInvalid},
		{"twice", set("A", "x"), []string{"A"}, protocol.KindInvalid},
		{"NUL", set("A", "x\x00y"), nil, protocol.KindInvalid},
		{"line in a header", secret("A", "0123456789\r\nX: y", true), nil, protocol.KindInvalid},
		{"too long", set("A", long), nil, protocol.KindTooLarge},
		{"too much", set("A", long[9:], "B", long[9:], "C", long[9:], "D", long[9:], "E", long[9:]), nil, protocol.KindTooLarge},
		{"domain", protocol.EnvValues{ApprovedDomains: []protocol.ApprovedDomain{{Secret: "A", Domain: "a b"}}}, nil, protocol.KindInvalid},
	} {
		f := newFixture()
		err := f.Apply(sid, "", c.values, c.unset, true)
		if err == nil || protocol.KindOf(err) != c.kind || strings.Contains(err.Error(), "0123456789") {
			t.Errorf("%s: %v", c.name, err)
		}
		f.wantEnv(t, pid)
		if len(f.broker.secrets) != 0 || len(f.Names(sid).Variables) != 0 {
			t.Errorf("%s changed something", c.name)
		}
	}
	s := New(Options{})
	if err := s.Apply(sid, "", secret("A", "0123456789", true), nil, false); protocol.KindOf(err) != protocol.KindUnsupported {
		t.Errorf("protected without a broker: %v", err)
	}
	f := newFixture()
	f.opts.Masks = &mask.Secrets{}
	if err := f.Apply(sid, "", secret("A", "01\x1b[0m\x1b[0m", false), nil, false); protocol.KindOf(err) != protocol.KindInvalid {
		t.Errorf("not enough of it can be seen: %v", err)
	}
	if len(f.secrets) != 0 || len(f.Secrets()) != 0 {
		t.Error("kept though it can't be masked")
	}
}

func TestTooManySecrets(t *testing.T) {
	f := newFixture()
	for i := range redact.MaxSecrets/protocol.MaxEnvNames + 1 {
		values := protocol.EnvValues{Secrets: make(map[string]protocol.EnvSecret)}
		for j := range protocol.MaxEnvNames {
			values.Secrets[fmt.Sprintf("S%d", j)] = protocol.EnvSecret{Value: fmt.Sprintf("secret-%d-%d", i, j)}
		}
		err := f.Apply(sid, "", values, nil, false)
		if full := i == redact.MaxSecrets/protocol.MaxEnvNames; (err != nil) != full {
			t.Fatalf("%d: %v", i, err)
		} else if full && protocol.KindOf(err) != protocol.KindTooMany {
			t.Fatal(err)
		}
	}
	if err := f.Apply(sid, "", set("A", "b"), nil, false); err != nil {
		t.Errorf("a plain variable: %v", err)
	}
}

func TestTooManyVariables(t *testing.T) {
	f := newFixture()
	const full = MaxVariables / protocol.MaxEnvNames
	for i := range full + 1 {
		values := set()
		for j := range protocol.MaxEnvNames {
			values.Set[fmt.Sprintf("V%d_%d", i, j)] = "x"
		}
		if err := f.Apply(sid, "", values, nil, false); (err != nil) != (i == full) || err != nil && protocol.KindOf(err) != protocol.KindTooMany {
			t.Fatalf("%d: %v", i, err)
		}
	}
}

func TestTooManyScopes(t *testing.T) {
	f := newFixture()
	for i := range MaxScopes {
		f.apply(t, protocol.PTYID(fmt.Sprintf("pty_%d", i)), set("A", "x"), nil, false)
	}
	if err := f.Apply(sid, "", set("A", "x"), nil, false); protocol.KindOf(err) != protocol.KindTooMany {
		t.Error(err)
	}
	f.apply(t, "pty_1", set("B", "x"), nil, false)
}

func TestNames(t *testing.T) {
	f := newFixture()
	f.apply(t, "", protocol.EnvValues{
		Set: map[string]string{"B": "x"}, Secrets: map[string]protocol.EnvSecret{"C": {Value: "0123456789", BrokerProtected: true}},
		ApprovedDomains: []protocol.ApprovedDomain{{Secret: "C", Domain: "api.example.com"}},
	}, nil, false)
	f.apply(t, pid, secret("B", "9876543210", false), nil, false)
	f.apply(t, pid, set("A", "x"), nil, false)
	got := fmt.Sprint(f.Names(sid).Variables)
	if want := "[{A pty_a false false []} {B  false false []} {B pty_a true false []} {C  true true [api.example.com]}]"; got != want {
		t.Errorf("%s", got)
	}
	if list := f.Names("ses_b"); list.Variables == nil || len(list.Variables) != 0 {
		t.Errorf("%+v", list)
	}
	if err := f.Apply(sid, "", protocol.EnvValues{ApprovedDomains: []protocol.ApprovedDomain{{Secret: "C", Domain: "b.example.com"}}}, nil, false); err != nil {
		t.Errorf("domains alone: %v", err)
	}
}

func (f *fixture) wantScript(t *testing.T, pty protocol.PTYID, want ...string) {
	t.Helper()
	got := f.scripts[pty]
	delete(f.scripts, pty)
	if len(want) == 0 && len(got) == 0 {
		return
	}
	if len(got) != 1 || got[0] != strings.Join(want, "\n")+"\n" {
		t.Errorf("script of %s: %q, want %q", pty, got, want)
	}
}

func TestApplyNow(t *testing.T) {
	f := newFixture()
	f.apply(t, "", set("OLD", "1"), nil, true) // nobody runs
	f.wantEnv(t, pid, "OLD=1")
	f.wantEnv(t, "pty_b", "OLD=1")
	f.apply(t, "", set("LATER", "x"), nil, false)
	f.wantScript(t, pid)
	f.apply(t, "", set("A", "it's $HOME"), nil, true)
	f.wantScript(t, pid, `export A='it'\''s $HOME'`)
	f.wantScript(t, "pty_b", `export A='it'\''s $HOME'`)
	// One terminal alone, and what it was told before with it.
	f.apply(t, pid, set("B", "2"), []string{"OLD"}, true)
	f.wantScript(t, pid, `export A='it'\''s $HOME'`, "export B='2'", "export OLD='1'")
	f.wantScript(t, "pty_b")
	// The session's OLD goes, for all.
	f.apply(t, "", protocol.EnvValues{}, []string{"OLD"}, true)
	f.wantScript(t, pid, `export A='it'\''s $HOME'`, "export B='2'", "unset OLD")
	f.wantScript(t, "pty_b", `export A='it'\''s $HOME'`, "unset OLD")
	// The session's B is hidden by the terminal's.
	f.apply(t, "", set("B", "3"), nil, true)
	f.wantScript(t, pid, `export A='it'\''s $HOME'`, "export B='2'", "unset OLD")
	f.wantScript(t, "pty_b", `export A='it'\''s $HOME'`, "export B='3'", "unset OLD")
	// Protected: the placeholder and the terminal's own URL, and back.
	f.TerminalEnded(feature.Terminal{Session: sid, PTY: "pty_b"})
	f.wantEnv(t, "pty_b", `A=it's $HOME`, "B=3", "LATER=x")
	f.apply(t, "", secret("X_API_KEY", "0123456789", true), nil, true)
	f.wantScript(t, "pty_b", "export X_API_KEY='[BROKERED]X_API_KEY'", "export X_BASE_URL='http://broker/ses_a/pty_b/2001'")
	f.apply(t, "", secret("X_API_KEY", "0123456789", false), nil, true)
	f.wantScript(t, "pty_b", "export X_API_KEY='0123456789'", "unset X_BASE_URL")
	// A terminal that is over doesn't matter, another failure does.
	f.lost = protocol.Errorf(protocol.KindEnded, "over")
	f.apply(t, "", set("A", "4"), nil, true)
	f.lost = errors.New("disk full")
	if err := f.Apply(sid, "", set("A", "5"), nil, true); !errors.Is(err, f.lost) {
		t.Errorf("%v", err)
	}
}

// TestScriptInShells runs scripts with values that a shell could take apart.
func TestScriptInShells(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 0))
	values := []string{"", "'", "''", "a'b", "$(touch x)", "`id`", "a\nb", "\\", "\\'", "!!", "#", "ünï", "\x01\x7f", "*", "~", "-n", "a\r\nb", " b "}
	const special = "'\"\\$`\n ;&|<>(){}*?!~#a"
	for range 20 {
		var b strings.Builder
		for range random.IntN(30) {
			b.WriteByte(special[random.IntN(len(special))])
		}
		values = append(values, b.String())
	}
	for _, name := range []string{"sh", "bash", "zsh", "dash"} {
		shell, err := exec.LookPath(name)
		if err != nil {
			continue
		}
		for _, value := range values {
			body := string(script(map[string]*string{"A": &value, "B": nil})) + `printf '%s|%s' "$A" "${B-none}"`
			cmd := exec.Command(shell, "-c", body)
			cmd.Env = []string{"B=there"}
			cmd.Dir = t.TempDir()
			if out, err := cmd.Output(); err != nil || string(out) != value+"|none" {
				t.Errorf("%s: %q became %q, %v", name, value, out, err)
			}
		}
	}
}

func FuzzQuote(f *testing.F) {
	f.Add("it's")
	f.Fuzz(func(t *testing.T, text string) {
		// Outside of quotes stands nothing but \'.
		var b strings.Builder
		inside := false
		quoted := quote(text)
		for i := 0; i < len(quoted); i++ {
			switch c := quoted[i]; {
			case c == '\'':
				inside = !inside
			case inside:
				b.WriteByte(c)
			case c == '\\' && i+1 < len(quoted) && quoted[i+1] == '\'':
				b.WriteByte('\'')
				i++
			default:
				t.Fatalf("%q stands outside", quoted[i:])
			}
		}
		if inside || b.String() != text {
			t.Fatalf("%q became %q", text, b.String())
		}
	})
}

// TestConcurrent starts and ends terminals while variables change: each ends
// up with the last value, by its environment or by a script.
func TestConcurrent(t *testing.T) {
	terminals := newTerminals()
	s := New(Options{Broker: newBroker(), Terminals: terminals})
	var mu sync.Mutex
	var wait sync.WaitGroup
	begun := make(map[protocol.PTYID]string)
	for i := range 8 {
		wait.Go(func() {
			pty := protocol.PTYID(fmt.Sprintf("pty_%d", i))
			env, err := s.Environ(sid, pty, i)
			if err != nil {
				t.Error(err)
			}
			mu.Lock()
			defer mu.Unlock()
			begun[pty] = strings.Join(env, " ")
		})
	}
	for i := range 50 {
		if err := s.Apply(sid, "", set("A", fmt.Sprint(i)), nil, true); err != nil {
			t.Fatal(err)
		}
	}
	wait.Wait()
	for pty, env := range begun {
		got := ""
		if told := terminals.scripts[pty]; len(told) > 0 {
			got = strings.TrimSpace(strings.TrimPrefix(told[len(told)-1], "export "))
		}
		if got != "A='49'" && (got != "" || env != "A=49") {
			t.Errorf("%s began with %q and was told %q", pty, env, got)
		}
	}
}
