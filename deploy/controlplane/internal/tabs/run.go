package tabs

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/fairlead/fairlead/deploy/controlplane/internal/commands"
	"github.com/fairlead/fairlead/deploy/controlplane/internal/commands/signing"
	"github.com/fairlead/fairlead/deploy/controlplane/internal/store"
	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/protocol/op"
)

const (
	// defaultWait is how long an agent's command may wait for its page, maxWait
	// the longest that an agent may name: a sandbox waits 30 s for its tools.
	defaultWait = 15 * time.Second
	maxWait     = 20 * time.Second
)

// errNotShared says that a tab isn't shared, or isn't any more.
var errNotShared = protocol.Errorf(protocol.KindNotFound, "no such tab is shared with this session: tab_list has those that are")

// A seenTab is a shared tab as agents see it.
type seenTab struct {
	Tab    string    `json:"tab"`
	Of     string    `json:"of"`
	Title  string    `json:"title"`
	URL    string    `json:"url"`
	Shared time.Time `json:"sharedUntil"`
}

// name is how agents call a tab: ids of tabs are a browser's own.
func name(s store.TabShare) string { return s.Browser + "/" + strconv.FormatInt(s.Tab, 10) }

// Run does what an agent of a session asks for. about says in a record what it
// was about.
func (t *Tabs) Run(ctx context.Context, session protocol.SessionID, action string, args json.RawMessage) (answer json.RawMessage, about string, err error) {
	var result any
	switch action {
	case "tabs.list":
		result, err = t.seen(ctx, session, args)
	case "tabs.send":
		result, about, err = t.send(ctx, session, args)
	default:
		return nil, "", protocol.Errorf(protocol.KindInvalid, "tabs has no such action")
	}
	if err != nil {
		return nil, about, err
	}
	answer, err = json.Marshal(result)
	return answer, about, err
}

func (t *Tabs) seen(ctx context.Context, session protocol.SessionID, args json.RawMessage) (any, error) {
	if err := readArgs(args, &struct{}{}); err != nil {
		return nil, err
	}
	shared, err := t.shared(ctx, session)
	list := []seenTab{}
	for _, s := range shared {
		list = append(list, seenTab{name(s), s.Name, s.Title, s.URL, s.ExpiresAt.UTC()})
	}
	return map[string]any{"tabs": list}, err
}

// readArgs reads an agent's arguments.
func readArgs(args json.RawMessage, into any) error {
	if err := protocol.UnmarshalStrict(args, into); err != nil {
		return protocol.Errorf(protocol.KindInvalid, "arguments: %s", strings.TrimPrefix(err.Error(), "json: "))
	}
	return nil
}

// send signs an agent's command in the name of whoever shares the tab, who must
// be allowed to do the same, and answers with its outcome.
func (t *Tabs) send(ctx context.Context, session protocol.SessionID, raw json.RawMessage) (any, string, error) {
	var args struct {
		Tab       string          `json:"tab"`
		Method    string          `json:"method"`
		Params    json.RawMessage `json:"params"`
		TimeoutMs int64           `json:"timeoutMs"`
	}
	if err := readArgs(raw, &args); err != nil {
		return nil, "", err
	}
	wait := defaultWait
	if args.TimeoutMs != 0 {
		wait = time.Duration(args.TimeoutMs) * time.Millisecond
	}
	if wait < time.Second || wait > maxWait {
		return nil, "", protocol.Errorf(protocol.KindInvalid, "timeoutMs: want 1000 to %d", maxWait.Milliseconds())
	}
	shared, err := t.shared(ctx, session)
	if err != nil {
		return nil, "", err
	}
	for _, s := range shared {
		if name(s) == args.Tab {
			return t.sendTo(ctx, s, op.CDPSend{Method: args.Method, Params: args.Params}, wait)
		}
	}
	return nil, "", errNotShared
}

func (t *Tabs) sendTo(ctx context.Context, s store.TabShare, do op.CDPSend, wait time.Duration) (any, string, error) {
	body, err := json.Marshal(op.Op{Kind: op.KindCDPSend, Body: &do})
	if err != nil {
		return nil, "", protocol.Errorf(protocol.KindInvalid, "arguments: params is not JSON")
	}
	ttl := wait.Milliseconds()
	cmd, err := t.Commands.Send(ctx, s.User, commands.Request{
		Target: signing.Target{SessionID: s.Session, ExtensionID: s.Extension, BrowserID: s.Browser, TabID: s.Tab},
		Op:     body, TTLMs: &ttl,
	}, agentKey+strings.ToLower(rand.Text()))
	about := fmt.Sprintf("%.64s in tab %d of %s", do.Method, s.Tab, s.User)
	if err != nil {
		return nil, about, err
	}
	about += ": " + string(cmd.Envelope.CommandID)
	o := cmd.Outcome
	switch {
	case o.Status == protocol.StatusOK:
		return map[string]any{"tab": name(s), "method": do.Method, "response": response(o)}, about, nil
	case o.Status == protocol.StatusUnknown && o.Callback == nil:
		return nil, about, protocol.Errorf(protocol.KindUnknown,
			"no answer from the browser of %s in %d s: the console must be open there, with the extension. Whether it ran isn't known", s.Name, int(wait.Seconds()))
	case o.Status == protocol.StatusUnknown:
		return nil, about, protocol.Errorf(protocol.KindUnknown, "the browser was interrupted: whether it ran isn't known")
	case o.Error == nil:
		return nil, about, protocol.Fault(protocol.KindUpstream, nil)
	case o.Status == store.StatusUndelivered:
		return nil, about, protocol.Errorf(protocol.KindUpstream, "it never reached the browser: %.300s", o.Error.Message)
	}
	return nil, about, protocol.Errorf(protocol.KindUpstream, "the browser refused (%.32s): %.300s", o.Error.Name, o.Error.Message)
}
