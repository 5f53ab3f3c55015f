package chatapi

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"time"

	"github.com/fairlead/fairlead/deploy/program/pause"
	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/protocol/chatsocket"
	"github.com/fairlead/fairlead/protocol/jws"
	"github.com/fairlead/fairlead/protocol/op"
	"github.com/fairlead/fairlead/relay/internal/chathub"
	"github.com/fairlead/fairlead/relay/internal/dispatch"
	"github.com/fairlead/fairlead/relay/internal/webapp"
)

// A sending is one chat.send on its way.
type sending struct {
	c     *client
	q     chatsocket.Request
	grant *jws.Grant
	token string
	began time.Time
	key   string // idempotency key of its first command
	try   int    // which one it is now, see resends
}

// send has a message sent, or says why it isn't. It goes on when the client leaves.
func (c *client) send(q chatsocket.Request) {
	s := sending{c: c, q: q, began: time.Now()}
	s.key = s.firstKey()
	s.grant, s.token = c.socket.Grant()
	ctx, cancel := context.WithTimeout(context.Background(), commandTimeout)
	defer cancel()
	if fault, refused := s.do(ctx); refused {
		c.refuse(fault, q.SessionID, q.ClientMessageID)
		return
	}
	c.api.Metrics.Send.Observe(time.Since(s.began).Seconds())
}

// do makes the checks in the order of the seed, ours among them, then has the
// message signed and sends it. The sandbox checks all of it again.
func (s *sending) do(ctx context.Context) (protocol.ChatFault, bool) {
	id := s.q.SessionID
	state, err := s.c.stateOf(ctx, id)
	if err != nil && !away(err) {
		return faultOf(err, id), true
	}
	options := optionsOf(s.q.Options)
	if !s.allows(protocol.CapChat) || options.Lifts() && !s.allows(protocol.CapApprove) {
		return chatsocket.NewFault(protocol.ChatForbidden, string(id)), true
	}
	fault, refused, busy := maySend(state, err, id)
	if refused && (!busy || !s.maybeSent(state)) {
		return fault, true
	}
	if err := s.c.socket.Attach(ctx, id); err != nil && s.c.ctx.Err() == nil {
		return faultOf(err, id), true
	}
	env, err := s.sign(ctx, options)
	switch {
	case reused(err):
		return signFault(err, id), true
	case refused && err == nil && s.known(env.CommandID, state):
		return protocol.ChatFault{}, false // what runs is this very message
	case refused:
		return fault, true
	case err != nil:
		return signFault(err, id), true
	}
	if !s.c.echo.Load() {
		s.c.expect(env.CommandID)
	}
	if s.q.ClientMessageID != "" {
		s.c.api.resends.sends(s.grant.Subject, s.key)
	}
	_, err = s.c.api.carry(ctx, env)
	if _, said := chatsocket.ParseFault(err); said && s.q.ClientMessageID != "" {
		s.c.api.resends.refused(s.grant.Subject, s.key, s.try)
	}
	if err != nil {
		return unsent(err, id), true
	}
	return protocol.ChatFault{}, false
}

// maybeSent reports whether a message may have been sent before: what runs has its
// name, or it came here. Any other isn't signed in vain, so that its command is no
// older than the message's way to the sandbox.
func (s *sending) maybeSent(state chathub.State) bool {
	return s.q.ClientMessageID != "" && (state.ClientMessageID == s.q.ClientMessageID || s.c.api.resends.knows(s.grant.Subject, s.key))
}

func (s *sending) allows(need protocol.Capability) bool {
	return s.grant.Allows(s.c.session, "", need)
}

// known reports whether a message that can't be sent now was sent before: it is
// what runs, or this relay knows what became of it.
func (s *sending) known(id protocol.CommandID, state chathub.State) bool {
	if state.CommandID == id || state.ClientMessageID != "" && state.ClientMessageID == s.q.ClientMessageID {
		return true
	}
	record, ok := s.c.api.Dispatcher.Lookup(id)
	if !ok {
		return false
	}
	select {
	case <-record.Done:
		return record.Err == nil && record.Status() == protocol.StatusOK
	default:
		return true
	}
}

// sign puts a large message into the sandbox and has the command signed.
func (s *sending) sign(ctx context.Context, options op.ChatOptions) (protocol.CommandEnvelope, error) {
	body := &op.ChatSend{Conversation: s.q.SessionID, ClientMessageID: s.q.ClientMessageID, Options: options}
	message := &protocol.ChatMessage{Content: s.q.Content, Images: s.q.Images}
	inline, err := json.Marshal(message)
	if err != nil {
		return protocol.CommandEnvelope{}, protocol.Fault(protocol.KindInvalid, err)
	}
	var raw []byte
	if body.Message = message; len(inline) > protocol.MaxChatInline {
		raw = unescaped(message)
		sum := sha256.Sum256(raw)
		body.Message, body.MessageSHA256 = nil, hex.EncodeToString(sum[:])
	}
	if err := body.Check(); err != nil {
		return protocol.CommandEnvelope{}, err
	}
	if body.Message == nil {
		if err := s.c.api.putMessage(ctx, s.grant, s.token, s.c.session, body, raw); err != nil {
			return protocol.CommandEnvelope{}, err
		}
	}
	who := webapp.Caller{Grant: s.grant, Token: s.token, Session: s.c.session}
	do := op.Op{Kind: op.KindChatSend, Body: body}
	env, err := s.c.api.sign(ctx, who, do, s.key) // it fails for another message of this name
	var again string
	if s.try, again = s.c.api.resends.next(s.grant.Subject, s.key); err == nil && s.try > 0 {
		env, err = s.c.api.sign(ctx, who, do, again)
	}
	return env, err
}

