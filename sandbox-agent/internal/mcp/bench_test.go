package mcp

import (
	"io"
	"net/http"
	"strings"
	"testing"
)

// BenchmarkCall measures a call of a tool that does nothing, directly on
// loopback: in a session, and as the plain request of seed 001.
func BenchmarkCall(b *testing.B) {
	w := newWorld(b)
	id := w.begin(b)
	for name, at := range map[string]struct{ url, body string }{
		"session": {w.mcpURL(pty1), `{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"whoami","arguments":{}}}`},
		"plain":   {w.url + callPath, `{"name":"whoami"}`},
	} {
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				r, err := http.NewRequest("POST", at.url, strings.NewReader(at.body))
				if err != nil {
					b.Fatal(err)
				}
				r.Header.Set("Content-Type", "application/json")
				r.Header.Set("Accept", "application/json, text/event-stream")
				r.Header.Set(secret, "secret-of-1")
				r.Header.Set(sessionHeader, id)
				resp, err := http.DefaultClient.Do(r)
				if err != nil {
					b.Fatal(err)
				}
				answer, err := io.ReadAll(resp.Body)
				resp.Body.Close()
				if err != nil || !strings.Contains(string(answer), "program of pty_1") {
					b.Fatalf("%v %s", err, answer)
				}
			}
		})
	}
}
