package signing

import (
	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/protocol/op"
)

// A Target is a command's target as a caller may spell it.
type Target struct {
	SandboxID    protocol.SandboxID `json:"sandboxId"`
	SessionID    protocol.SessionID `json:"sessionId"`
	PTYID        protocol.PTYID     `json:"ptyId"`
	ExtensionID  string             `json:"extensionId"`
	TabID        int64              `json:"tabId"`
	SandboxID2   protocol.SandboxID `json:"sandbox_id"`
	SessionID2   protocol.SessionID `json:"session_id"`
	PTYID2       protocol.PTYID     `json:"pty_id"`
	ExtensionID2 string             `json:"extension_id"`
	TabID2       int64              `json:"tab_id"`
	BrowserID    string             `json:"browserId"`
	BrowserID2   string             `json:"browser_id"`
}

func (t *Target) resolve() (resolved protocol.CommandTarget, err error) {
	if resolved.SandboxID, err = either("sandboxId", t.SandboxID, t.SandboxID2); err != nil {
		return resolved, err
	}
	if resolved.SessionID, err = either("sessionId", t.SessionID, t.SessionID2); err != nil {
		return resolved, err
	}
	if resolved.PTYID, err = either("ptyId", t.PTYID, t.PTYID2); err != nil {
		return resolved, err
	}
	if resolved.ExtensionID, err = either("extensionId", t.ExtensionID, t.ExtensionID2); err != nil {
		return resolved, err
	}
	if resolved.BrowserID, err = either("browserId", t.BrowserID, t.BrowserID2); err != nil {
		return resolved, err
	}
	resolved.TabID = t.TabID
	switch {
	case resolved.BrowserID != "" && !op.ValidBrowserID(resolved.BrowserID):
		return resolved, protocol.Errorf(protocol.KindInvalid, "target.browserId is no installation of the extension")
	case t.TabID < 0 || t.TabID2 < 0:
		return resolved, protocol.Errorf(protocol.KindInvalid, "target.tabId is negative")
	case t.TabID == 0:
		resolved.TabID = t.TabID2
	case t.TabID2 != 0 && t.TabID2 != t.TabID:
		return resolved, protocol.Errorf(protocol.KindInvalid, "target.tabId is given twice")
	}
	return resolved, nil
}

// either returns the one id that was given under its two names.
func either[T ~string](field string, camel, snake T) (T, error) {
	id := camel
	if id == "" {
		id = snake
	}
	switch {
	case snake != "" && snake != id:
		return "", protocol.Errorf(protocol.KindInvalid, "target.%s is given twice", field)
	case id != "" && !protocol.ValidID(id):
		return "", protocol.Errorf(protocol.KindInvalid, "target.%s is not an id", field)
	}
	return id, nil
}

// checkTarget reports an id that an operation wants and t lacks, or has and must
// not.
func checkTarget(spec op.Spec, t protocol.CommandTarget) error {
	kind, form := spec.Kind, spec.Target
	if form == op.TargetNewSession {
		if t.SandboxID == "" || t != (protocol.CommandTarget{SandboxID: t.SandboxID}) {
			return protocol.Errorf(protocol.KindInvalid, "%s wants target.sandboxId alone: the control plane makes session ids", kind)
		}
		return nil
	}
	switch {
	case t.SessionID == "":
		return protocol.Errorf(protocol.KindInvalid, "%s wants target.sessionId", kind)
	case form == op.TargetTerminal && t.PTYID == "":
		return protocol.Errorf(protocol.KindInvalid, "%s wants target.ptyId", kind)
	case (form == op.TargetSession || form == op.TargetBrowser) && t.PTYID != "":
		return protocol.Errorf(protocol.KindInvalid, "%s takes no target.ptyId", kind)
	case form == op.TargetBrowser && t.ExtensionID == "" && t.TabID != 0:
		return protocol.Errorf(protocol.KindInvalid, "%s wants target.extensionId beside target.tabId", kind)
	case form == op.TargetBrowser && t.ExtensionID == "" && t.BrowserID != "":
		return protocol.Errorf(protocol.KindInvalid, "%s wants target.extensionId beside target.browserId", kind)
	case form != op.TargetBrowser && (t.ExtensionID != "" || t.TabID != 0 || t.BrowserID != ""):
		return protocol.Errorf(protocol.KindInvalid, "%s takes no target.extensionId, target.tabId or target.browserId", kind)
	}
	return nil
}
