package rows

import (
	"encoding/json"

	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/sandbox-agent/internal/provider"
)

// A Stored is a message in a program's database, as the program keeps it.
type Stored struct {
	ID    string            `json:"id"`
	Data  json.RawMessage   `json:"data"`
	Parts []json.RawMessage `json:"parts,omitempty"`
	IDs   []string          `json:"ids,omitempty"` // of the parts
}

type opencodeInfo struct {
	Role string `json:"role"`
	Time struct {
		Created int64 `json:"created"`
	} `json:"time"`
	Tokens *struct {
		Input     int64 `json:"input"`
		Output    int64 `json:"output"`
		Reasoning int64 `json:"reasoning"`
		Cache     struct {
			Read  int64 `json:"read"`
			Write int64 `json:"write"`
		} `json:"cache"`
	} `json:"tokens"`
	Error *struct {
		Name string `json:"name"`
		Data struct {
			Message string `json:"message"`
		} `json:"data"`
	} `json:"error"`
}

type opencodePart struct {
	Type      string `json:"type"`
	Text      string `json:"text"`
	Synthetic bool   `json:"synthetic"`
	Ignored   bool   `json:"ignored"`
	Tool      string `json:"tool"`
	Call      string `json:"callID"`
	Time      struct {
		Start int64 `json:"start"`
	} `json:"time"`
	State struct {
		Status string          `json:"status"`
		Input  json.RawMessage `json:"input"`
		Output string          `json:"output"`
		Error  string          `json:"error"`
	} `json:"state"`
}

// Opencode reads a session of opencode, whose messages are in order.
func Opencode(messages []Stored) Document {
	d := newDrafter()
	for _, m := range messages {
		d.opencode(m)
	}
	return d.doc
}

func (d *drafter) opencode(m Stored) {
	var info opencodeInfo
	if json.Unmarshal(m.Data, &info) != nil {
		return
	}
	texts, at := "", -1
	for i, raw := range m.Parts {
		var p opencodePart
		if json.Unmarshal(raw, &p) != nil {
			continue
		}
		id := m.ID + "_" + p.Type
		if i < len(m.IDs) {
			id = m.IDs[i]
		}
		if p.Type == "text" && !p.Synthetic && !p.Ignored {
			if at < 0 { // all texts of a message are one event, where the first is
				at = len(d.doc.Rows)
				d.say(provider.OpencodeTextID(m.ID), stampMillis(info.Time.Created), protocol.ChatText, info.Role, firstOf(p.Text, "\u2026"))
			}
			texts += p.Text
			continue
		}
		d.opencodePart(&info, &p, id)
	}
	if at >= 0 {
		d.doc.Rows[at].Content = new(cut(texts, maxText))
	}
	if info.Error != nil && info.Error.Name != "MessageAbortedError" {
		d.say(m.ID+"_error", stampMillis(info.Time.Created), protocol.ChatError, "", firstOf(info.Error.Data.Message, info.Error.Name))
	}
	if t := info.Tokens; t != nil && info.Role == "assistant" {
		input := t.Input + t.Cache.Read + t.Cache.Write
		d.doc.About.Usage = &protocol.TokenBudget{
			Used: input + t.Output + t.Reasoning, InputTokens: input, OutputTokens: t.Output, CacheReadTokens: t.Cache.Read,
			CacheCreationTokens: t.Cache.Write, Breakdown: protocol.TokenBreakdown{Input: input, Output: t.Output},
		}
	}
}

// opencodePart adds the rows of a part, which has an id of its own.
func (d *drafter) opencodePart(info *opencodeInfo, p *opencodePart, id string) {
	at := stampMillis(max(info.Time.Created, p.Time.Start))
	switch {
	case p.Type == "reasoning" && p.Text != "":
		d.add(say(id, at, protocol.ChatThinking, "", p.Text))
	case p.Type == "tool" && p.Call != "":
		d.add(use(p.Call, at, p.Tool, p.Call, p.State.Input))
		if p.State.Status == "completed" || p.State.Status == "error" {
			failed := p.State.Status == "error"
			content := p.State.Output
			if failed {
				content = firstOf(p.State.Error, content)
			}
			d.add(result(provider.CallResultID(p.Call), at, p.Call, content, failed))
		}
	}
}
