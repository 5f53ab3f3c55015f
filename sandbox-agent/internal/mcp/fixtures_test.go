//lint:file-ignore SA1019 the suite tests what the newest version of the protocol deprecates

package mcp

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/sandbox-agent/internal/toolbox"
)

// What the conformance suite wants a server to have, by name and content. Texts
// and pictures are tools of ours; what MCP has beyond our tools is added to the
// SDK's server.

// dot is a PNG of one pixel, and silence a WAV without a sample.
var (
	dot, _     = base64.StdEncoding.DecodeString("iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mP8z8BQDwAEhQGAhKmMIQAAAABJRU5ErkJggg==")
	silence, _ = base64.StdEncoding.DecodeString("UklGRiQAAABXQVZFZm10IBAAAAABAAEARKwAAIhYAQACABAAZGF0YQAAAAA=")
)

const schema2020 = `{
	"$schema": "https://json-schema.org/draft/2020-12/schema", "type": "object",
	"$defs": {"address": {"type": "object", "properties": {"street": {"type": "string"}, "city": {"type": "string"}}}},
	"properties": {"name": {"type": "string"}, "address": {"$ref": "#/$defs/address"}}, "additionalProperties": false
}`

// fixtures are the tools of the suite that are like ours.
func fixtures() []toolbox.Tool {
	answer := func(result protocol.ToolResult, err error) func(context.Context, toolbox.Caller, json.RawMessage) (protocol.ToolResult, error) {
		return func(context.Context, toolbox.Caller, json.RawMessage) (protocol.ToolResult, error) {
			return result, err
		}
	}
	picture := protocol.ToolResult{Content: []protocol.ToolContent{{Type: "image", Data: dot, MIMEType: "image/png"}}}
	strict := tool("json_schema_2020_12_tool", "", echo)
	strict.InputSchema = json.RawMessage(schema2020)
	return []toolbox.Tool{
		tool("test_simple_text", "", answer(toolbox.Text("This is a simple text response for testing."), nil)),
		tool("test_image_content", "", answer(picture, nil)),
		tool("test_error_handling", "", answer(protocol.ToolResult{}, errors.New("This tool intentionally returns an error for testing"))),
		strict,
	}
}

// newConformanceWorld returns a world with what the suite wants.
//
//nolint:staticcheck // see above
func newConformanceWorld(t *testing.T) *world {
	nothing := func(ctx context.Context) error { return nil }
	return newWorld(t, func(o *Options) {
		o.Sets = []toolbox.Set{&shelf{tools: fixtures()}}
		o.adjust = func(opts *sdk.ServerOptions) {
			opts.Capabilities.Logging = &sdk.LoggingCapabilities{}
			opts.SubscribeHandler = func(ctx context.Context, _ *sdk.SubscribeRequest) error { return nothing(ctx) }
			opts.UnsubscribeHandler = func(ctx context.Context, _ *sdk.UnsubscribeRequest) error { return nothing(ctx) }
			opts.CompletionHandler = func(context.Context, *sdk.CompleteRequest) (*sdk.CompleteResult, error) {
				return &sdk.CompleteResult{Completion: sdk.CompletionResultDetails{Values: []string{}}}, nil
			}
		}
		o.extend = func(server *sdk.Server) {
			addContents(server)
			addConversations(server)
			addResources(server)
			addPrompts(server)
		}
	})
}

func said(format string, args ...any) *sdk.CallToolResult {
	return &sdk.CallToolResult{Content: []sdk.Content{&sdk.TextContent{Text: fmt.Sprintf(format, args...)}}}
}

func resource(uri, kind, text string) *sdk.EmbeddedResource {
	return &sdk.EmbeddedResource{Resource: &sdk.ResourceContents{URI: uri, MIMEType: kind, Text: text}}
}

type none struct{}

