package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os/exec"
	"strconv"
	"strings"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/fairlead/fairlead/protocol"
)

// fakeRelay registers a relay that answers in a sandbox's place: "relay READY
// CREDENTIAL", READY being the control plane's ready file. A terminal called
// error, unknown or away has that outcome.
func fakeRelay(ts *testscript.TestScript, _ bool, args []string) {
	var ready struct{ URL string }
	ts.Check(json.Unmarshal([]byte(ts.ReadFile(args[0])), &ready))
	relay := httptest.NewServer(http.HandlerFunc(answer))
	ts.Defer(relay.Close)
	body := fmt.Sprintf(`{"url":%q,"tunnel":"127.0.0.1:1","public_origin":"http://127.0.0.1:2"}`, relay.URL)
	req, err := http.NewRequest(http.MethodPut, ready.URL+"/internal/relays/rl_1", strings.NewReader(body))
	ts.Check(err)
	req.Header.Set("Authorization", "Bearer "+args[1])
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	res, err := client.Do(req)
	ts.Check(err)
	ts.Check(res.Body.Close())
	if res.StatusCode != http.StatusOK {
		ts.Fatalf("register: %s", res.Status)
	}
}

func answer(w http.ResponseWriter, r *http.Request) {
	var env protocol.CommandEnvelope
	if err := json.NewDecoder(r.Body).Decode(&env); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	outcome := `"status":"ok","result":{"kind":"pty.create"}`
	switch env.Target.PTYID {
	case "error":
		outcome = `"status":"error","error":{"name":"LimitError","message":"full"}`
	case "unknown":
		outcome = `"status":"unknown"`
	case "away":
		http.Error(w, "not connected", http.StatusServiceUnavailable)
		return
	}
	fmt.Fprintf(w, `{"type":"control.callback","commandId":%q,"at":1,%s}`, env.CommandID, outcome)
}

// exitStatus runs a program that must exit with a status: "status N PROGRAM
// ARGS…".
func exitStatus(ts *testscript.TestScript, _ bool, args []string) {
	want, err := strconv.Atoi(args[0])
	ts.Check(err)
	err = ts.Exec(args[1], args[2:]...)
	failed, ok := errors.AsType[*exec.ExitError](err)
	if !ok || failed.ExitCode() != want {
		ts.Fatalf("%v, want exit status %d", err, want)
	}
}
