package notices

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"math"
	"net/http"
	"time"

	"github.com/fairlead/fairlead/deploy/controlplane/internal/web"
	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/protocol/jws"
	"github.com/fairlead/fairlead/protocol/op"
)

// An ApprovalNews is what a webhook gets of an approval.
type ApprovalNews struct {
	ID          string             `json:"id"` // the same each time this change is told of
	Type        string             `json:"type"`
	Approval    protocol.Approval  `json:"approval"`
	SandboxID   protocol.SandboxID `json:"sandbox_id"`
	DashboardID string             `json:"dashboard_id"`
	SessionID   protocol.SessionID `json:"session_id"`
	At          int64              `json:"at"` // Unix milliseconds, by the sandbox's clock
}

// approvalTypes are the types of the news by the state that it tells of.
var approvalTypes = map[protocol.ApprovalState]string{
	protocol.ApprovalPending:   "approval.asked",
	protocol.ApprovalDecided:   "approval.decided",
	protocol.ApprovalExpired:   "approval.expired",
	protocol.ApprovalCancelled: "approval.cancelled",
}

// postApproval takes a sandbox's notice that an approval was asked for, decided,
// cancelled or has expired. The sandbox owns the approval: nothing is decided here, and
// nothing kept but how far the notices of each approval have come.
func (n *Notices) postApproval(w *web.Writer, r *http.Request) error {
	var req protocol.ApprovalNotice
	if err := web.ReadBody(r, &req); err != nil {
		return err
	}
	sandbox, key, err := n.Sandboxes.Certified(r.Context(), req.Certificate)
	if err != nil {
		return err
	}
	if !jws.VerifyDevice(key.Public, protocol.ApprovalTranscript(sandbox, req.Approval, req.At), req.Signature) {
		return protocol.Errorf(protocol.KindUnauthenticated, "the notice is not signed by the certified key")
	}
	now := n.Clock.Now()
	if age := now.Sub(time.UnixMilli(req.At)); age > protocol.ClockSkew || age < -protocol.ClockSkew {
		return protocol.Errorf(protocol.KindExpired, "the notice was signed more than %s from now", protocol.ClockSkew)
	}
	a, err := parseApproval(req.Approval)
	if err != nil {
		return err
	}
	session, err := n.Store.FindSession(r.Context(), a.SessionID)
	if err == nil && session.Sandbox != sandbox { // others' sessions don't exist for it
		err = protocol.Errorf(protocol.KindNotFound, "no such session")
	}
	if err != nil {
		return err
	}
	news, err := n.progress.take(sandbox, a.ID, a.Revision, req.At, now)
	if err != nil {
		return err
	}
	if news {
		err = n.tellApproval(ApprovalNews{
			ID: noticeID(sandbox, a), Type: approvalTypes[a.State], Approval: a,
			SandboxID: sandbox, DashboardID: session.Dashboard, SessionID: a.SessionID, At: req.At,
		})
	}
	if err != nil {
		return err
	}
	return w.None()
}

// tellApproval passes the news on, if there is somebody to pass it on to.
func (n *Notices) tellApproval(news ApprovalNews) error {
	a := news.Approval
	n.Logger.Debug("approval", "type", news.Type, "approval", a.ID, "revision", a.Revision, "kind", string(a.Kind),
		"decision", string(a.Decision), "user", a.UserID, "sandbox", news.SandboxID, "session", news.SessionID)
	if n.Webhook == nil {
		return nil
	}
	body, err := json.Marshal(news)
	if err == nil {
		n.Webhook.Send(news.ID, body)
	}
	return err
}

// noticeID names a change of an approval, in whatever process it is told of.
func noticeID(sandbox protocol.SandboxID, a protocol.Approval) string {
	sum := sha256.Sum256(fmt.Appendf(nil, "%s %s %d", sandbox, a.ID, a.Revision))
	return "wh_" + hex.EncodeToString(sum[:16])
}

// parseApproval reads an approval as a sandbox describes it, which may be of a
// newer version: members that we don't know are left out, and so is the input of
// a tool, which is for those alone who may answer.
func parseApproval(raw json.RawMessage) (a protocol.Approval, err error) {
	if err := protocol.UnmarshalObject(raw, &a); err != nil {
		return a, protocol.Errorf(protocol.KindInvalid, "approval: %v", err)
	}
	invalid := func(text string) (protocol.Approval, error) {
		return a, protocol.Errorf(protocol.KindInvalid, "approval: %s", text)
	}
	decided := a.State == protocol.ApprovalDecided
	switch {
	case !protocol.ValidID(a.ID):
		return invalid("id is not an id")
	case !protocol.ValidID(a.SessionID):
		return invalid("session_id is not an id")
	case !web.EmptyOrID(a.PTYID), !web.EmptyOrID(a.UserID), !web.EmptyOrID(a.GrantID), !web.EmptyOrID(a.CommandID):
		return invalid("it has a member that is not an id")
	case a.Revision == 0:
		return invalid("revision is missing")
	case !a.Kind.Known():
		return invalid("unknown kind")
	case approvalTypes[a.State] == "":
		return invalid("unknown state")
	case decided && !a.Decision.Known():
		return invalid("unknown decision")
	case !decided && a.Decision != "":
		return invalid("a decision, and it is not decided")
	case a.Port < 0 || a.Port > math.MaxUint16:
		return invalid("port is out of range")
	case a.Secret != "" && protocol.CheckEnvName(a.Secret) != nil:
		return invalid("secret is not the name of a variable")
	}
	a.Input = nil
	if a.Kind == protocol.ApprovalTool {
		return a, checkTool(a)
	}
	if a.ConversationID != "" || a.RunID != "" || a.Tool != "" || a.InputSHA256 != "" || a.Remember != "" {
		return invalid("only a tool's has a member about a tool")
	}
	return a, op.CheckHost("approval: host", a.Host)
}

// Bounds of what is said about tools, in bytes.
const (
	maxToolName = 128
	maxRemember = 512
)

// checkTool checks what is said about a coding agent's tool.
func checkTool(a protocol.Approval) error {
	digest, err := hex.DecodeString(a.InputSHA256)
	switch {
	case !protocol.ValidConversation(a.ConversationID):
		return protocol.Errorf(protocol.KindInvalid, "approval: conversation_id is not the id of a conversation")
	case !web.EmptyOrID(a.RunID):
		return protocol.Errorf(protocol.KindInvalid, "approval: run_id is not an id")
	case a.Tool == "" || len(a.Tool) > maxToolName || len(a.Remember) > maxRemember:
		return protocol.Errorf(protocol.KindInvalid, "approval: tool or remember has the wrong length")
	case a.InputSHA256 != "" && (err != nil || len(digest) != sha256.Size):
		return protocol.Errorf(protocol.KindInvalid, "approval: input_sha256 is not a SHA-256")
	case a.Host != "" || a.Port != 0 || a.Secret != "":
		return protocol.Errorf(protocol.KindInvalid, "approval: a tool's has no host, port or secret")
	}
	return nil
}
