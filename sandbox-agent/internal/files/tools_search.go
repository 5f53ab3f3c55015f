package files

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"path"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/sandbox-agent/internal/toolbox"
)

const (
	defaultMatches  = 100
	maxMatches      = 1000
	maxQueryBytes   = 4096
	maxLineBytes    = 64 << 10 // of a line that is searched
	maxExcerptBytes = 400      // of one that is told
	maxSearched     = 16 << 20 // bytes of a file; larger ones are left out
	maxEntries      = 100_000  // of folders that are looked at
	searchWithin    = 30 * time.Second
)

// aside are the folders that are left out.
var aside = []string{".git", "node_modules"}

var fileSearch = protocol.Tool{
	Name: "file_search",
	Description: "Search the text files of the workspace, line by line. Files over 16 MiB, " +
		"and those that hold no text, are left out; so are folders called .git and node_modules below path.",
	InputSchema: json.RawMessage(`{"type":"object","properties":{
		"query":{"type":"string","description":"What a line must hold."},
		"regexp":{"type":"boolean","description":"query is a regular expression, in RE2 syntax. Default: false."},
		"ignore_case":{"type":"boolean","description":"Default: false."},
		"path":{"type":"string","description":"The folder to search, from the workspace on. Default: the workspace."},
		"name":{"type":"string","description":"A pattern for names of files, such as *.go. Default: all."},
		"limit":{"type":"integer","minimum":1,"maximum":1000,"description":"How many lines at most. Default: 100."}
	},"required":["query"],"additionalProperties":false}`),
}

type fileSearchArgs struct {
	Query      string `json:"query"`
	Regexp     bool   `json:"regexp"`
	IgnoreCase bool   `json:"ignore_case"`
	Path       string `json:"path"`
	Name       string `json:"name"`
	Limit      *int64 `json:"limit"`
}

// A fileMatch is a line that was found.
type fileMatch struct {
	Path string `json:"path"`
	Line int    `json:"line"` // from 1
	Text string `json:"text"` // at most maxExcerptBytes of it
}

// A searchAnswer is the answer of file_search.
type searchAnswer struct {
	Matches   []fileMatch `json:"matches"`
	Files     int         `json:"files"`               // that were searched
	Truncated string      `json:"truncated,omitempty"` // why there may be more
}

// A searching is one call of file_search.
type searching struct {
	files   tools
	caller  toolbox.Caller
	pattern *regexp.Regexp
	name    string
	limit   int
	seen    int // entries of folders
	answer  searchAnswer
}

func (s tools) search(ctx context.Context, caller toolbox.Caller, a fileSearchArgs) (protocol.ToolResult, error) {
	job, err := s.searching(caller, a)
	if err != nil {
		return protocol.ToolResult{}, err
	}
	limited, cancel := context.WithTimeout(ctx, searchWithin)
	defer cancel()
	err = job.walk(limited, orTop(a.Path))
	switch {
	case err == nil || job.answer.Truncated != "":
	case ctx.Err() == nil && limited.Err() != nil:
		job.answer.Truncated = "the time was over"
	default:
		return protocol.ToolResult{}, err
	}
	return toolbox.JSON(job.answer)
}

func (s tools) searching(caller toolbox.Caller, a fileSearchArgs) (*searching, error) {
	limit := int64(defaultMatches)
	if a.Limit != nil {
		limit = *a.Limit
	}
	switch err := toolbox.Within("limit", limit, 1, maxMatches); {
	case err != nil:
		return nil, err
	case a.Query == "":
		return nil, toolbox.Missing("query")
	case len(a.Query) > maxQueryBytes:
		return nil, protocol.Errorf(protocol.KindTooLarge, "argument query is over %d bytes", maxQueryBytes)
	}
	if _, err := path.Match(a.Name, ""); err != nil {
		return nil, protocol.Errorf(protocol.KindInvalid, "argument name is no pattern")
	}
	query := a.Query
	if !a.Regexp {
		query = regexp.QuoteMeta(query)
	}
	if a.IgnoreCase {
		query = "(?i)" + query
	}
	pattern, err := regexp.Compile(query)
	if err != nil {
		return nil, protocol.Errorf(protocol.KindInvalid, "argument query: %w", err)
	}
	return &searching{
		files: s, caller: caller, pattern: pattern, name: a.Name, limit: int(limit),
		answer: searchAnswer{Matches: []fileMatch{}},
	}, nil
}

// walk searches the folder at p, and those below it.
func (j *searching) walk(ctx context.Context, p string) error {
	var folders []string
	err := j.files.FS.List(ctx, p, false, func(info protocol.FileInfo) error {
		if j.seen++; j.seen > maxEntries {
			return j.enough("there are too many files")
		}
		if info.Type == protocol.FileDir && !slices.Contains(aside, info.Name) {
			folders = append(folders, info.Path)
		}
		return j.look(ctx, info)
	})
	if err != nil {
		return err
	}
	for _, below := range folders {
		err := j.walk(ctx, below)
		if err != nil && (ctx.Err() != nil || j.answer.Truncated != "") {
			return err // others mean that it is gone, or not to be read
		}
	}
	return nil
}

func (j *searching) enough(why string) error {
	j.answer.Truncated = why
	return errEnough
}

// look searches the file that info describes, if it is one to search.
func (j *searching) look(ctx context.Context, info protocol.FileInfo) error {
	if info.Type != protocol.FileRegular || info.Size > maxSearched {
		return nil
	}
	if ok, _ := path.Match(j.name, info.Name); j.name != "" && !ok {
		return nil
	}
	f, err := j.files.FS.Open(info.Path)
	if err != nil {
		return nil // it is gone, or not to be read
	}
	defer f.Close()
	r, _ := j.files.content(ctx, j.caller, f)
	j.answer.Files++
	err = j.scan(info.Path, bufio.NewReaderSize(r, maxLineBytes))
	if ctx.Err() != nil || j.answer.Truncated != "" {
		return err
	}
	return nil // what can't be read to its end is searched to there
}

func (j *searching) scan(name string, in *bufio.Reader) error {
	if head, _ := in.Peek(4096); bytes.IndexByte(head, 0) >= 0 {
		return nil
	}
	for number := 1; ; number++ {
		text, err := in.ReadSlice('\n')
		if j.pattern.Match(bytes.TrimSuffix(text, []byte("\n"))) {
			if len(j.answer.Matches) == j.limit {
				return j.enough("there are more")
			}
			j.answer.Matches = append(j.answer.Matches, fileMatch{name, number, excerpt(text)})
		}
		for errors.Is(err, bufio.ErrBufferFull) { // the rest of too long a line
			_, err = in.ReadSlice('\n')
		}
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
	}
}

func excerpt(line []byte) string {
	line = bytes.TrimRight(line, "\r\n")
	return strings.ToValidUTF8(string(line[:min(len(line), maxExcerptBytes)]), "\uFFFD")
}
