package provider

import (
	"encoding/json"
)

// A codexAsk is an open question of codex's: how to answer it.
type codexAsk struct {
	id  json.RawMessage
	way codexWay
	of  codexRequest
}

// A codexWay is a form of answers.
type codexWay int

const (
	codexDecision    codexWay = iota // accept or decline
	codexPermissions                 // what was asked for, or nothing
	codexAction                      // accept or decline, with a form that is filled in
	codexAnswers                     // by question
)

// free reports whether the updated input is the answer.
func (a codexAsk) free() bool {
	return a.way == codexAnswers || a.way == codexAction && !a.of.aboutTool()
}

// A codexRequest is what requests of interest have.
type codexRequest struct {
	ItemID  string          `json:"itemId"`
	Reason  *string         `json:"reason"`
	Command *string         `json:"command"`
	Cwd     *string         `json:"cwd"`
	Network json.RawMessage `json:"networkApprovalContext"`

	Permissions json.RawMessage `json:"permissions"`

	ServerName string          `json:"serverName"`
	Message    string          `json:"message"`
	URL        string          `json:"url"`
	Schema     json.RawMessage `json:"requestedSchema"`
	Meta       *struct {
		Kind       string          `json:"codex_approval_kind"`
		Tool       string          `json:"tool_name"`
		ToolParams json.RawMessage `json:"tool_params"`
	} `json:"_meta"`

	Questions []codexQuestion `json:"questions"`
}

type codexQuestion struct {
	ID       string `json:"id"`
	Header   string `json:"header"`
	Question string `json:"question"`
	Options  []struct {
		Label       string `json:"label"`
		Description string `json:"description"`
	} `json:"options"`
}

func (p codexRequest) command() json.RawMessage {
	input := map[string]any{}
	if p.Command != nil {
		input["command"] = unwrapped(*p.Command)
	}
	if len(p.Network) > 0 && string(p.Network) != "null" {
		input["network"] = p.Network
	}
	return object(input)
}

func (p codexRequest) context() json.RawMessage {
	more := map[string]any{}
	if p.Reason != nil {
		more["reason"] = *p.Reason
	}
	if p.Cwd != nil {
		more["cwd"] = *p.Cwd
	}
	if len(more) == 0 {
		return nil
	}
	return object(more)
}

// aboutTool reports whether codex itself asks about a tool of an MCP server.
func (p codexRequest) aboutTool() bool { return p.Meta != nil && p.Meta.Kind == "mcp_tool_call" }

// codexQuestionOf returns the question that a request of codex's is: false, if it
// is something that we don't do. changes are those of the item that it concerns.
func codexQuestionOf(m rpcMessage, p codexRequest, changes json.RawMessage) (Ask, codexAsk, bool) {
	how := codexAsk{id: m.ID, of: p}
	a := Ask{Question: string(m.ID), Context: p.context()}
	switch m.Method {
	case "item/commandExecution/requestApproval":
		a.Tool, a.Input = bashTool, p.command()
	case "item/fileChange/requestApproval":
		a.Tool, a.Input = "FileChanges", object(map[string]any{"changes": orNull(changes)})
	case "item/permissions/requestApproval":
		how.way = codexPermissions
		a.Tool, a.Input = "Permissions", object(map[string]any{"permissions": orNull(p.Permissions)})
	case "mcpServer/elicitation/request":
		how.way = codexAction
		a.Tool, a.Input = p.elicitation()
		a.Context = object(map[string]any{"reason": p.Message})
	case "item/tool/requestUserInput":
		how.way = codexAnswers
		a.Tool, a.Input, a.Forever = "AskUserQuestion", p.interview(), true
	default:
		return Ask{}, codexAsk{}, false
	}
	return a, how, true
}

// elicitation returns what an MCP server wants to know: mostly codex itself wants
// to know whether a tool of it may be used. What has a form is answered by the
// member content of the updated input.
func (p codexRequest) elicitation() (tool string, input json.RawMessage) {
	if p.aboutTool() {
		if input = p.Meta.ToolParams; null(input) {
			input = json.RawMessage("{}")
		}
		return CodexMCPTool(p.ServerName, p.Meta.Tool), input
	}
	form := map[string]any{"message": p.Message, "requestedSchema": orNull(p.Schema)}
	if p.URL != "" {
		form["url"] = p.URL
	}
	return "Elicitation", object(form)
}

// interview returns questions with answers to choose from, in the form that
// clients know (AskUserQuestion): the answers come back by question, in the
// updated input's member answers.
func (p codexRequest) interview() json.RawMessage {
	list := []any{}
	for _, q := range p.Questions {
		options := []any{}
		for _, o := range q.Options {
			options = append(options, map[string]any{"label": o.Label, "description": o.Description})
		}
		list = append(list, map[string]any{"question": q.Question, "header": q.Header, "options": options, "multiSelect": false})
	}
	return object(map[string]any{"questions": list})
}

// result returns what a person's answer is to codex.
func (a codexAsk) result(said Answer) any {
	switch a.way {
	case codexPermissions:
		if !said.Allow {
			return map[string]any{"permissions": map[string]any{}, "scope": "turn"}
		}
		return map[string]any{"permissions": orNull(a.of.Permissions), "scope": "turn"}
	case codexAction:
		if !said.Allow {
			return map[string]any{"action": "decline", "content": nil}
		}
		var form struct {
			Content json.RawMessage `json:"content"`
		}
		if !a.free() || !parse(said.UpdatedInput, &form) || null(form.Content) {
			form.Content = json.RawMessage("{}")
		}
		return map[string]any{"action": "accept", "content": form.Content}
	case codexAnswers:
		return map[string]any{"answers": a.of.answers(said)}
	}
	if said.Allow {
		return map[string]any{"decision": "accept"}
	}
	return map[string]any{"decision": "decline"}
}

// answers returns the answers to questions, by their ids. A denial has none.
func (p codexRequest) answers(said Answer) map[string]any {
	var given struct {
		Answers map[string]string `json:"answers"`
	}
	answers := map[string]any{}
	if !said.Allow || !parse(said.UpdatedInput, &given) {
		return answers
	}
	for _, q := range p.Questions {
		if text, ok := given.Answers[q.Question]; ok {
			answers[q.ID] = map[string]any{"answers": []string{text}}
		}
	}
	return answers
}
