package executor

import (
	"context"
	"encoding/json"

	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/protocol/jws"
)

// maxCDPResult bounds what cdp.send tells of Chromium's answer, in bytes: it is
// kept with the command, and travels in one frame.
const maxCDPResult = 64 << 10

// A Browser is the Chromium that each session may have. Package browser
// implements it.
type Browser interface {
	// CDP sends a message of the debugger's protocol and returns the result. It
	// starts Chromium if there is none. It fails with KindForbidden for a method
	// that isn't allowed, and with KindInvalid for what Chromium refuses.
	CDP(ctx context.Context, session protocol.SessionID, message protocol.CDPSend) (json.RawMessage, error)
}

func (x *Executor) parseCDP(command *jws.Command) (operation, error) {
	var op struct {
		plain
		protocol.CDPSend
	}
	if err := decode(command, &op); err != nil {
		return nil, err
	}
	return func(ctx context.Context) (protocol.OpResult, error) {
		result := done(command)
		answer, err := x.Browser.CDP(ctx, command.Target.SessionID, op.CDPSend)
		if err == nil && len(answer) > maxCDPResult {
			err = protocol.Errorf(protocol.KindTooLarge,
				"the browser answers with %d bytes, %d fit: ask for less, or use the browser tools", len(answer), maxCDPResult)
		}
		if err == nil {
			result.CDP = answer
		}
		return result, err
	}, nil
}

// parseIntegrationsChanged returns at once: what a terminal has is asked for
// afterwards.
func (x *Executor) parseIntegrationsChanged(command *jws.Command) (operation, error) {
	if err := decode(command, &plain{}); err != nil {
		return nil, err
	}
	return func(context.Context) (protocol.OpResult, error) {
		x.IntegrationsChanged(command.Target.SessionID, command.Target.PTYID)
		return done(command), nil
	}, nil
}