// addContents adds tools whose results hold what ours never do.
func addContents(server *sdk.Server) {
	add := func(name string, content ...sdk.Content) {
		sdk.AddTool(server, &sdk.Tool{Name: name, Description: "Answers with content of some kind."},
			func(context.Context, *sdk.CallToolRequest, none) (*sdk.CallToolResult, any, error) {
				return &sdk.CallToolResult{Content: content}, nil, nil
			})
	}
	add("test_audio_content", &sdk.AudioContent{Data: silence, MIMEType: "audio/wav"})
	add("test_embedded_resource", resource("test://embedded-resource", "text/plain", "This is an embedded resource content."))
	add("test_multiple_content_types", &sdk.TextContent{Text: "Multiple content types test:"},
		&sdk.ImageContent{Data: dot, MIMEType: "image/png"},
		resource("test://mixed-content-resource", "application/json", `{"test":"data","value":123}`))
}

// addConversations adds tools that tell or ask their client something meanwhile.
//
//nolint:staticcheck // see above
func addConversations(server *sdk.Server) {
	add := func(name string, call func(context.Context, *sdk.CallToolRequest) (*sdk.CallToolResult, error)) {
		sdk.AddTool(server, &sdk.Tool{Name: name, Description: "Talks with its client."},
			func(ctx context.Context, req *sdk.CallToolRequest, _ any) (*sdk.CallToolResult, any, error) {
				result, err := call(ctx, req)
				return result, nil, err
			})
	}
	add("test_tool_with_logging", func(ctx context.Context, req *sdk.CallToolRequest) (*sdk.CallToolResult, error) {
		for _, text := range []string{"Tool execution started", "Tool processing data", "Tool execution completed"} {
			req.Session.Log(ctx, &sdk.LoggingMessageParams{Level: "info", Data: text})
			<-time.After(50 * time.Millisecond)
		}
		return said("logged"), nil
	})
	add("test_tool_with_progress", func(ctx context.Context, req *sdk.CallToolRequest) (*sdk.CallToolResult, error) {
		for _, progress := range []float64{0, 50, 100} {
			if token := req.Params.GetProgressToken(); token != nil {
				req.Session.NotifyProgress(ctx, &sdk.ProgressNotificationParams{ProgressToken: token, Progress: progress, Total: 100})
			}
			<-time.After(50 * time.Millisecond)
		}
		return said("done"), nil
	})
	add("test_reconnection", func(_ context.Context, req *sdk.CallToolRequest) (*sdk.CallToolResult, error) {
		req.Extra.CloseSSEStream(sdk.CloseSSEStreamArgs{RetryAfter: 100 * time.Millisecond})
		<-time.After(200 * time.Millisecond)
		return said("reconnected"), nil
	})
	add("test_sampling", func(ctx context.Context, req *sdk.CallToolRequest) (*sdk.CallToolResult, error) {
		var args struct{ Prompt string }
		if err := json.Unmarshal(req.Params.Arguments, &args); err != nil {
			return nil, err
		}
		made, err := req.Session.CreateMessage(ctx, &sdk.CreateMessageParams{
			Messages: []*sdk.SamplingMessage{{Role: "user", Content: &sdk.TextContent{Text: args.Prompt}}}, MaxTokens: 100,
		})
		if err != nil {
			return nil, err
		}
		text, _ := made.Content.(*sdk.TextContent)
		return said("LLM response: %s", text.Text), nil
	})
	for name, schema := range map[string]string{
		"test_elicitation":                  elicitName,
		"test_elicitation_sep1034_defaults": elicitDefaults,
		"test_elicitation_sep1330_enums":    elicitEnums,
	} {
		add(name, func(ctx context.Context, req *sdk.CallToolRequest) (*sdk.CallToolResult, error) {
			var args struct{ Message string }
			if err := json.Unmarshal(req.Params.Arguments, &args); err != nil {
				return nil, err
			}
			answer, err := req.Session.Elicit(ctx, &sdk.ElicitParams{Message: args.Message + ".", RequestedSchema: json.RawMessage(schema)})
			if err != nil {
				return nil, err
			}
			return said("Elicitation completed: action=%s, content=%v", answer.Action, answer.Content), nil
		})
	}
}

