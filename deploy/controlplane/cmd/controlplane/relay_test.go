package main

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/protocol/envseal"
	"github.com/fairlead/fairlead/protocol/jws"
	"github.com/fairlead/fairlead/protocol/op"
)

// fakeRelay registers a relay that answers in a sandbox's place: "relay READY
// CREDENTIAL [DEVICE]", READY being the control plane's ready file and DEVICE the
// private key of a sandbox that is enrolled: it signs the answers, and they tell
// what env.apply has sealed. A terminal called error, unknown or away has that
// outcome.
func fakeRelay(ts *testscript.TestScript, _ bool, args []string) {
	var ready struct{ URL string }
	ts.Check(json.Unmarshal([]byte(ts.ReadFile(args[0])), &ready))
	s := sandbox{}
	if len(args) > 2 {
		var err error
		s.device, err = jws.ParseDeviceKey([]byte(ts.ReadFile(args[2])))
		ts.Check(err)
	}
	relay := httptest.NewServer(http.HandlerFunc(s.answer))
	ts.Defer(relay.Close)
	ts.Check(register(ready.URL, args[1], relay.URL))
	ended := make(chan struct{})
	var renewing sync.WaitGroup
	renewing.Go(func() { // a script may take longer than a registration lives
		for {
			select {
			case <-ended:
				return
			case <-time.After(5 * time.Second):
				_ = register(ready.URL, args[1], relay.URL) // the script may have ended its server
			}
		}
	})
	ts.Defer(func() {
		close(ended)
		renewing.Wait()
	})
}

// register registers the relay at url for half a minute, as relays do.
func register(controlPlane, credential, url string) error {
	body := fmt.Sprintf(`{"url":%q,"tunnel":"127.0.0.1:1","public_origin":"http://127.0.0.1:2"}`, url)
	req, err := http.NewRequest(http.MethodPut, controlPlane+"/internal/relays/rl_1", strings.NewReader(body))
	if err != nil {
		return err
	}
	req.Header.Set("Authorization", "Bearer "+credential)
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: 20 * time.Second}
	res, err := client.Do(req)
	if err != nil {
		return err
	}
	defer res.Body.Close()
	if res.StatusCode != http.StatusOK {
		return fmt.Errorf("register: %s", res.Status)
	}
	return nil
}

// A sandbox is what a fake relay is connected to.
type sandbox struct {
	device *jws.DeviceKey // nil: it isn't enrolled
}

func (s sandbox) answer(w http.ResponseWriter, r *http.Request) {
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
	if opened := s.opened(env); opened != nil {
		outcome = fmt.Sprintf(`"status":"ok","result":%s`, opened)
	}
	body := fmt.Appendf(nil, `{"type":"control.callback","commandId":%q,"at":1,%s}`, env.CommandID, outcome)
	if s.device != nil {
		signature, err := s.device.Sign(protocol.CallbackTranscript(env.Target.SandboxID, body))
		if err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		w.Header().Set(protocol.SignatureHeader, base64.StdEncoding.EncodeToString(signature))
	}
	w.Write(body)
}

// opened returns the operation in env as it was signed, and what it has sealed;
// nil if it is none that a sandbox's services do.
func (s sandbox) opened(env protocol.CommandEnvelope) []byte {
	payload, err := base64.RawURLEncoding.DecodeString(strings.Split(env.JWS, ".")[1])
	var command struct {
		Op json.RawMessage `json:"op"`
	}
	var op op.EnvSealed
	if err != nil || json.Unmarshal(payload, &command) != nil || json.Unmarshal(command.Op, &op) != nil {
		return nil
	}
	if s.device == nil || op.Sealed == nil {
		if strings.Contains(string(command.Op), ".decide") {
			return command.Op
		}
		return nil
	}
	private, err := s.device.ECDH()
	if err != nil {
		return nil
	}
	values, err := envseal.Open[protocol.EnvValues](private, envseal.Env, env.Target.SandboxID, op.Sealed)
	if err != nil {
		return nil
	}
	op.Sealed = nil
	data, err := json.Marshal(map[string]any{"signed": op, "opened": values})
	if err != nil {
		return nil
	}
	return data
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
