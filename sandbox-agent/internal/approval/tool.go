package approval

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"time"
	"unicode/utf8"

	"github.com/fairlead/fairlead/protocol"
)

const (
	// maxTools bounds the open questions about tools, and maxToolsEach those of one
	// conversation. Other kinds of questions have places of their own.
	maxTools     = 256
	maxToolsEach = 64
	// maxToolName is the longest name of a tool, in bytes.
	maxToolName = 128
)

// A ToolRequest asks whether a coding agent may use a tool in a conversation.
type ToolRequest struct {
	Session      protocol.SessionID
	Conversation protocol.ConversationID
	Run          protocol.CommandID // that began the run
	Tool         string             // at most 128 bytes
	// Input is what the tool is to do, any JSON value. Its secrets must be masked
	// by the caller: people see it as it is. It is kept in memory while the question
	// is open; the log has its SHA-256.
	Input   json.RawMessage
	TTL     time.Duration // 0: protocol.ToolTTL
	Forever bool          // it waits without limit, and TTL is ignored
}

func (r *ToolRequest) check() error {
	switch {
	case !protocol.ValidID(r.Session), !protocol.ValidConversation(r.Conversation), !protocol.ValidID(r.Run):
		return protocol.Errorf(protocol.KindInvalid, "a tool's approval belongs to a run of a conversation")
	case r.Tool == "" || len(r.Tool) > maxToolName || !utf8.ValidString(r.Tool):
		return protocol.Errorf(protocol.KindInvalid, "a tool has a name of at most %d bytes", maxToolName)
	case r.Input != nil && (!json.Valid(r.Input) || !utf8.Valid(r.Input)):
		return protocol.Errorf(protocol.KindInvalid, "a tool's input is JSON")
	case !r.Forever && r.TTL < 0:
		return protocol.Errorf(protocol.KindInvalid, "an approval can't be pending for %v", r.TTL)
	}
	return nil
}

// AskTool asks somebody to allow r. Two requests are two questions, however
// alike they are. It fails with KindTooMany if 64 questions of the conversation,
// or 256 about tools, are open, with KindNoSpace or KindUnavailable if the
// question can't be stored, and with KindInvalid: none of these is a yes.
func (l *Log) AskTool(r ToolRequest) (*Pending, error) {
	if err := r.check(); err != nil {
		return nil, err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return nil, errClosed
	}
	now := time.Now()
	l.expire(now)
	if l.state.fullOfTools(r.Conversation) {
		l.stats.Refused++
		return nil, protocol.Errorf(protocol.KindTooMany, "too many questions of coding agents are open")
	}
	a := protocol.Approval{
		ID: newID(), Revision: 1, Kind: protocol.ApprovalTool, SessionID: r.Session, State: protocol.ApprovalPending,
		ConversationID: r.Conversation, RunID: r.Run, Tool: r.Tool, InputSHA256: hashOf(r.Input), AskedAt: now.UnixMilli(),
	}
	var deadline time.Time
	if !r.Forever {
		deadline = now.Add(cmp.Or(r.TTL, protocol.ToolTTL))
		a.EndsAt = deadline.UnixMilli()
	}
	if err := l.storeAsked(a); err != nil {
		return nil, err
	}
	return l.asked(l.state.addTool(a, shownInput(r.Input), deadline), now), nil
}

// fullOfTools reports whether there is no room for another question of a
// conversation.
func (s *state) fullOfTools(of protocol.ConversationID) bool {
	all, its := 0, 0
	for _, q := range s.open {
		if q.approval.Kind == protocol.ApprovalTool {
			all++
			if q.approval.ConversationID == of {
				its++
			}
		}
	}
	return all >= maxTools || its >= maxToolsEach
}

// hashOf returns the SHA-256 of a tool's input in hexadecimal, "" without an
// input.
func hashOf(input json.RawMessage) string {
	if input == nil {
		return ""
	}
	sum := sha256.Sum256(input)
	return hex.EncodeToString(sum[:])
}

// shownInput returns a tool's input as messages hold it, nil if that is too
// large. JSON in JSON is escaped, and may grow.
func shownInput(input json.RawMessage) json.RawMessage {
	if input == nil {
		return nil
	}
	if encoded := line(input); len(encoded) <= protocol.MaxToolInput {
		return encoded
	}
	return nil
}

// Hide has mask change what an open question about a tool shows from now on: some
// of it has become a secret.
func (l *Log) Hide(id string, mask func(json.RawMessage) json.RawMessage) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if q := l.state.open[id]; q != nil && q.input != nil {
		q.input = mask(q.input)
	}
}

// Cancel takes back a question about a tool, and reports whether it was open:
// whoever has decided, and the end of its time, come before.
func (l *Log) Cancel(id string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return false
	}
	now := time.Now()
	l.expire(now)
	q := l.state.open[id]
	if q == nil || q.approval.Kind != protocol.ApprovalTool {
		return false
	}
	l.end(l.session(q.approval.SessionID), []protocol.Approval{cancelled(q.approval, now.UnixMilli())})
	l.schedule()
	return true
}
