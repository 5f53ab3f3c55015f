package browser

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"time"

	"github.com/chromedp/cdproto"
	"github.com/chromedp/cdproto/cdp/jsonv2"

	"github.com/fairlead/fairlead/protocol"
)

const (
	// cdpTimeout bounds a method that a person calls.
	cdpTimeout = 30 * time.Second
	// maxCDPAnswer bounds its answer, in bytes: it travels in one frame.
	maxCDPAnswer = 64 << 10
)

// CDP carries out cdp.send on the session's tab, and returns what Chromium
// answered. Its errors are of kind forbidden for a method that isn't allowed,
// invalid for params that aren't, upstream for what Chromium itself refuses,
// and too large for an answer over 64 KiB.
func (b *Browser) CDP(ctx context.Context, session protocol.SessionID, send protocol.CDPSend) (json.RawMessage, error) {
	params, err := checkCDP(send)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, startTimeout+cdpTimeout)
	defer cancel()
	c, release, err := b.use(ctx, session)
	if err != nil {
		return nil, err
	}
	defer release()
	ctx, cancel = context.WithTimeout(ctx, cdpTimeout)
	defer cancel()
	done, err := c.page.act(ctx)
	if err != nil {
		return nil, err
	}
	defer done()
	var answer jsonv2.Value
	if err := c.page.target.Call(ctx, send.Method, params, &answer); err != nil {
		if tooLarge(err) {
			return nil, errCDPTooLarge
		}
		return nil, c.page.why(ctx, err)
	}
	if len(answer) > maxCDPAnswer {
		return nil, errCDPTooLarge
	}
	return json.RawMessage(answer), nil
}

var errCDPTooLarge = protocol.Errorf(protocol.KindTooLarge, "the answer has more than %d KiB", maxCDPAnswer>>10)

// tooLarge reports whether err is that of an answer over maxAnswer.
func tooLarge(err error) bool {
	var said *cdproto.Error
	return errors.As(err, &said) && said.Code == tooLargeCode
}

// checkCDP returns the params to send, or why they aren't.
func checkCDP(send protocol.CDPSend) (any, error) {
	allowed, ok := allowedCDP[send.Method]
	if !ok {
		return nil, protocol.Errorf(protocol.KindForbidden, "the method %.100q is not allowed on the sandbox's browser", send.Method)
	}
	params := map[string]json.RawMessage{}
	if text := bytes.TrimSpace(send.Params); len(text) > 0 && !bytes.Equal(text, []byte("null")) {
		if err := protocol.UnmarshalStrict(text, &params); err != nil {
			return nil, protocol.Errorf(protocol.KindInvalid, "params must be an object")
		}
	}
	// Only what is known of a method is sent: the next Chromium may add a member
	// that reads files.
	kept := make(map[string]jsonv2.Value, len(params))
	for name, value := range params {
		if !allowed.has(name) {
			return nil, protocol.Errorf(protocol.KindForbidden, "%s may not be called with the member %.100q", send.Method, name)
		}
		kept[name] = jsonv2.Value(value)
	}
	if allowed.url != "" {
		var address string
		if err := json.Unmarshal(params[allowed.url], &address); err != nil {
			return nil, protocol.Errorf(protocol.KindInvalid, "%s needs a URL", send.Method)
		}
		if err := checkURL(address); err != nil {
			return nil, err
		}
	}
	return kept, nil
}
