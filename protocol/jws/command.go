package jws

import (
	"encoding/json"
	"time"

	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/protocol/op"
)

// A Command is one action that the control plane wants executed once (seed 003
// §6.1). It holds everything that affects the execution.
type Command struct {
	Issuer    string                 `json:"iss"`
	Audience  string                 `json:"aud"`
	CommandID protocol.CommandID     `json:"commandId"`
	TraceID   protocol.TraceID       `json:"traceId"`
	IssuedAt  int64                  `json:"issuedAt"` // Unix milliseconds
	TTLMs     int64                  `json:"ttlMs"`    // 1 … [protocol.MaxCommandTTL], in milliseconds
	Target    protocol.CommandTarget `json:"target"`
	Op        json.RawMessage        `json:"op"` // an object; "kind" says which operation
	Reply     *Reply                 `json:"reply,omitempty"`
	GrantID   protocol.GrantID       `json:"grantId,omitempty"` // the grant under which it was asked for
	UserID    protocol.UserID        `json:"userId,omitempty"`  // who asked for it
}

// Reply says where to send a command's outcome. Whoever carries the command can
// read CallbackToken.
type Reply struct {
	URL           string `json:"url"`
	CallbackToken string `json:"callbackToken"`
}

// The member names that are read from a command, by object. An executor decodes
// the op again, so all operations' members are included.
var (
	commandNames = vocabularyOf(protocol.MemberNames(Command{}))
	targetNames  = vocabularyOf(protocol.MemberNames(protocol.CommandTarget{}))
	replyNames   = vocabularyOf(protocol.MemberNames(Reply{}))
	opNames      = vocabularyOf(op.Names())
)

// Kind returns the operation, op.kind; empty when there is none.
func (c *Command) Kind() string {
	return op.KindOf(c.Op)
}

// Deadline returns a verified command's expiry, without the skew.
func (c *Command) Deadline() time.Time {
	return time.UnixMilli(c.IssuedAt).Add(time.Duration(c.TTLMs) * time.Millisecond)
}

// openCommand applies steps 8 to 14 of README.md to a token that passed the
// profile. With a failure of kind expired it also returns the command.
func openCommand(t Token, audience string, now time.Time) (*Command, error) {
	if err := checkCommandType(t.Type, audience); err != nil {
		return nil, err
	}
	members, err := parseObject(t.Payload)
	if err != nil {
		return nil, refused("command: payload: %s", err)
	}
	if err := checkCommandNames(members); err != nil {
		return nil, refused("command: payload: %s", err)
	}
	if err := checkParties(members, audience); err != nil {
		return nil, refused("command: %s", err)
	}
	// An unknown member might be meant to restrict us. An op's executor checks its
	// members itself.
	if commandNames.foreign(members) != "" || targetNames.foreignIn(members, "target") != "" ||
		replyNames.foreignIn(members, "reply") != "" {
		return nil, protocol.Errorf(protocol.KindInvalid, "command: it has a member of no meaning here")
	}
	var c Command
	if err := json.Unmarshal(t.Payload, &c); err != nil {
		return nil, protocol.Errorf(protocol.KindInvalid, "command: a member has the wrong type")
	}
	if err := c.check(); err != nil {
		return nil, err
	}
	if time.UnixMilli(c.IssuedAt).After(now.Add(Skew)) {
		return nil, refused("command: issued in the future")
	}
	if now.After(c.Deadline().Add(Skew)) {
		return &c, protocol.Errorf(protocol.KindExpired, "command: expired")
	}
	return &c, nil
}

// checkCommandType checks typ. Seed 003 doesn't mention it, so a command for a
// browser extension may lack it; a wrong one is always refused.
func checkCommandType(typ, audience string) error {
	if typ == TypeCommand || typ == "" && audience != AudienceAgent {
		return nil
	}
	return refused("command: typ must be %s", TypeCommand)
}

func checkCommandNames(members map[string]json.RawMessage) error {
	if err := commandNames.check(members); err != nil {
		return err
	}
	if err := targetNames.checkMember(members, "target"); err != nil {
		return err
	}
	if err := replyNames.checkMember(members, "reply"); err != nil {
		return err
	}
	return opNames.checkMember(members, "op")
}

// check applies the rules that need nothing but the command. Its errors are of
// kind invalid.
func (c *Command) check() error {
	t := c.Target
	switch {
	case !protocol.ValidID(c.CommandID):
		return protocol.Errorf(protocol.KindInvalid, "command: commandId is not an id")
	case !protocol.ValidID(c.TraceID):
		return protocol.Errorf(protocol.KindInvalid, "command: traceId is not an id")
	case !validOrEmpty(t.SandboxID), !validOrEmpty(t.SessionID), !validOrEmpty(t.PTYID), !validOrEmpty(t.ExtensionID), !validOrEmpty(t.BrowserID):
		return protocol.Errorf(protocol.KindInvalid, "command: target has a member that is not an id")
	case !validOrEmpty(c.GrantID):
		return protocol.Errorf(protocol.KindInvalid, "command: grantId is not an id")
	case !validOrEmpty(c.UserID):
		return protocol.Errorf(protocol.KindInvalid, "command: userId is not an id")
	case c.Kind() == "":
		return protocol.Errorf(protocol.KindInvalid, "command: op must be an object with a kind")
	case c.TTLMs <= 0 || c.TTLMs > protocol.MaxCommandTTL.Milliseconds():
		return protocol.Errorf(protocol.KindInvalid, "command: ttlMs must be from 1 to %d", protocol.MaxCommandTTL.Milliseconds())
	}
	return nil
}

func validOrEmpty[T ~string](id T) bool { return id == "" || protocol.ValidID(id) }
