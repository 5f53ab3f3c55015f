package chat

import (
	"bytes"
	"context"
	"encoding/json"
	"slices"
	"time"

	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/sandbox-agent/internal/approval"
	"github.com/fairlead/fairlead/sandbox-agent/internal/chat/masking"
	"github.com/fairlead/fairlead/sandbox-agent/internal/provider"
	"github.com/fairlead/fairlead/sandbox-agent/internal/redact"
)

// What a coding agent hears of a question that nobody has allowed.
const (
	saysTimeout   = "Permission request timed out" // seed 002
	saysDenied    = "Permission denied"
	saysCancelled = "Permission request cancelled"
	saysUnasked   = "Nobody could be asked: "
)

// ask answers a coding agent's question by the rules, or asks people.
func (o *owner) ask(a provider.Ask) {
	if o.turn.life.State() != protocol.RunRunning {
		o.answer(a.Question, provider.Answer{Message: saysCancelled})
		return
	}
	if !a.Forever && (o.turn.skip || provider.Allowed(o.turn.rules, a.Tool, a.Input)) {
		o.chats.counts.question(questionByRule)
		o.answer(a.Question, provider.Answer{Allow: true})
		return
	}
	input := masking.JSON(o.secrets(), a.Input)
	pending, err := o.chats.o.Approvals.AskTool(approval.ToolRequest{
		Session: o.session, Conversation: o.id, Run: o.turn.command, Tool: a.Tool, Input: input,
		TTL: o.chats.o.Patience, Forever: a.Forever,
	})
	if err != nil {
		o.chats.counts.question(questionRefused)
		o.answer(a.Question, provider.Answer{Message: saysUnasked + protocol.AsError(err).Error()})
		return
	}
	o.show(a, pending, input)
}

// show tells everybody of a question, and waits for its outcome in the
// background.
func (o *owner) show(a provider.Ask, pending *approval.Pending, input json.RawMessage) {
	asked := pending.Approval()
	ctx, cancel := context.WithCancel(context.Background())
	q := &question{id: a.Question, asked: input, cancel: cancel, shown: protocol.Pending{
		RequestID: asked.ID, ToolName: a.Tool, Input: input, Context: masking.JSON(o.secrets(), a.Context), SessionID: o.id,
		ReceivedAt: timestamp(time.UnixMilli(asked.AskedAt)), Revision: asked.Revision,
	}}
	if asked.EndsAt != 0 {
		q.shown.ExpiresAt = timestamp(time.UnixMilli(asked.EndsAt))
	}
	if len(input) > protocol.MaxToolInput {
		q.shown.Input = json.RawMessage("null")
	}
	if len(q.shown.Context) > protocol.MaxToolInput {
		q.shown.Context = nil
	}
	o.turn.questions = append(o.turn.questions, q)
	o.chats.owning.Go(func() { // ends with the question's outcome, or with cancel
		outcome, err := pending.Outcome(ctx)
		if ctx.Err() == nil {
			o.post(func() { o.settled(q, outcome, err) })
		}
	})
	o.tellState()
	o.emit([]protocol.ChatEvent{{
		Kind: protocol.ChatPermissionRequest, ToolName: a.Tool,
		ChatQuestion: protocol.ChatQuestion{
			RequestID: asked.ID, Input: input, Revision: asked.Revision, ExpiresAt: q.shown.ExpiresAt,
		},
	}})
}

// settled passes on what became of a question. The answer is stored before the
// coding agent hears it.
func (o *owner) settled(q *question, outcome approval.Outcome, err error) {
	if !slices.Contains(o.turn.questions, q) {
		return
	}
	end, answer := cancelled(q.shown.RequestID, protocol.CancelledDecided), provider.Answer{Message: saysDenied}
	if err == nil {
		end.From = &protocol.ChatFrom{UserID: outcome.Approval.UserID, GrantID: outcome.Approval.GrantID}
		end.Decision = outcome.Approval.Decision
	}
	switch decided := outcome.Approval; {
	case err == nil && decided.Decision.Allows():
		answer = provider.Answer{Allow: true, UpdatedInput: outcome.UpdatedInput}
		if sameJSON(outcome.UpdatedInput, q.asked) || sameJSON(outcome.UpdatedInput, q.shown.Input) { // what people see is masked
			answer.UpdatedInput = nil
		}
		o.remember(decided, q.shown.ToolName)
	case err == nil:
		if outcome.Message != "" {
			answer.Message = outcome.Message
		}
	case protocol.KindOf(err) == protocol.KindExpired:
		end.Reason, answer.Message = protocol.CancelledTimeout, saysTimeout
	default:
		end.Reason, answer.Message = protocol.CancelledWith, saysCancelled
	}
	o.chats.counts.question(end.Reason)
	o.drop(q, end)
	o.turn.heard = time.Now()
	o.answer(q.id, answer)
}

// remember makes the rules that an answer brings along.
func (o *owner) remember(decided protocol.Approval, tool string) {
	rule := decided.Remember
	if rule == "" && decided.Decision.Lasts() {
		rule = tool
	}
	if rule == "" {
		return
	}
	o.turn.rules = append(o.turn.rules, rule)
	if !decided.Decision.Lasts() {
		return
	}
	if err := o.chats.rules.Add(o.session, rule); err != nil {
		o.chats.o.Log.Warn("a session's rule about a tool is not stored", "session", o.session, "err", err)
	}
}

// drop takes a question off the list and tells everybody by its last event.
func (o *owner) drop(q *question, end protocol.ChatEvent) {
	q.cancel()
	o.turn.questions = slices.DeleteFunc(o.turn.questions, func(other *question) bool { return other == q })
	o.tellState()
	o.sayOr(true, end)
}

// hide hides the secrets of set in the open questions, too.
func (o *owner) hide(set *redact.Set) {
	mask := func(text json.RawMessage) json.RawMessage { return masking.JSON(set, text) }
	changed := false
	for _, q := range o.turn.questions {
		input, context := mask(q.shown.Input), mask(q.shown.Context)
		if bytes.Equal(input, q.shown.Input) && bytes.Equal(context, q.shown.Context) {
			continue
		}
		q.shown.Input, q.shown.Context, changed = input, context, true
		o.chats.o.Approvals.Hide(q.shown.RequestID, mask)
	}
	if changed {
		o.tellState()
	}
}

// cancelQuestions takes back all questions: nobody needs an answer any more.
func (o *owner) cancelQuestions() {
	for len(o.turn.questions) > 0 {
		q := o.turn.questions[0]
		o.chats.o.Approvals.Cancel(q.shown.RequestID)
		o.chats.counts.question(protocol.CancelledWith)
		o.drop(q, cancelled(q.shown.RequestID, protocol.CancelledWith))
	}
}

// withdraw takes back one question, as the coding agent wants.
func (o *owner) withdraw(id string) {
	for _, q := range o.turn.questions {
		if q.id == id {
			o.chats.o.Approvals.Cancel(q.shown.RequestID)
			o.chats.counts.question(protocol.CancelledWith)
			o.drop(q, cancelled(q.shown.RequestID, protocol.CancelledWith))
			return
		}
	}
}

// sameJSON reports whether a and b are equal but for white space.
func sameJSON(a, b json.RawMessage) bool {
	var left, right bytes.Buffer
	return a != nil && json.Compact(&left, a) == nil && json.Compact(&right, b) == nil && bytes.Equal(left.Bytes(), right.Bytes())
}
