package dispatch

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"

	"github.com/fairlead/fairlead/protocol"
)

// maxAnswer bounds what is read of a control plane's answer, in bytes.
const maxAnswer = 256 << 10

// A Signer asks the control plane to sign what a browser wants done.
type Signer struct {
	URL        string // of the control plane, without a path
	Credential string // the relay's own
	Client     *http.Client
}

// A SignRequest is the body of POST /internal/sign.
type SignRequest struct {
	Grant          string                 `json:"grant"`
	Op             any                    `json:"op"`
	Target         protocol.CommandTarget `json:"target"`
	IdempotencyKey string                 `json:"idempotency_key"`
}

// Sign returns the signed command for req: for one user and idempotency key
// always the same. It fails with the control plane's answer, or unavailable
// when that can't be had.
func (s *Signer) Sign(ctx context.Context, req SignRequest) (protocol.CommandEnvelope, error) {
	var answer struct {
		Envelope protocol.CommandEnvelope `json:"envelope"`
		Error    *protocol.ErrorBody      `json:"error"`
	}
	status, ours, err := s.post(ctx, "/internal/sign", req, &answer)
	switch {
	case err != nil:
		return protocol.CommandEnvelope{}, protocol.Fault(protocol.KindUnavailable, err)
	case status == http.StatusOK && answer.Envelope.JWS != "":
		return answer.Envelope, nil
	case answer.Error != nil && status < 500 && !ours:
		return protocol.CommandEnvelope{}, &protocol.Error{Kind: protocol.KindByStatus(status), Message: answer.Error.Message}
	}
	return protocol.CommandEnvelope{}, protocol.Fault(protocol.KindUnavailable, fmt.Errorf("dispatch: sign: status %d", status))
}

// relayRealm is how the control plane says that the relay's own credential,
// not the user's grant, is at fault.
const relayRealm = `realm="relay credential"`

// post sends body and decodes the answer. ours says that the failure is the
// relay's, which must not look like the user's.
func (s *Signer) post(ctx context.Context, path string, body, answer any) (status int, ours bool, err error) {
	data, err := json.Marshal(body)
	if err != nil {
		return 0, false, err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, s.URL+path, bytes.NewReader(data))
	if err != nil {
		return 0, false, err
	}
	req.Header.Set("Authorization", "Bearer "+s.Credential)
	req.Header.Set("Content-Type", "application/json")
	resp, err := s.Client.Do(req)
	if err != nil {
		return 0, false, err
	}
	defer resp.Body.Close()
	data, err = io.ReadAll(io.LimitReader(resp.Body, maxAnswer))
	if err != nil {
		return 0, false, err
	}
	ours = strings.Contains(resp.Header.Get("WWW-Authenticate"), relayRealm)
	return resp.StatusCode, ours, json.Unmarshal(data, answer)
}
