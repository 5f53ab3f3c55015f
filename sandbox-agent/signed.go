package agent

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"time"

	"github.com/fairlead/fairlead/protocol"
)

// signed sends a request to the control plane that says, by the device key,
// which sandbox it comes from. target is a path with its query. It returns the
// answer, whatever its status, of at most protocol.MaxGatewayAnswer bytes.
func (a *Agent) signed(ctx context.Context, method, target string, body []byte) ([]byte, int, error) {
	req, err := http.NewRequestWithContext(ctx, method, a.controlPlane.url(target), bytes.NewReader(body))
	if err != nil {
		return nil, 0, err
	}
	at := time.Now().UnixMilli()
	signature, err := a.device.Sign(protocol.DeviceTranscript(a.enrolment.SandboxID, method, target, sha256.Sum256(body), at))
	if err != nil {
		return nil, 0, err
	}
	req.Header.Set(protocol.CertificateHeader, a.holder.credential().token)
	req.Header.Set(protocol.SignedAtHeader, strconv.FormatInt(at, 10))
	req.Header.Set(protocol.SignatureHeader, base64.StdEncoding.EncodeToString(signature))
	if len(body) > 0 {
		req.Header.Set("Content-Type", "application/json")
	}
	resp, err := a.controlPlane.patient.Do(req)
	if err != nil {
		return nil, 0, err
	}
	defer resp.Body.Close()
	answer, err := io.ReadAll(io.LimitReader(resp.Body, protocol.MaxGatewayAnswer+1))
	if err == nil && len(answer) > protocol.MaxGatewayAnswer {
		err = fmt.Errorf("control plane: an answer over %d bytes", protocol.MaxGatewayAnswer)
	}
	return answer, resp.StatusCode, err
}
