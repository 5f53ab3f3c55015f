package history

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"iter"
	"slices"
	"syscall"

	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/sandbox-agent/internal/history/homefs"
	"github.com/fairlead/fairlead/sandbox-agent/internal/history/lineindex"
	"github.com/fairlead/fairlead/sandbox-agent/internal/history/rows"
)

// maxKept bounds the transcripts of which an index, or the whole, is kept in
// memory.
const maxKept = 32

// A content is what a transcript says at one moment. Close it.
type content struct {
	lineindex.Summary
	pages pages
	file  io.Closer // nil: none is open
}

// Pages are the rows of a content from one to another, exclusive.
type pages interface {
	Page(first, last int) iter.Seq2[rows.Row, error]
}

// Close closes the file.
func (c *content) Close() {
	if c.file != nil {
		c.file.Close()
	}
}

// window returns which rows a page has (seed 002): the newest ones are at offset
// 0; limit less than 0: all.
func (c *content) window(limit, offset int) (first, last int) {
	last = max(0, c.Rows-offset)
	if limit < 0 {
		return 0, last
	}
	return max(0, last-limit), last
}

// An indexed transcript is read from its file.
type indexed struct {
	index *lineindex.Index
	file  *homefs.File
}

func (i indexed) Page(first, last int) iter.Seq2[rows.Row, error] {
	return i.index.Page(i.file, first, last)
}

// loaded rows are in memory.
type loaded []rows.Row

func (l loaded) Page(first, last int) iter.Seq2[rows.Row, error] {
	return func(yield func(rows.Row, error) bool) {
		for _, r := range l[first:last] {
			if !yield(r, nil) {
				return
			}
		}
	}
}

// contentOf returns the content of a document.
func contentOf(doc *rows.Document) *content {
	counted := 0
	for i := range doc.Rows {
		if rows.CountsAsMessage(&doc.Rows[i]) {
			counted++
		}
	}
	return &content{
		Summary: lineindex.Summary{Rows: len(doc.Rows), Counted: counted, About: doc.About}, pages: loaded(doc.Rows),
	}
}

// saidIn returns what a conversation's transcript says, as far as that is needed
// to show a page of it; nothing where there is none. One that is not a transcript
// of its place any more is none.
func (h *History) saidIn(ctx context.Context, t *transcript) (*content, error) {
	if t == nil {
		return contentOf(&rows.Document{}), nil
	}
	said, err := h.content(ctx, t)
	switch {
	case err == nil && h.still(t, said.About):
		return said, nil
	case err == nil:
		said.Close()
		h.counts.refused.Add(1)
	case errors.Is(err, homefs.ErrNotOurs):
		h.counts.refused.Add(1)
	case !errors.Is(err, fs.ErrNotExist):
		return nil, protocol.Fault(protocol.KindUnavailable, err)
	}
	h.lost(t.place)
	return contentOf(&rows.Document{}), nil
}

// content reads a transcript as far as that is needed to show a page of it.
func (h *History) content(ctx context.Context, t *transcript) (*content, error) {
	defer h.used(t)
	switch l := t.layout.(type) {
	case lined:
		return t.indexed(l.lines())
	case whole:
		return t.read(l)
	case stored:
		return h.stored(ctx, t, l)
	}
	return nil, errForeign
}

// indexed returns the content of a transcript of lines. Only what has come since
// the last time is read.
func (t *transcript) indexed(lines rows.Lines) (*content, error) {
	f, err := t.home.files.Open(t.name)
	if err != nil {
		return nil, err
	}
	if f.Stat.Size > maxLines {
		f.Close()
		return nil, &fs.PathError{Op: "read", Path: t.name, Err: syscall.EFBIG}
	}
	t.reading.Lock()
	defer t.reading.Unlock()
	if t.index == nil || !t.grown(f.Stat) {
		t.index = lineindex.New(lines)
	}
	same, err := t.index.Extend(f, f.Stat.Size)
	if err == nil && !same {
		t.index = lineindex.New(lines)
		_, err = t.index.Extend(f, f.Stat.Size)
	}
	if err != nil {
		t.index = nil
		f.Close()
		return nil, err
	}
	t.at = f.Stat
	return &content{Summary: t.index.Summary(), pages: indexed{t.index, f}, file: f}, nil
}

// grown reports whether a file may be the one that was indexed, as it was or with
// more behind. The caller holds
// reading.
func (t *transcript) grown(now homefs.Stat) bool {
	return t.at.ID == now.ID && (now.Size > t.at.Size || now == t.at)
}

// read returns the content of a transcript that is read as a whole.
func (t *transcript) read(l whole) (*content, error) {
	t.reading.Lock()
	defer t.reading.Unlock()
	f, err := t.home.files.Open(t.name)
	if err != nil {
		return nil, err
	}
	f.Close()
	if t.document == nil || t.at != f.Stat {
		text, stat, err := t.home.files.Read(t.name, maxDocument)
		if err != nil {
			return nil, err
		}
		doc := l.document(text)
		t.document, t.at = &doc, stat
	}
	return contentOf(t.document), nil
}

// used notes that t was read, and lets go of what was read longest ago.
func (h *History) used(t *transcript) {
	h.mu.Lock()
	h.kept = append(slices.DeleteFunc(h.kept, func(k *transcript) bool { return k == t }), t)
	var old *transcript
	if len(h.kept) > maxKept {
		old, h.kept = h.kept[0], h.kept[1:]
	}
	h.mu.Unlock()
	if old != nil {
		old.reading.Lock()
		old.index, old.document = nil, nil
		old.reading.Unlock()
	}
}
