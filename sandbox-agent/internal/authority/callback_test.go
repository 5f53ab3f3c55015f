package authority

import (
	"encoding/base64"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/protocol/jws"
)

// command returns a command that was issued just now.
func command(i int, url string) *jws.Command {
	return &jws.Command{
		CommandID: protocol.CommandID(fmt.Sprintf("cmd_%d", i)), IssuedAt: time.Now().UnixMilli(), TTLMs: 30_000,
		Reply: &jws.Reply{URL: url, CallbackToken: fmt.Sprintf("ct_%d", i)},
	}
}

func outcome(i int) protocol.Result {
	return protocol.Result{Callback: fmt.Appendf(nil, `{"commandId":"cmd_%d"}`, i), Signature: []byte{byte(i)}}
}

// TestCallbacks: they arrive in order, with token and signature, after as many
// attempts as it takes, and at the control plane alone.
func TestCallbacks(t *testing.T) {
	w := newWorld(t)
	o := w.open().Outbox
	trap, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	defer trap.Close()
	go func() { // ends with trap
		if _, err := trap.Accept(); err == nil {
			t.Error("reply.url was dialled")
		}
	}()
	got := make(chan string, 10)
	failures := 2
	w.Handle("POST "+callbackPath, func(rw http.ResponseWriter, r *http.Request) {
		if failures--; failures >= 0 {
			refuse(rw, http.StatusServiceUnavailable, "later")
			return
		}
		body, _ := io.ReadAll(r.Body)
		got <- r.Header.Get("Authorization") + " " + r.Header.Get(protocol.SignatureHeader) + " " + string(body)
		rw.WriteHeader(http.StatusNoContent)
	})
	run(t, o.run)
	for i := range 3 {
		o.Callback(command(i, "http://"+trap.Addr().String()+"/control/callback"), outcome(i))
	}
	for i := range 3 {
		want := fmt.Sprintf(`Bearer ct_%d %s {"commandId":"cmd_%d"}`, i, base64.StdEncoding.EncodeToString([]byte{byte(i)}), i)
		if said := <-got; said != want {
			t.Errorf("%q, want %q", said, want)
		}
	}
	if strings.Contains(w.log.String(), "ct_") {
		t.Error("the log has a token")
	}
}

// TestCallbackRefused: one that the control plane won't have holds up no other.
func TestCallbackRefused(t *testing.T) {
	w := newWorld(t)
	o := w.open().Outbox
	got := make(chan string, 10)
	w.Handle("POST "+callbackPath, func(rw http.ResponseWriter, r *http.Request) {
		token := r.Header.Get("Authorization")
		got <- token
		if token == "Bearer ct_0" {
			refuse(rw, http.StatusUnauthorized, "not that command's token")
		}
	})
	run(t, o.run)
	for i := range 2 {
		o.Callback(command(i, "https://control.example/control/callback"), outcome(i))
	}
	for i := range 2 {
		if said := <-got; said != fmt.Sprintf("Bearer ct_%d", i) {
			t.Errorf("%q", said)
		}
	}
	waitFor(t, "an empty queue", func() bool { _, _, ok := o.callbacks.first(time.Now()); return !ok })
}

// TestCallbackBounds: the oldest go when there are too many, too large ones,
// or when their time is over; each is counted.
func TestCallbackBounds(t *testing.T) {
	w := newWorld(t)
	o := w.open().Outbox
	c := o.callbacks
	for i := range maxWaiting + 10 {
		o.Callback(command(i, "https://control.example/"), outcome(i))
	}
	if first, _, ok := c.first(time.Now()); !ok || first.id != "cmd_10" || c.dropped != 10 {
		t.Errorf("the first is %s, %d dropped", first.id, c.dropped)
	}
	o.Callback(command(1, "https://control.example/"), protocol.Result{Callback: make([]byte, maxWaitingBytes)})
	first, number, _ := c.first(time.Now())
	if len(c.waiting) != 1 || c.bytes != maxWaitingBytes || first.id != "cmd_1" {
		t.Errorf("%d wait, %d bytes", len(c.waiting), c.bytes)
	}
	dropped := c.dropped
	late := time.Now().Add(30*time.Second + protocol.ClockSkew + time.Second)
	if _, _, ok := c.first(late); ok || c.bytes != 0 || c.dropped != dropped+1 {
		t.Errorf("its time is over: %d bytes, %d dropped", c.bytes, c.dropped-dropped)
	}
	c.done(number) // it was dropped meanwhile
	o.Callback(&jws.Command{CommandID: "cmd_2"}, outcome(2))
	o.Callback(&jws.Command{CommandID: "cmd_3", Reply: &jws.Reply{URL: "https://control.example/"}}, outcome(3))
	if len(c.waiting) != 0 {
		t.Error("nobody asked for these")
	}
}

func TestReplyURL(t *testing.T) {
	for url, want := range map[string]bool{
		"https://control.example.com/control/callback": true,
		"http://127.0.0.1:8080/control/callback":       true,
		"http://localhost/":                            true,
		"http://[::1]:80/":                             true,
		"http://control.example.com/":                  false,
		"http://169.254.169.254/latest/meta-data":      false,
		"https://user:secret@control.example.com/":     false,
		"ftp://127.0.0.1/":                             false,
		"https://":                                     false,
		"file:///etc/passwd":                           false,
		"":                                             false,
		"http://127.0.0.1.example.com/":                false,
	} {
		if validReply(url) != want {
			t.Errorf("%q: %v", url, !want)
		}
	}
}
