package e2e

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"

	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/protocol/jws"
)

// Signer returns the control plane's first signing key, so that a test can sign
// what a control plane never would.
func (s *Stack) Signer() (*jws.Signer, error) {
	files, err := filepath.Glob(filepath.Join(s.Dir, "controlplane", "keys", "*.jwk"))
	if err != nil {
		return nil, err
	}
	if len(files) == 0 {
		return nil, errors.New("the stack has no signing key")
	}
	slices.Sort(files)
	data, err := os.ReadFile(files[0])
	if err != nil {
		return nil, err
	}
	return jws.ParseSigner(data)
}

// Post sends a command to the first relay and waits for its callback, with the
// status of the answer. An error body reads as a callback that has nothing but
// the error.
func (s *Stack) Post(ctx context.Context, client *http.Client, env protocol.CommandEnvelope) (int, protocol.ExecutionCallback, error) {
	var callback protocol.ExecutionCallback
	body, err := json.Marshal(env)
	if err != nil {
		return 0, callback, err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, s.Ready.Relays[0].URL+"/control/commands?wait=1", bytes.NewReader(body))
	if err != nil {
		return 0, callback, err
	}
	resp, err := client.Do(req)
	if err != nil {
		return 0, callback, err
	}
	defer resp.Body.Close()
	answer, err := io.ReadAll(io.LimitReader(resp.Body, 1<<20))
	if err != nil {
		return 0, callback, err
	}
	if err := json.Unmarshal(answer, &callback); err != nil {
		return resp.StatusCode, callback, fmt.Errorf("status %d: %s", resp.StatusCode, answer)
	}
	return resp.StatusCode, callback, nil
}
