package broker

import (
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/sandbox-agent/internal/outbound"
	"github.com/fairlead/fairlead/sandbox-agent/internal/peer"
)

// echo answers with what it was asked, on lines.
var echo = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	fmt.Fprintf(w, "%s %s%s\n", r.Method, r.Host, r.RequestURI)
	for _, name := range slices.Sorted(headerNames(r.Header)) {
		fmt.Fprintf(w, "%s: %s\n", name, strings.Join(r.Header[name], "|"))
	}
	fmt.Fprintf(w, "\n%s", body)
})

func headerNames(h http.Header) func(func(string) bool) {
	return func(yield func(string) bool) {
		for name := range h {
			if !yield(name) {
				return
			}
		}
	}
}

func TestProviders(t *testing.T) {
	s := withUpstream(t, echo, nil)
	all := env(t, s, sid, pid)
	if len(providers) != 14 {
		t.Errorf("%d providers", len(providers))
	}
	for _, c := range []struct{ url, path, want, header string }{
		{"ANTHROPIC_BASE_URL", "/v1/messages", "api.anthropic.com/v1/messages", "X-Api-Key: " + realKey},
		{"OPENAI_BASE_URL", "/chat/completions", "api.openai.com/v1/chat/completions", "Authorization: Bearer " + realKey},
		{"OPENAI_BASE_URL", "/v1/chat/completions", "api.openai.com/v1/chat/completions", "Authorization: Bearer " + realKey},
		{"GOOGLE_BASE_URL", "/v1beta/models/g:generateContent", "generativelanguage.googleapis.com/v1beta/models/g:generateContent", "X-Goog-Api-Key: " + realKey},
		{"GOOGLE_GEMINI_BASE_URL", "/v1beta/models?key=x&a=b", "generativelanguage.googleapis.com/v1beta/models?a=b", "X-Goog-Api-Key: " + realKey},
		{"ELEVENLABS_BASE_URL", "/v1/text-to-speech/a", "api.elevenlabs.io/v1/text-to-speech/a", "Xi-Api-Key: " + realKey},
		{"DEEPGRAM_BASE_URL", "/v1/listen", "api.deepgram.com/v1/listen", "Authorization: Token " + realKey},
		{"GROQ_BASE_URL", "/openai/v1/models", "api.groq.com/openai/v1/models", "Authorization: Bearer " + realKey},
		{"GROQ_BASE_URL", "/models", "api.groq.com/openai/v1/models", "Authorization: Bearer " + realKey},
		{"TOGETHER_BASE_URL", "/models", "api.together.xyz/v1/models", "Authorization: Bearer " + realKey},
		{"FIREWORKS_BASE_URL", "/models", "api.fireworks.ai/inference/v1/models", "Authorization: Bearer " + realKey},
		{"MISTRAL_BASE_URL", "/models", "api.mistral.ai/v1/models", "Authorization: Bearer " + realKey},
		{"COHERE_BASE_URL", "/chat", "api.cohere.ai/v1/chat", "Authorization: Bearer " + realKey},
		{"CO_API_URL", "/v2/chat", "api.cohere.ai/v2/chat", "Authorization: Bearer " + realKey},
		{"REPLICATE_BASE_URL", "/predictions", "api.replicate.com/v1/predictions", "Authorization: Token " + realKey},
		{"HUGGINGFACE_BASE_URL", "/v1/chat/completions", "router.huggingface.co/v1/chat/completions", "Authorization: Bearer " + realKey},
		{"OPENROUTER_BASE_URL", "/chat/completions", "openrouter.ai/api/v1/chat/completions", "Authorization: Bearer " + realKey},
	} {
		got := do(t, "POST", all[c.url]+c.path, "body", http.Header{"Authorization": {"Bearer [BROKERED]X"}})
		if got.status != 200 || !strings.HasPrefix(got.body, "POST "+c.want+"\n") || !strings.Contains(got.body, "\n"+c.header+"\n") || !strings.HasSuffix(got.body, "\n\nbody") {
			t.Errorf("%s%s: %d\n%s", c.url, c.path, got.status, got.body)
		}
		if strings.Contains(got.body, "BROKERED") {
			t.Errorf("%s: the placeholder went upstream", c.url)
		}
	}
}

