package dispatch

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"

	"github.com/fairlead/fairlead/deploy/program/telemetry"
	"github.com/fairlead/fairlead/protocol"
)

// maxAnswer bounds the control plane's answer, in bytes.
const maxAnswer = 256 << 10

// A Signer asks the control plane to sign a browser's operations, and reports
// their outcomes to it.
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

// Sign returns the signed command for req, the same one for one user and
// idempotency key. It fails with the control plane's answer, or unavailable if
// there is none.
func (s *Signer) Sign(ctx context.Context, req SignRequest) (env protocol.CommandEnvelope, err error) {
	ctx, span := telemetry.Call(ctx, "ask for signature")
	defer func() { span.End(err) }()
	body, err := json.Marshal(req)
	if err != nil {
		return protocol.CommandEnvelope{}, protocol.Fault(protocol.KindUnavailable, err)
	}
	var answer struct {
		Envelope protocol.CommandEnvelope `json:"envelope"`
	}
	header := http.Header{}
	if traceparent := telemetry.Inject(ctx); traceparent != "" {
		header.Set(telemetry.Header, traceparent)
	}
	err = s.post(ctx, "/internal/sign", header, body, &answer)
	if err == nil && answer.Envelope.JWS == "" {
		err = protocol.Fault(protocol.KindUnavailable, errors.New("dispatch: sign: no envelope in the answer"))
	}
	return answer.Envelope, err
}

// Report forwards a callback to the control plane. It fails with the control
// plane's answer, or unavailable if there is none; then the executor has to try
// again.
func (s *Signer) Report(ctx context.Context, a Answer) error {
	header := http.Header{}
	header.Set(protocol.CallbackTokenHeader, a.Token)
	if len(a.Signature) > 0 {
		header.Set(protocol.SignatureHeader, base64.StdEncoding.EncodeToString(a.Signature))
	}
	return s.post(ctx, "/internal/callback", header, a.Body, nil)
}

// ShareTabs tells the control plane what a page reports of shared tabs, and
// SharedTabs asks what is shared with a session. Both return the control plane's
// answer, and fail as Sign does.
func (s *Signer) ShareTabs(ctx context.Context, req TabsRequest) (json.RawMessage, error) {
	return s.tabs(ctx, "/internal/tabs", req)
}

// SharedTabs is described at [Signer.ShareTabs].
func (s *Signer) SharedTabs(ctx context.Context, grant string, session protocol.SessionID) (json.RawMessage, error) {
	return s.tabs(ctx, "/internal/tabs/list", struct {
		Grant   string             `json:"grant"`
		Session protocol.SessionID `json:"session"`
	}{grant, session})
}

// A TabsRequest is the body of POST /internal/tabs.
type TabsRequest struct {
	Grant   string             `json:"grant"`
	Session protocol.SessionID `json:"session"`
	TabsReport
}

// A TabsReport says which tabs a browser of a person shares with a session: all
// of them.
type TabsReport struct {
	BrowserID   string          `json:"browserId"`
	ExtensionID string          `json:"extensionId"`
	Tabs        json.RawMessage `json:"tabs"`
}

func (s *Signer) tabs(ctx context.Context, path string, req any) (answer json.RawMessage, err error) {
	body, err := json.Marshal(req)
	if err != nil {
		return nil, protocol.Errorf(protocol.KindInvalid, "the report is not JSON")
	}
	err = s.post(ctx, path, http.Header{}, body, &answer)
	return answer, err
}

// relayRealm marks an answer that refuses the relay's own credential rather
// than the user's grant. It must not look like the user's fault.
const relayRealm = `realm="relay credential"`

// post sends body, JSON, and decodes a successful answer, if wanted.
func (s *Signer) post(ctx context.Context, path string, header http.Header, body []byte, answer any) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, s.URL+path, bytes.NewReader(body))
	if err != nil {
		return protocol.Fault(protocol.KindUnavailable, err)
	}
	req.Header = header
	req.Header.Set("Authorization", "Bearer "+s.Credential)
	req.Header.Set("Content-Type", "application/json")
	resp, err := s.Client.Do(req)
	if err != nil {
		return protocol.Fault(protocol.KindUnavailable, err)
	}
	defer resp.Body.Close()
	data, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer))
	switch {
	case err != nil:
	case resp.StatusCode >= 300:
		ours := strings.Contains(resp.Header.Get("WWW-Authenticate"), relayRealm)
		var refusal struct {
			Error *protocol.ErrorBody `json:"error"`
		}
		if json.Unmarshal(data, &refusal) == nil && refusal.Error != nil && resp.StatusCode < 500 && !ours {
			return &protocol.Error{Kind: protocol.KindByStatus(resp.StatusCode), Message: refusal.Error.Message}
		}
		err = fmt.Errorf("dispatch: %s: status %d", path, resp.StatusCode)
	case answer != nil:
		err = json.Unmarshal(data, answer)
	}
	if err != nil {
		return protocol.Fault(protocol.KindUnavailable, err)
	}
	return nil
}
