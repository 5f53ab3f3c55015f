package browser

import (
	"context"
	"encoding/json"

	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/protocol/jws"
	"github.com/fairlead/fairlead/protocol/op"
	"github.com/fairlead/fairlead/sandbox-agent/internal/feature"
	"github.com/fairlead/fairlead/sandbox-agent/internal/mask"
)

// maxCDPResult bounds Chromium's answer to cdp.send, in bytes: it is stored
// with the command, and sent in one frame.
const maxCDPResult = 64 << 10

// A Sender sends messages of the DevTools protocol to sessions' browsers.
// [Browser] is one.
type Sender interface {
	// CDP sends a message and returns the result. It starts Chromium if there is
	// none. It fails with KindForbidden for a method that isn't allowed, and with
	// KindInvalid if Chromium refuses.
	CDP(ctx context.Context, session protocol.SessionID, message op.CDPSend) (json.RawMessage, error)
}

// Operations are those on a session's browser.
func (b *Browser) Operations() feature.Operations { return Operations(b, b.opts.Secrets) }

// Operations are those on the browsers of s. Answers are masked.
func Operations(s Sender, secrets *mask.Secrets) feature.Operations {
	return feature.Operations{
		op.KindCDPSend: feature.Do(func(ctx context.Context, c *jws.Command, body *op.CDPSend) (protocol.OpResult, error) {
			result := feature.Done(c)
			answer, err := s.CDP(ctx, c.Target.SessionID, *body)
			answer = secrets.Mask(answer)
			if err == nil && len(answer) > maxCDPResult {
				err = protocol.Errorf(protocol.KindTooLarge,
					"the browser answers with %d bytes, %d fit: ask for less, or use the browser tools", len(answer), maxCDPResult)
			}
			if err == nil {
				result.CDP = answer
			}
			return result, err
		}),
	}
}