func TestEnviron(t *testing.T) {
	s := withUpstream(t, echo, nil)
	all, err := s.Environ(sid, pid, terminalUID, []string{"ANTHROPIC_API_KEY", "GOOGLE_API_KEY", "GEMINI_API_KEY", "MY_KEY"})
	if err != nil {
		t.Fatal(err)
	}
	capability := strings.Split(all["MY_KEY_BROKER"], "/")[4]
	base := fmt.Sprintf("http://127.0.0.1:%d/broker/%s/", s.Port(), capability)
	want := map[string]string{
		"ANTHROPIC_API_KEY": "[BROKERED]ANTHROPIC_API_KEY", "ANTHROPIC_BASE_URL": base + "anthropic",
		"GOOGLE_API_KEY": "[BROKERED]GOOGLE_API_KEY", "GOOGLE_BASE_URL": base + "google",
		"GEMINI_API_KEY": "[BROKERED]GEMINI_API_KEY", "GEMINI_BASE_URL": base + "gemini", "GOOGLE_GEMINI_BASE_URL": base + "gemini",
		"MY_KEY": "[BROKERED]MY_KEY", "MY_KEY_BROKER": base + "custom/MY_KEY",
	}
	if len(capability) < 26 || fmt.Sprint(all) != fmt.Sprint(want) {
		t.Errorf("got %v", all)
	}
	again, err := s.Environ(sid, pid, terminalUID, []string{"MY_KEY"})
	if err != nil || again["MY_KEY_BROKER"] != all["MY_KEY_BROKER"] {
		t.Errorf("again: %v, %v", again, err)
	}
	if other := env(t, s, sid, otherPID); other["MY_KEY_BROKER"] == all["MY_KEY_BROKER"] {
		t.Error("two terminals have one capability")
	}
	if _, err := s.Environ(sid, pid, terminalUID+1, []string{"MY_KEY"}); protocol.KindOf(err) != protocol.KindConflict {
		t.Errorf("as another user: %v", err)
	}
	if none, err := s.Environ(sid, "pty_none", 1, nil); err != nil || len(none) != 0 {
		t.Errorf("nothing protected: %v, %v", none, err)
	}
}

func TestUser(t *testing.T) {
	var mu sync.Mutex
	uid, fail := terminalUID, error(nil)
	var s *Server
	s = withUpstream(t, echo, func(o *Options) {
		o.Peers = peer.UsersFunc(func(local, remote netip.AddrPort) (int, error) {
			mu.Lock()
			defer mu.Unlock()
			if int(local.Port()) != s.Port() || !remote.Addr().IsLoopback() {
				t.Errorf("asked for %s to %s", local, remote)
			}
			return uid, fail
		})
	})
	url := env(t, s, sid, pid)["OPENAI_BASE_URL"] + "/models"
	for _, c := range []struct {
		uid  int
		err  error
		want int
	}{{terminalUID, nil, 200}, {0, nil, 403}, {terminalUID + 1, nil, 403}, {terminalUID, errors.New("unknown"), 403}} {
		mu.Lock()
		uid, fail = c.uid, c.err
		mu.Unlock()
		if got := do(t, "GET", url, "", nil); got.status != c.want || c.want == 403 && got.reason() != reasonCapability {
			t.Errorf("%+v: %d %s", c, got.status, got.body)
		}
	}
	if n := s.Snapshot().Refused[string(reasonUser)]; n != 3 {
		t.Errorf("counted %d", n)
	}
}

func TestEncodedAnswers(t *testing.T) {
	var encoding string
	s := withUpstream(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Encoding", encoding)
		if encoding == "gzip" {
			z := gzip.NewWriter(w)
			defer z.Close()
			io.WriteString(z, "key "+realKey)
			return
		}
		io.WriteString(w, "not masked")
	}), func(o *Options) { o.Masker = newStars(realKey) })
	url := env(t, s, sid, pid)["ANTHROPIC_BASE_URL"] + "/x"
	encoding = "gzip"
	if got := do(t, "GET", url, "", nil); got.body != "key "+strings.Repeat("*", len(realKey)) || got.header.Get("Content-Encoding") != "" {
		t.Errorf("gzip: %d %q", got.status, got.body)
	}
	for _, encoding = range []string{"br", "zstd", "gzip, gzip"} {
		if got := do(t, "GET", url, "", nil); got.status != 502 || got.reason() != reasonEncoding {
			t.Errorf("%s: %d %q", encoding, got.status, got.body)
		}
	}
}

