package mcp

import (
	"encoding/json"
	"flag"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/fairlead/fairlead/protocol"
)

var suite = flag.String("mcp.suite", "", "folder with conformance and a node that it runs on")

// The official conformance suite, run by `make conformance`, finds nothing
// wrong. It knows no secrets: a proxy adds that of a terminal, and leaves Host
// and Origin as they are.
func TestConformance(t *testing.T) {
	if *suite == "" {
		t.Skip("make conformance runs this")
	}
	w := newConformanceWorld(t)
	target, err := url.Parse(w.url)
	if err != nil {
		t.Fatal(err)
	}
	proxy := httptest.NewServer(nil)
	defer proxy.Close()
	own := strings.TrimPrefix(proxy.URL, "http://")
	proxy.Config.Handler = &httputil.ReverseProxy{
		FlushInterval: -1, ErrorLog: log.New(io.Discard, "", 0), // clients that go are no news
		Rewrite: func(r *httputil.ProxyRequest) {
			r.Out.URL.Scheme, r.Out.URL.Host = target.Scheme, target.Host
			r.Out.Host = strings.ReplaceAll(r.In.Host, own, target.Host)
			if origin := r.In.Header.Get("Origin"); origin != "" {
				r.Out.Header.Set("Origin", strings.ReplaceAll(origin, own, target.Host))
			}
			r.Out.Header.Set(protocol.MCPSecretHeader, "secret-of-1")
		},
	}
	results := t.TempDir()
	command := exec.CommandContext(t.Context(), filepath.Join(*suite, "node"), filepath.Join(*suite, "conformance"),
		"server", "--suite", "all", "--url", proxy.URL+mcpPath, "--output-dir", results)
	command.Dir = results
	output, err := command.CombinedOutput()
	passed, total := count(t, results)
	t.Logf("conformance: %d of %d checks passed", passed, total)
	if err != nil || passed != total || total == 0 {
		t.Errorf("%v\n%s", err, output)
	}
	http.DefaultTransport.(*http.Transport).CloseIdleConnections()
}

// count reads what the suite has found.
func count(t *testing.T, dir string) (passed, total int) {
	files, err := filepath.Glob(filepath.Join(dir, "*", "checks.json"))
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range files {
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		var checks []struct{ ID, Status, ErrorMessage string }
		if err := json.Unmarshal(text, &checks); err != nil {
			t.Fatal(err)
		}
		for _, check := range checks {
			switch check.Status {
			case "SUCCESS":
				passed++
				total++
			case "FAILURE":
				total++
				t.Errorf("%s: %s", check.ID, check.ErrorMessage)
			case "WARNING":
				t.Logf("warning: %s: %s", check.ID, check.ErrorMessage)
			}
		}
	}
	return passed, total
}
