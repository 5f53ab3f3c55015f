package files

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"io"
	"unicode/utf8"

	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/sandbox-agent/internal/files/workspace"
	"github.com/fairlead/fairlead/sandbox-agent/internal/toolbox"
)

const (
	defaultFiles = 1000
	maxFiles     = 10_000
	defaultRead  = 64 << 10
	maxRead      = 1 << 20
)

var fileList = protocol.Tool{
	Name:        "file_list",
	Description: "List a folder of the workspace: name, path, type, size and time of each file in it.",
	InputSchema: json.RawMessage(`{"type":"object","properties":{
		"path":{"type":"string","description":"The folder, from the workspace on. Default: the workspace."},
		"recursive":{"type":"boolean","description":"List all that is below it as well. Default: false."},
		"limit":{"type":"integer","minimum":1,"maximum":10000,"description":"How many files at most. Default: 1000."}
	},"additionalProperties":false}`),
}

type fileListArgs struct {
	Path      string `json:"path"`
	Recursive bool   `json:"recursive"`
	Limit     *int64 `json:"limit"`
}

// A fileListing is the answer of file_list.
type fileListing struct {
	Files     []protocol.FileInfo `json:"files"`
	Truncated bool                `json:"truncated,omitempty"` // there are more
}

var errEnough = errors.New("enough")

func (s tools) list(ctx context.Context, caller toolbox.Caller, a fileListArgs) (protocol.ToolResult, error) {
	limit := int64(defaultFiles)
	if a.Limit != nil {
		limit = *a.Limit
	}
	if err := toolbox.Within("limit", limit, 1, maxFiles); err != nil {
		return protocol.ToolResult{}, err
	}
	answer := fileListing{Files: []protocol.FileInfo{}}
	err := s.FS.List(ctx, orTop(a.Path), a.Recursive, func(info protocol.FileInfo) error {
		if answer.Truncated = int64(len(answer.Files)) == limit; answer.Truncated {
			return errEnough
		}
		answer.Files = append(answer.Files, info)
		return nil
	})
	if err != nil && !answer.Truncated {
		return protocol.ToolResult{}, err
	}
	return toolbox.JSON(answer)
}

var fileRead = protocol.Tool{
	Name: "file_read",
	Description: "Read a file of the workspace. The answer's second part says where to go on when there is more, " +
		"and the etag with which file_write replaces just what was read. There is none where it says masked: " +
		"secrets are asterisks then, which must not be written back.",
	InputSchema: json.RawMessage(`{"type":"object","properties":{
		"path":{"type":"string","description":"The file, from the workspace on."},
		"offset":{"type":"integer","minimum":0,"description":"The first byte to read. Default: 0."},
		"limit":{"type":"integer","minimum":1,"maximum":1048576,"description":"How many bytes at most. Default: 65536."},
		"encoding":{"type":"string","enum":["utf-8","base64"],"description":"How the content is told; base64 for what isn't text. Default: utf-8."}
	},"required":["path"],"additionalProperties":false}`),
}

type fileReadArgs struct {
	Path     string `json:"path"`
	Offset   int64  `json:"offset"`
	Limit    *int64 `json:"limit"`
	Encoding string `json:"encoding"`
}

// A fileNote is what file_read says about what it has read.
type fileNote struct {
	Path   string `json:"path"`
	Offset int64  `json:"offset"`
	Next   int64  `json:"next_offset,omitempty"` // absent: there is no more
	Size   *int64 `json:"size,omitempty"`        // of the file in bytes; absent of a masked one
	ETag   string `json:"etag,omitempty"`        // absent of a masked one
	Masked bool   `json:"masked,omitempty"`      // secrets are masked: it must not be written back
}

