package tabs

import (
	"encoding/base64"
	"encoding/json"
	"strings"
	"time"

	"github.com/fairlead/fairlead/deploy/controlplane/internal/store"
	"github.com/fairlead/fairlead/deploy/controlplane/internal/web"
	"github.com/fairlead/fairlead/protocol"
)

const (
	maxListed = 50
	// agentKey begins the idempotency keys of what agents ask for.
	agentKey = "agent-tab-"
	// maxShown bounds what is shown of an answer, in bytes.
	maxShown = 2 << 10
)

// A tabBody is a shared tab as the members of its session see it.
type tabBody struct {
	User        protocol.UserID `json:"user"`
	Name        string          `json:"name"`
	BrowserID   string          `json:"browserId"`
	ExtensionID string          `json:"extensionId"`
	TabID       int64           `json:"tabId"`
	Title       string          `json:"title"`
	URL         string          `json:"url"`
	SharedAt    time.Time       `json:"sharedAt"`
	ExpiresAt   time.Time       `json:"expiresAt"`
	Last        *lastBody       `json:"last,omitempty"` // what ran there last
}

type lastBody struct {
	Method string    `json:"method"`
	Status string    `json:"status"`
	At     time.Time `json:"at"`
}

// A ranBody is a command to one's own browser. What others' browsers did is
// theirs alone.
type ranBody struct {
	CommandID  protocol.CommandID  `json:"commandId"`
	By         string              `json:"by"` // "agent" or "person"
	BrowserID  string              `json:"browserId,omitempty"`
	TabID      int64               `json:"tabId"`
	Method     string              `json:"method"`
	Status     string              `json:"status"`
	IssuedAt   time.Time           `json:"issuedAt"`
	TTLMs      int64               `json:"ttlMs"`
	FinishedAt *time.Time          `json:"finishedAt,omitempty"`
	Answer     string              `json:"answer,omitempty"` // the beginning of it
	Error      *protocol.ErrorBody `json:"error,omitempty"`
}

type listAnswer struct {
	Tabs     []tabBody `json:"tabs"`
	Commands []ranBody `json:"commands"`
}

// newAnswer shows user what is shared with a session, and of what ran in people's
// browsers what ran in their own.
func newAnswer(shared []store.TabShare, ran []store.Command, user protocol.UserID) listAnswer {
	answer := listAnswer{[]tabBody{}, []ranBody{}}
	for _, s := range shared {
		body := tabBody{
			s.User, s.Name, s.Browser, s.Extension, s.Tab, s.Title, s.URL, s.SharedAt.UTC(), s.ExpiresAt.UTC(), nil,
		}
		for _, cmd := range ran {
			if at := cmd.Envelope.Target; cmd.User == s.User && at.BrowserID == s.Browser && at.TabID == s.Tab {
				body.Last = &lastBody{method(cmd), cmd.Outcome.Status, time.UnixMilli(cmd.Envelope.IssuedAt).UTC()}
				break
			}
		}
		answer.Tabs = append(answer.Tabs, body)
	}
	for _, cmd := range ran {
		if cmd.User == user {
			answer.Commands = append(answer.Commands, newRanBody(cmd))
		}
	}
	return answer
}

func newRanBody(cmd store.Command) ranBody {
	env := cmd.Envelope
	body := ranBody{
		env.CommandID, "person", env.Target.BrowserID, env.Target.TabID, method(cmd), cmd.Outcome.Status,
		time.UnixMilli(env.IssuedAt).UTC(), env.TTLMs, web.Time(cmd.FinishedAt), "", cmd.Outcome.Error,
	}
	if strings.HasPrefix(cmd.Key, agentKey) {
		body.By = "agent"
	}
	shown := response(cmd.Outcome)
	body.Answer = strings.ToValidUTF8(string(shown[:min(len(shown), maxShown)]), "")
	return body
}

// response returns what the browser answered, nil for nothing.
func response(o store.Outcome) json.RawMessage {
	var result struct {
		Response json.RawMessage `json:"response"`
	}
	if json.Unmarshal(o.Result, &result) != nil {
		return nil
	}
	return result.Response
}

// method returns the DevTools method of a command that we have signed; the
// envelope has it nowhere else.
func method(cmd store.Command) string {
	_, rest, _ := strings.Cut(cmd.Envelope.JWS, ".")
	payload, _, _ := strings.Cut(rest, ".")
	data, err := base64.RawURLEncoding.DecodeString(payload)
	var signed struct {
		Op struct {
			Method string `json:"method"`
		} `json:"op"`
	}
	if err != nil || json.Unmarshal(data, &signed) != nil {
		return ""
	}
	return signed.Op.Method
}
