package files

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"

	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/sandbox-agent/internal/files/workspace"
	"github.com/fairlead/fairlead/sandbox-agent/internal/toolbox"
)

var fileWrite = protocol.Tool{
	Name: "file_write",
	Description: "Write a file of the workspace, as a whole and in one step: whoever reads it reads the old content or the new. " +
		"Folders above it are made.",
	InputSchema: json.RawMessage(`{"type":"object","properties":{
		"path":{"type":"string","description":"The file, from the workspace on."},
		"content":{"type":"string","description":"All of it. What file_read has masked must not be written back."},
		"encoding":{"type":"string","enum":["utf-8","base64"],"description":"How content is told. Default: utf-8."},
		"overwrite":{"type":"boolean","description":"Replace a file that is there. Default: true."},
		"if_match":{"type":"string","description":"The etag that the file must have, as file_read tells it. Default: any."}
	},"required":["path","content"],"additionalProperties":false}`),
}

type fileWriteArgs struct {
	Path      string  `json:"path"`
	Content   *string `json:"content"`
	Encoding  string  `json:"encoding"`
	Overwrite *bool   `json:"overwrite"`
	IfMatch   string  `json:"if_match"`
}

// A fileChange is the answer of what changes a file.
type fileChange struct {
	protocol.FileInfo
	Created bool `json:"created,omitempty"` // there was nothing before
}

func (s tools) write(_ context.Context, caller toolbox.Caller, a fileWriteArgs) (protocol.ToolResult, error) {
	switch {
	case a.Path == "":
		return protocol.ToolResult{}, toolbox.Missing("path")
	case a.Content == nil:
		return protocol.ToolResult{}, toolbox.Missing("content")
	}
	if err := encodingKnown(a.Encoding); err != nil {
		return protocol.ToolResult{}, err
	}
	content := []byte(*a.Content)
	if a.Encoding == "base64" {
		var err error
		if content, err = base64.StdEncoding.DecodeString(*a.Content); err != nil {
			return protocol.ToolResult{}, protocol.Errorf(protocol.KindInvalid, "argument content is not base64")
		}
	}
	o := workspace.WriteOptions{IfMatch: a.IfMatch, NoReplace: a.Overwrite != nil && !*a.Overwrite}
	written, err := s.FS.Write(a.Path, bytes.NewReader(content), o)
	if err != nil {
		return protocol.ToolResult{}, err
	}
	return toolbox.JSON(fileChange{written.Info, written.Created})
}

var fileMkdir = protocol.Tool{
	Name:        "file_mkdir",
	Description: "Make a folder in the workspace, and those above it. One that is there stays as it is.",
	InputSchema: json.RawMessage(`{"type":"object","properties":{
		"path":{"type":"string","description":"The folder, from the workspace on."}
	},"required":["path"],"additionalProperties":false}`),
}

type pathArgs struct {
	Path string `json:"path"`
}

func (s tools) mkdir(_ context.Context, caller toolbox.Caller, a pathArgs) (protocol.ToolResult, error) {
	if a.Path == "" {
		return protocol.ToolResult{}, toolbox.Missing("path")
	}
	info, made, err := s.FS.Mkdir(a.Path)
	if err != nil {
		return protocol.ToolResult{}, err
	}
	return toolbox.JSON(fileChange{info, made})
}

var fileMove = protocol.Tool{
	Name:        "file_move",
	Description: "Move or rename a file or folder of the workspace. Folders above the new place are made.",
	InputSchema: json.RawMessage(`{"type":"object","properties":{
		"from":{"type":"string","description":"What to move, from the workspace on."},
		"to":{"type":"string","description":"Its new path, with its name."},
		"overwrite":{"type":"boolean","description":"Replace a file, or an empty folder, that is there. Default: false."}
	},"required":["from","to"],"additionalProperties":false}`),
}

type fileMoveArgs struct {
	From      string `json:"from"`
	To        string `json:"to"`
	Overwrite bool   `json:"overwrite"`
}

func (s tools) rename(_ context.Context, caller toolbox.Caller, a fileMoveArgs) (protocol.ToolResult, error) {
	switch {
	case a.From == "":
		return protocol.ToolResult{}, toolbox.Missing("from")
	case a.To == "":
		return protocol.ToolResult{}, toolbox.Missing("to")
	}
	info, err := s.move(caller, a.From, a.To, a.Overwrite)
	if err != nil {
		return protocol.ToolResult{}, err
	}
	return toolbox.JSON(info)
}

var fileDelete = protocol.Tool{
	Name:        "file_delete",
	Description: "Delete a file of the workspace, a symlink itself, or a folder with all its content.",
	InputSchema: json.RawMessage(`{"type":"object","properties":{
		"path":{"type":"string","description":"What to delete, from the workspace on."}
	},"required":["path"],"additionalProperties":false}`),
}

func (s tools) remove(ctx context.Context, caller toolbox.Caller, a pathArgs) (protocol.ToolResult, error) {
	if a.Path == "" {
		return protocol.ToolResult{}, toolbox.Missing("path")
	}
	if err := s.FS.Delete(ctx, a.Path); err != nil {
		return protocol.ToolResult{}, err
	}
	return toolbox.Text("deleted"), nil
}