func (s tools) read(ctx context.Context, caller toolbox.Caller, a fileReadArgs) (protocol.ToolResult, error) {
	limit := int64(defaultRead)
	if a.Limit != nil {
		limit = *a.Limit
	}
	switch err := errors.Join(toolbox.Within("limit", limit, 1, maxRead), toolbox.Within("offset", a.Offset, 0, 1<<53), encodingKnown(a.Encoding)); {
	case a.Path == "":
		return protocol.ToolResult{}, toolbox.Missing("path")
	case err != nil:
		return protocol.ToolResult{}, err
	}
	f, err := s.FS.Open(a.Path)
	if err != nil {
		return protocol.ToolResult{}, err
	}
	defer f.Close()
	piece, note, err := s.piece(ctx, caller, f, a.Offset, limit)
	if err != nil {
		return protocol.ToolResult{}, err
	}
	if a.Encoding == "base64" {
		return toolbox.TextAndJSON(base64.StdEncoding.EncodeToString(s.hide(piece, &note)), note)
	}
	if !whole(&piece, &note) {
		return protocol.ToolResult{}, protocol.Errorf(protocol.KindInvalid, "this is not text: read it with the encoding base64")
	}
	return toolbox.TextAndJSON(string(s.hide(piece, &note)), note)
}

// hide masks secrets in a piece of a file whose name isn't marked, or whose reader
// may set secrets: no answer holds a secret. The note then says masked, so that
// the caller doesn't write the piece back.
func (s tools) hide(piece []byte, note *fileNote) []byte {
	if note.Masked || s.Redact == nil {
		return piece
	}
	masker := s.Redact()
	told := masker.Flush(masker.Write(nil, piece))
	if !bytes.Equal(told, piece) {
		note.Masked, note.Size, note.ETag = true, nil, ""
	}
	return told
}

// whole cuts a character off the end of piece that goes on behind it. It returns
// false when that isn't text.
func whole(piece *[]byte, note *fileNote) bool {
	if note.Next > 0 {
		cut := split(*piece)
		*piece, note.Next = (*piece)[:len(*piece)-cut], note.Next-int64(cut)
		if len(*piece) == 0 {
			return false // not even one character: it would be read again and again
		}
	}
	return utf8.Valid(*piece) && bytes.IndexByte(*piece, 0) < 0
}

// piece reads part of f. An offset counts in what the caller sees: in a masked
// file it would else tell of the content behind the mask.
func (s tools) piece(ctx context.Context, caller toolbox.Caller, f *workspace.File, offset, limit int64) ([]byte, fileNote, error) {
	note := fileNote{Path: f.Info.Path, Offset: offset}
	var r io.Reader
	if r, note.Masked = s.content(ctx, caller, f); note.Masked {
		if _, err := io.CopyN(io.Discard, r, offset); err != nil && !errors.Is(err, io.EOF) {
			return nil, note, err
		}
	} else {
		note.Size, note.ETag = &f.Info.Size, f.Info.ETag
		if _, err := f.Seek(offset, io.SeekStart); err != nil {
			return nil, note, err
		}
	}
	piece, err := io.ReadAll(io.LimitReader(r, limit+1)) // one more, to see whether there is
	if int64(len(piece)) > limit {
		piece, note.Next = piece[:limit], offset+limit
	}
	return piece, note, err
}

// split returns how many bytes at the end of p begin a character that isn't whole.
func split(p []byte) int {
	for n := 1; n < utf8.UTFMax && n <= len(p); n++ {
		if rest := p[len(p)-n:]; utf8.RuneStart(rest[0]) {
			if utf8.FullRune(rest) {
				return 0
			}
			return n
		}
	}
	return 0
}

func encodingKnown(name string) error {
	if name == "" || name == "utf-8" || name == "base64" {
		return nil
	}
	return protocol.Errorf(protocol.KindInvalid, "argument encoding is neither utf-8 nor base64")
}

// content returns a reader of f as caller may see it, which fails once ctx ends.
func (s tools) content(ctx context.Context, caller toolbox.Caller, f *workspace.File) (r io.Reader, isMasked bool) {
	r = &untilDone{ctx, f}
	if !s.secret(caller, f.Name, f.Info.Name) || s.Redact == nil {
		return r, false
	}
	return newMasked(r, s.Redact()), true
}

// untilDone reads until its context ends.
type untilDone struct {
	ctx  context.Context
	from io.Reader
}

func (u *untilDone) Read(b []byte) (int, error) {
	if u.ctx.Err() != nil {
		return 0, protocol.Errorf(protocol.KindUnavailable, "there was not enough time")
	}
	return u.from.Read(b)
}
