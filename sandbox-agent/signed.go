package agent

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
	"net/http"
	"strconv"
	"time"

	"github.com/fairlead/fairlead/protocol"
)

// signed sends a request to the control plane that says, by the device key,
// which sandbox it comes from. target is a path with its query. It returns the
// answer, whatever its status, of at most protocol.MaxGatewayAnswer bytes.
func (a *Agent) signed(ctx context.Context, method, target string, body []byte) ([]byte, int, error) {
	at := time.Now().UnixMilli()
	signature, err := a.device.Sign(protocol.DeviceTranscript(a.enrolment.SandboxID, method, target, sha256.Sum256(body), at))
	if err != nil {
		return nil, 0, err
	}
	header := http.Header{}
	header.Set(protocol.CertificateHeader, a.holder.credential().token)
	header.Set(protocol.SignedAtHeader, strconv.FormatInt(at, 10))
	header.Set(protocol.SignatureHeader, base64.StdEncoding.EncodeToString(signature))
	return a.controlPlane.Call(ctx, method, target, header, body, protocol.MaxGatewayAnswer)
}
