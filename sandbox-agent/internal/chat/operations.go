package chat

import (
	"cmp"
	"context"
	"encoding/hex"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/protocol/chatsocket"
	"github.com/fairlead/fairlead/protocol/jws"
	"github.com/fairlead/fairlead/protocol/op"
	"github.com/fairlead/fairlead/sandbox-agent/internal/feature"
	"github.com/fairlead/fairlead/sandbox-agent/internal/provider"
)

// Operations implements [feature.Operator].
func (c *Chats) Operations() feature.Operations {
	return feature.Operations{
		op.KindChatCreate: feature.Do(c.create),
		op.KindChatSend:   feature.Do(c.send),
		op.KindChatAbort:  feature.Do(c.abort),
	}
}

func done(command *jws.Command, id protocol.ConversationID) protocol.OpResult {
	result := feature.Done(command)
	result.ConversationID = id
	return result
}

// create makes a conversation.
func (c *Chats) create(_ context.Context, command *jws.Command, body *op.ChatCreate) (protocol.OpResult, error) {
	name := strings.ToLower(strings.TrimSpace(body.Provider))
	if _, known := provider.ByName(c.o.Providers, name); !known {
		return protocol.OpResult{}, fault(protocol.ChatUnsupportedProvider, "Unsupported provider %q.", name)
	}
	path, err := c.within(strings.TrimSpace(body.ProjectPath))
	if err != nil {
		return protocol.OpResult{}, err
	}
	info, err := c.Create(ConversationInfo{
		ID: body.Conversation, Session: command.Target.SessionID, Provider: name, ProjectPath: path, Title: strings.TrimSpace(body.Title),
	})
	if err != nil {
		return protocol.OpResult{}, err
	}
	return done(command, info.ID), nil
}

// within returns a path in or below the workspace, absolute and without links. It
// need not exist. It fails with KindForbidden.
func (c *Chats) within(path string) (string, error) {
	if !filepath.IsAbs(path) {
		path = filepath.Join(c.o.Workspace, path)
	}
	path = filepath.Clean(path)
	if below(c.given, path) { // as people know the workspace
		path = filepath.Join(c.o.Workspace, strings.TrimPrefix(path, c.given))
	}
	real, rest := path, ""
	for {
		resolved, err := filepath.EvalSymlinks(real)
		if err == nil {
			real = filepath.Join(resolved, rest)
			break
		}
		if _, there := os.Lstat(real); there == nil || real == filepath.Dir(real) { // a link that leads nowhere, or a loop
			return "", outside()
		}
		real, rest = filepath.Dir(real), filepath.Join(filepath.Base(real), rest)
	}
	if !below(c.o.Workspace, real) {
		return "", outside()
	}
	return real, nil
}

func outside() error {
	return fault(protocol.ChatForbidden, "A conversation works in or below the workspace.")
}

// below reports whether path is dir or below it.
func below(dir, path string) bool {
	return path == dir || strings.HasPrefix(path, strings.TrimSuffix(dir, "/")+"/")
}

// send begins a run with a person's message.
func (c *Chats) send(_ context.Context, command *jws.Command, body *op.ChatSend) (protocol.OpResult, error) {
	session := command.Target.SessionID
	if key, ok := keyOf(command, body); ok {
		defer c.messages.used(key)
	}
	info, err := c.Get(session, body.Conversation)
	if err != nil {
		c.counts.refused(err)
		return protocol.OpResult{}, err
	}
	if err := c.sendIn(command, body, info, ""); err != nil {
		c.counts.refused(err)
		return protocol.OpResult{}, err
	}
	return done(command, body.Conversation), nil
}

// Remember implements [feature.Rememberer]. A message was sent if the log has it:
// that comes first.
func (c *Chats) Remember(command *jws.Command, body op.Body) (result protocol.OpResult, err error, known bool) {
	message, ok := body.(*op.ChatSend)
	if !ok {
		return result, nil, false
	}
	var sent bool
	err = c.ask(command.Target.SessionID, message.Conversation, func(o *owner) error {
		sent, known = o.log.Has(command.CommandID, time.UnixMilli(command.IssuedAt))
		return nil
	})
	switch {
	case err != nil || !known:
		return result, nil, false
	case !sent:
		return result, fault(protocol.ChatUnavailable, "The sandbox restarted before it had the message. Send it again."), true
	}
	return done(command, message.Conversation), nil, true
}