func TestHostHeader(t *testing.T) {
	s := withUpstream(t, echo, nil)
	port := fmt.Sprint(s.Port())
	path := strings.TrimPrefix(env(t, s, sid, pid)["OPENAI_BASE_URL"], "http://127.0.0.1:"+port) + "/x"
	for host, want := range map[string]int{
		"127.0.0.1:" + port: 200, "localhost:" + port: 200, "LocalHost:" + port: 200, "[::1]:" + port: 200,
		"evil.example:" + port: 403, "evil.example": 403, "127.0.0.1": 403, "127.0.0.1:1": 403, "127.0.0.1.evil.example:" + port: 403, "": 403,
	} {
		if got := raw(t, s, "GET "+path+" HTTP/1.1\r\nHost: "+host+"\r\n\r\n"); got.status != want {
			t.Errorf("%q: %d %s", host, got.status, got.body)
		}
	}
}

func TestListenerMustBeLoopback(t *testing.T) {
	l, err := net.Listen("tcp", "0.0.0.0:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	if _, err := NewServer(Options{Listener: l}); err == nil {
		t.Error("a broker for everybody")
	}
}

func TestAudit(t *testing.T) {
	records := make(chan Record, 10)
	s := withUpstream(t, echo, func(o *Options) { o.Audit = func(r Record) { records <- r } })
	all := env(t, s, sid, pid)
	do(t, "POST", all["OPENAI_BASE_URL"]+"/secret-path?secret=query", "12345", nil)
	r := <-records
	if r.Session != sid || r.PTY != pid || r.Provider != "openai" || r.Secret != "OPENAI_API_KEY" || r.Host != "api.openai.com" ||
		r.Method != "POST" || r.Status != 200 || r.Error != "" || r.RequestBytes != 5 || r.ResponseBytes == 0 || r.Duration <= 0 || r.At.IsZero() {
		t.Errorf("%+v", r)
	}
	do(t, "GET", all["MY_KEY_BROKER"]+"?target=https://api.example.com:8443/secret-path", "", nil)
	if r = <-records; r.Provider != "custom" || r.Secret != "MY_KEY" || r.Host != "api.example.com:8443" || r.Status != 403 || r.Error != "domain_approval_required" {
		t.Errorf("%+v", r)
	}
	if text := fmt.Sprintf("%+v", r); strings.Contains(text, "secret-path") || strings.Contains(text, customKey) {
		t.Errorf("kept: %s", text)
	}
	snap := s.Snapshot()
	for late := time.Now().Add(time.Minute); snap.Active > 0 && time.Now().Before(late); { // a request is over a little after its record
		runtime.Gosched()
		snap = s.Snapshot()
	}
	if snap.Requests != 2 || snap.Active != 0 || snap.RequestBytes != 5 || snap.ResponseBytes == 0 || snap.Refused["domain_approval_required"] != 1 {
		t.Errorf("%+v", snap)
	}
}

func TestUnreachable(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	addr := l.Addr().(*net.TCPAddr).AddrPort()
	l.Close()
	s := start(t, Options{Dialer: &outbound.Dialer{Static: staticFor(t, addr)}})
	s.PutSecret(sid, "", "OPENAI_API_KEY", realKey)
	got := do(t, "GET", env(t, s, sid, pid)["OPENAI_BASE_URL"]+"/x", "", nil)
	if got.status != 502 || got.reason() != reasonUpstream || strings.Contains(got.body, addr.String()) {
		t.Errorf("%d %s", got.status, got.body)
	}
}

// TestCertificate: an upstream that can't show who it is gets no key.
func TestCertificate(t *testing.T) {
	asked := false
	handler := http.HandlerFunc(func(http.ResponseWriter, *http.Request) { asked = true })
	addr := upstream(t, handler)
	s := start(t, Options{Dialer: &outbound.Dialer{Static: staticFor(t, addr, "wrong.invalid")}})
	s.PutSecret(sid, "", "MY_KEY", customKey)
	if err := s.ApproveDomain(sid, protocol.ApprovedDomain{Secret: "MY_KEY", Domain: "wrong.invalid"}); err != nil {
		t.Fatal(err)
	}
	got := do(t, "GET", env(t, s, sid, pid)["MY_KEY_BROKER"]+"?target=https://wrong.invalid/", "", nil)
	if got.status != 502 || asked {
		t.Errorf("%d %s, asked %v", got.status, got.body, asked)
	}
}

func TestClosed(t *testing.T) {
	s := start(t, Options{})
	s.Close()
	if _, err := s.Environ(sid, pid, 1, []string{"A"}); protocol.KindOf(err) != protocol.KindUnavailable {
		t.Error(err)
	}
	if _, err := s.opts.Listener.Accept(); !errors.Is(err, net.ErrClosed) { // another may have its port by now
		t.Errorf("it still listens: %v", err)
	}
}