// unescaped returns a message as JSON whose < > & are written as they are, which
// otherwise are six bytes each: a page of HTML might be too large then.
func unescaped(m *protocol.ChatMessage) []byte {
	var text bytes.Buffer
	e := json.NewEncoder(&text)
	e.SetEscapeHTML(false)
	if e.Encode(m) != nil {
		panic("chatapi: a message can't be encoded") // it was before
	}
	return bytes.TrimSuffix(text.Bytes(), []byte("\n"))
}

// firstKey returns the idempotency key of the message's first command: that of its
// own name in its conversation, or a random one.
func (s *sending) firstKey() string {
	if s.q.ClientMessageID == "" {
		return rand.Text()
	}
	sum := sha256.Sum256([]byte(string(s.c.session) + "\x00" + string(s.q.SessionID) + "\x00" + s.q.ClientMessageID))
	return "chat-" + hex.EncodeToString(sum[:])
}

// optionsOf returns options as the operation has them.
func optionsOf(o chatsocket.Options) op.ChatOptions {
	return op.ChatOptions{
		Model: o.Model, PermissionMode: o.PermissionMode, Cwd: o.Cwd,
		AllowedTools: o.AllowedTools, DisallowedTools: o.DisallowedTools, SkipPermissions: o.SkipPermissions,
	}
}

// away reports whether nobody could be asked: the sandbox isn't connected, or has
// too much to do.
func away(err error) bool {
	switch protocol.KindOf(err) {
	case protocol.KindNotFound, protocol.KindEnded, protocol.KindInvalid,
		protocol.KindForbidden, protocol.KindUnauthenticated, protocol.KindExpired:
		return false
	}
	return true
}

// abort stops a conversation's run, or says why it doesn't.
func (c *client) abort(q chatsocket.Request) {
	grant, token := c.socket.Grant()
	ctx, cancel := context.WithTimeout(context.Background(), commandTimeout)
	defer cancel()
	if fault, refused := c.tryAbort(ctx, q.SessionID, grant, token); refused {
		c.refuse(fault, q.SessionID, "")
	}
}

func (c *client) tryAbort(ctx context.Context, id protocol.ConversationID, grant *jws.Grant, token string) (protocol.ChatFault, bool) {
	state, err := c.stateOf(ctx, id)
	fault, refused := mayAbort(state, err, id, grant.Allows(c.session, "", protocol.CapChat), grant.Allows(c.session, "", protocol.CapAdmin))
	if refused {
		return fault, true
	}
	who := webapp.Caller{Grant: grant, Token: token, Session: c.session}
	env, err := c.api.sign(ctx, who, op.Op{Kind: op.KindChatAbort, Body: &op.ChatAbort{Conversation: id}}, rand.Text())
	if err != nil {
		return signFault(err, id), true
	}
	if _, err = c.api.carry(ctx, env); err != nil {
		return faultOf(err, id), true
	}
	return protocol.ChatFault{}, false
}

// signTimeout bounds the wait for the control plane, which signs within
// milliseconds, or hangs. It is a variable so that a test can change it.
var signTimeout = 10 * time.Second

// sign has an operation on a session's conversations signed.
func (a *API) sign(ctx context.Context, c webapp.Caller, do op.Op, key string) (protocol.CommandEnvelope, error) {
	ctx, cancel := context.WithTimeout(ctx, signTimeout)
	defer cancel()
	return a.Signer.Sign(ctx, dispatch.SignRequest{
		Grant: c.Token, Op: do, IdempotencyKey: key,
		Target: protocol.CommandTarget{SandboxID: c.Grant.Sandbox, SessionID: c.Session},
	})
}

// askAgain is how long the same command isn't sent again after nobody knew what
// became of it. It is a variable so that a test can change it.
var askAgain = time.Second

// carry runs a signed command. While nobody knows what became of it, it sends the
// same command again, which runs only once.
func (a *API) carry(ctx context.Context, env protocol.CommandEnvelope) (protocol.OpResult, error) {
	for {
		result, err := a.Dispatcher.Run(ctx, env)
		if protocol.KindOf(err) != protocol.KindUnknown || errors.Is(err, dispatch.ErrRestarted) || pause.For(ctx, askAgain) != nil {
			return result, err
		}
	}
}

// reused reports whether a command was not signed because another one has its key.
func reused(err error) bool {
	_, carried := chatsocket.ParseFault(err)
	return !carried && protocol.KindOf(err) == protocol.KindConflict
}

// signFault returns why a command was not signed.
func signFault(err error, id protocol.ConversationID) protocol.ChatFault {
	if reused(err) {
		return protocol.ChatFault{Code: protocol.ChatInternalError, Text: "This clientMessageId was used for another message."}
	}
	return faultOf(err, id)
}