const (
	elicitName = `{"type":"object","properties":{
		"username":{"type":"string","description":"User's response"},
		"email":{"type":"string","description":"User's email address"}},"required":["username","email"]}`
	elicitDefaults = `{"type":"object","properties":{
		"name":{"type":"string","default":"John Doe"},"age":{"type":"integer","default":30},
		"score":{"type":"number","default":95.5},"verified":{"type":"boolean","default":true},
		"status":{"type":"string","enum":["active","inactive","pending"],"default":"active"}}}`
	elicitEnums = `{"type":"object","properties":{
		"untitledSingle":{"type":"string","enum":["option1","option2","option3"]},
		"titledSingle":{"type":"string","oneOf":[{"const":"value1","title":"First Option"},{"const":"value2","title":"Second Option"},{"const":"value3","title":"Third Option"}]},
		"legacyEnum":{"type":"string","enum":["opt1","opt2","opt3"],"enumNames":["Option One","Option Two","Option Three"]},
		"untitledMulti":{"type":"array","items":{"type":"string","enum":["option1","option2","option3"]}},
		"titledMulti":{"type":"array","items":{"anyOf":[{"const":"value1","title":"First Choice"},{"const":"value2","title":"Second Choice"},{"const":"value3","title":"Third Choice"}]}}}}`
)

func addResources(server *sdk.Server) {
	read := func(contents sdk.ResourceContents) sdk.ResourceHandler {
		return func(_ context.Context, req *sdk.ReadResourceRequest) (*sdk.ReadResourceResult, error) {
			found := contents
			found.URI = req.Params.URI
			id := strings.TrimSuffix(strings.TrimPrefix(found.URI, "test://template/"), "/data")
			found.Text = strings.ReplaceAll(found.Text, "ID", id)
			return &sdk.ReadResourceResult{Contents: []*sdk.ResourceContents{&found}}, nil
		}
	}
	for name, contents := range map[string]sdk.ResourceContents{
		"static-text":      {MIMEType: "text/plain", Text: "This is the content of the static text resource."},
		"static-binary":    {MIMEType: "image/png", Blob: dot},
		"watched-resource": {MIMEType: "text/plain", Text: "Watched."},
	} {
		server.AddResource(&sdk.Resource{
			URI: "test://" + name, Name: name, Description: "A resource.", MIMEType: contents.MIMEType,
		}, read(contents))
	}
	server.AddResourceTemplate(
		&sdk.ResourceTemplate{URITemplate: "test://template/{id}/data", Name: "template", Description: "Many resources.", MIMEType: "application/json"},
		read(sdk.ResourceContents{MIMEType: "application/json", Text: `{"id":"ID","templateTest":true,"data":"Data for ID"}`}))
}

func addPrompts(server *sdk.Server) {
	add := func(name string, args []string, answer func(map[string]string) []sdk.Content) {
		prompt := &sdk.Prompt{Name: name, Description: "A prompt."}
		for _, arg := range args {
			prompt.Arguments = append(prompt.Arguments, &sdk.PromptArgument{Name: arg, Description: "An argument.", Required: true})
		}
		server.AddPrompt(prompt, func(_ context.Context, req *sdk.GetPromptRequest) (*sdk.GetPromptResult, error) {
			result := &sdk.GetPromptResult{}
			for _, content := range answer(req.Params.Arguments) {
				result.Messages = append(result.Messages, &sdk.PromptMessage{Role: "user", Content: content})
			}
			return result, nil
		})
	}
	text := func(format string, args ...any) sdk.Content {
		return &sdk.TextContent{Text: fmt.Sprintf(format, args...)}
	}
	add("test_simple_prompt", nil, func(map[string]string) []sdk.Content {
		return []sdk.Content{text("This is a simple prompt for testing.")}
	})
	add("test_prompt_with_arguments", []string{"arg1", "arg2"}, func(args map[string]string) []sdk.Content {
		return []sdk.Content{text("Prompt with arguments: arg1='%s', arg2='%s'", args["arg1"], args["arg2"])}
	})
	add("test_prompt_with_embedded_resource", []string{"resourceUri"}, func(args map[string]string) []sdk.Content {
		return []sdk.Content{
			resource(args["resourceUri"], "text/plain", "Embedded resource content for testing."),
			text("Please process the embedded resource above."),
		}
	})
	add("test_prompt_with_image", nil, func(map[string]string) []sdk.Content {
		return []sdk.Content{&sdk.ImageContent{Data: dot, MIMEType: "image/png"}, text("Please analyze the image above.")}
	})
}