// sendIn is send for a conversation that there is. The owner is asked first, so
// that nothing is read or stored in vain.
func (c *Chats) sendIn(command *jws.Command, body *op.ChatSend, info ConversationInfo, context string) error {
	dir, err := c.within(cmp.Or(body.Options.Cwd, info.ProjectPath))
	if err != nil {
		return err
	}
	busy := info.Native != "" && c.o.Programs.Resumed(info.Session, info.Native)
	err = c.ask(info.Session, info.ID, func(o *owner) error {
		_, err := o.maySend(command.UserID, busy)
		return err
	})
	if err != nil {
		return err
	}
	s, err := c.sending(command, body, info, dir)
	if err == nil {
		s.busy, s.turn.Context = busy, context
		err = c.ask(info.Session, info.ID, func(o *owner) error { return o.send(s) })
	}
	if err != nil {
		s.files.remove()
	}
	return err
}

// sending reads the message of a command, for a coding agent that works in dir.
func (c *Chats) sending(command *jws.Command, body *op.ChatSend, info ConversationInfo, dir string) (s sending, err error) {
	message, err := c.message(command, body)
	if err != nil {
		return s, err
	}
	images, shown, err := imageSource{info.Session, c.o.Assets}.read(message)
	if err != nil {
		return s, fault(protocol.ChatInternalError, "%s", chatsocket.Sentence(protocol.AsError(err).Error()))
	}
	if at, err := os.Stat(dir); err != nil || !at.IsDir() {
		return s, fault(protocol.ChatInternalError, "The folder of session %q isn't there.", info.ID)
	}
	s = sending{
		command: command.CommandID, user: command.UserID, grant: command.GrantID, name: body.SenderName, own: body.ClientMessageID,
		start: provider.Start{
			Native: info.Native, Dir: dir, Model: body.Options.Model, Mode: body.Options.PermissionMode,
			AllowedTools: body.Options.AllowedTools, DisallowedTools: body.Options.DisallowedTools, SkipPermissions: body.Options.SkipPermissions,
		},
		turn: provider.Turn{ID: uuid.NewString(), Content: message.Content, Images: images}, images: shown,
	}
	if len(images) == 0 {
		return s, nil
	}
	if s.files, err = putImages(dir, s.turn.ID, s.turn.Images); err != nil {
		return s, fault(protocol.ChatUnavailable, "An image can't be stored: %s.", diskError(err))
	}
	return s, nil
}

// message returns the message of a command, by value or as it was put before.
func (c *Chats) message(command *jws.Command, body *op.ChatSend) (protocol.ChatMessage, error) {
	if body.Message != nil {
		return *body.Message, nil
	}
	key, ok := keyOf(command, body)
	if !ok {
		return protocol.ChatMessage{}, fault(protocol.ChatInternalError, "The message's hash is no SHA-256.")
	}
	text, ok := c.messages.get(key, time.Now())
	if !ok {
		return protocol.ChatMessage{}, fault(protocol.ChatUnavailable, errMessageGone)
	}
	return decodeMessage(text)
}

// keyOf returns under which key the message of a command was put. It reports
// false for one that comes by value, or that nobody can have put.
func keyOf(command *jws.Command, body *op.ChatSend) (key messageKey, ok bool) {
	key = messageKey{session: command.Target.SessionID, conversation: body.Conversation, user: command.UserID}
	if body.Message != nil || len(body.MessageSHA256) != hex.EncodedLen(len(key.sum)) {
		return key, false
	}
	_, err := hex.Decode(key.sum[:], []byte(body.MessageSHA256))
	return key, err == nil
}

// abort stops a run.
func (c *Chats) abort(_ context.Context, command *jws.Command, body *op.ChatAbort) (protocol.OpResult, error) {
	err := c.ask(command.Target.SessionID, body.Conversation, func(o *owner) error { return o.abort(command.UserID) })
	if err != nil {
		c.counts.refused(err)
		return protocol.OpResult{}, err
	}
	return done(command, body.Conversation), nil
}
