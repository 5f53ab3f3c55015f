package browser

import (
	"context"
	"encoding/json"
	"time"

	"github.com/chromedp/cdproto/cdp/jsonv2"

	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/protocol/op"
	"github.com/fairlead/fairlead/sandbox-agent/internal/browser/pipe"
	"github.com/fairlead/fairlead/sandbox-agent/internal/browser/roster"
)

const (
	// cdpTimeout bounds a person's call of a method.
	cdpTimeout = 30 * time.Second
	// maxCDPAnswer bounds its answer, in bytes: it travels in one frame.
	maxCDPAnswer = 64 << 10
)

// CDP runs cdp.send on a tab of the session, and returns Chromium's answer. Its
// errors are of kind forbidden for a method that isn't allowed, invalid for bad
// params, upstream if Chromium itself refuses, and too large for an answer over
// 64 KiB.
func (b *Browser) CDP(ctx context.Context, session protocol.SessionID, send op.CDPSend) (json.RawMessage, error) {
	params, err := checkCDP(send)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, startTimeout+cdpTimeout)
	defer cancel()
	want := roster.Want{Tab: send.Tab}
	c, t, release, err := b.use(ctx, session, want)
	if err != nil {
		return nil, err
	}
	defer release()
	p, err := t.page(ctx, c, want)
	if err != nil {
		return nil, err
	}
	ctx, cancel = p.during(ctx, cdpTimeout)
	defer cancel()
	done, err := p.act(ctx)
	if err != nil {
		return nil, err
	}
	defer done()
	var answer jsonv2.Value
	if err := p.target.Call(ctx, send.Method, params, &answer); err != nil {
		if pipe.TooLarge(err) {
			return nil, errCDPTooLarge
		}
		return nil, p.why(ctx, err)
	}
	if len(answer) > maxCDPAnswer {
		return nil, errCDPTooLarge
	}
	return json.RawMessage(answer), nil
}

var errCDPTooLarge = protocol.Errorf(protocol.KindTooLarge, "the answer has more than %d KiB", maxCDPAnswer>>10)

// checkCDP returns the checked params to send.
func checkCDP(send op.CDPSend) (map[string]jsonv2.Value, error) {
	params, err := op.CheckCDP(send.Method, send.Params)
	if err != nil {
		return nil, err
	}
	kept := make(map[string]jsonv2.Value, len(params))
	for name, value := range params {
		kept[name] = jsonv2.Value(value)
	}
	return kept, nil
}
