// Package lineindex finds the rows of a transcript that only ever grows, without
// reading it: of each line that has rows it knows where the line is.
package lineindex

import (
	"bytes"
	"fmt"
	"hash/maphash"
	"io"
	"iter"
	"sort"
	"sync"

	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/sandbox-agent/internal/history/rows"
)

// Bounds of a transcript.
const (
	// maxEntries bounds the lines of which an Index knows, 16 B each.
	maxEntries = 1 << 20
	// maxResults bounds the results of tools that are found again, about 32 B each.
	maxResults = 1 << 18

	markEvery = 64  // entries between two marks
	proofSize = 128 // bytes that are compared before an Index is extended
)

// An entry is a line with rows, or one that changes the state.
type entry struct {
	at     int64
	length uint32
	before uint32 // rows in the lines before
}

// An Index of one transcript. It is safe for concurrent use.
type Index struct {
	// Static after construction.
	read rows.Lines
	seed maphash.Seed

	mu sync.Mutex
	// Guarded by mu.
	size    int64  // bytes of whole lines that are indexed
	proof   []byte // the last ones of them
	entries []entry
	marks   []rows.State // before every markEvery-th entry
	state   rows.State   // behind the last line
	results map[uint64]uint32
	rows    int
	counted int // rows but results
	skipped int
	about   rows.About
}

// New returns an Index of an empty transcript.
func New(read rows.Lines) *Index {
	return &Index{read: read, seed: maphash.MakeSeed(), results: make(map[uint64]uint32)}
}

// A Summary is what an Index knows without reading.
type Summary struct {
	Rows    int // of all kinds
	Counted int // rows but results of tools
	Skipped int // lines that are too long, or one too many
	About   rows.About
}

// Summary returns what x knows.
func (x *Index) Summary() Summary {
	x.mu.Lock()
	defer x.mu.Unlock()
	return Summary{Rows: x.rows, Counted: x.counted, Skipped: x.skipped, About: x.about}
}

// Extend indexes what a transcript of size bytes has behind what is indexed. It
// reports false when the transcript isn't what it was, and a new Index is
// needed.
func (x *Index) Extend(src io.ReaderAt, size int64) (same bool, err error) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if size < x.size {
		return false, nil
	}
	proof := make([]byte, len(x.proof))
	if _, err := src.ReadAt(proof, x.size-int64(len(proof))); err != nil && err != io.EOF { //nolint:errorlint // io.ReaderAt
		return false, err
	}
	if !bytes.Equal(proof, x.proof) {
		return false, nil
	}
	reader := newLineReader(io.NewSectionReader(src, x.size, size-x.size))
	for {
		line, length, err := reader.next()
		if err == io.EOF { //nolint:errorlint // of the reader itself
			return true, nil
		}
		if err != nil {
			return false, err
		}
		x.add(line, length)
	}
}

// add indexes one line of length bytes with its end, nil if it is too long. The
// caller holds mu.
func (x *Index) add(line []byte, length int64) {
	at := x.size
	x.size += length
	if line == nil || len(x.entries) == maxEntries {
		x.skipped++
		x.proof = nil
		return
	}
	x.proof = append(x.proof[:0], line[max(0, len(line)-proofSize):]...)
	x.proof = append(x.proof, '\n')
	state, list := x.read(x.state, &x.about, line)
	if len(list) > 0 || state != x.state {
		if len(x.entries)%markEvery == 0 {
			x.marks = append(x.marks, x.state)
		}
		for i := range list {
			x.count(&list[i])
		}
		x.entries = append(x.entries, entry{at: at, length: uint32(len(line)), before: uint32(x.rows)})
		x.rows += len(list)
	}
	x.state = state
}

// count notes a row of the line that becomes the next entry. The caller holds mu.
func (x *Index) count(r *rows.Row) {
	if rows.CountsAsMessage(r) {
		x.counted++
	}
	if r.Kind == protocol.ChatToolResult && len(x.results) < maxResults {
		x.results[maphash.String(x.seed, r.ToolID)] = uint32(len(x.entries))
	}
}

// window returns the entries from the mark before row first on, how many rows
// are before them, and the state there.
func (x *Index) window(first int) (list []entry, before int, state rows.State) {
	x.mu.Lock()
	defer x.mu.Unlock()
	i := sort.Search(len(x.entries), func(i int) bool { return int(x.entries[i].before) > first })
	i = max(0, i-1) / markEvery * markEvery
	if i >= len(x.entries) {
		return nil, 0, rows.State{}
	}
	return x.entries[i:len(x.entries):len(x.entries)], int(x.entries[i].before), x.marks[i/markEvery]
}

// resultOf returns the line that has the result of a tool's use.
func (x *Index) resultOf(call string) (entry, bool) {
	x.mu.Lock()
	defer x.mu.Unlock()
	i, ok := x.results[maphash.String(x.seed, call)]
	if !ok {
		return entry{}, false
	}
	return x.entries[i], true
}

// Page returns the rows from first to last, exclusive, of all that src has,
// oldest first, with the results of tools merged into their uses. It ends with an
// error when src isn't what was indexed any more.
func (x *Index) Page(src io.ReaderAt, first, last int) iter.Seq2[rows.Row, error] {
	return func(yield func(rows.Row, error) bool) {
		entries, n, state := x.window(first)
		for _, e := range entries {
			if n >= last {
				return
			}
			line, err := read(src, e)
			if err != nil {
				yield(rows.Row{}, err)
				return
			}
			var list []rows.Row
			state, list = x.read(state, nil, line)
			for i := range list {
				if n >= first && n < last && !yield(x.merged(src, list[i])) {
					return
				}
				n++
			}
		}
	}
}

// merged returns r with the result that belongs to it.
func (x *Index) merged(src io.ReaderAt, r rows.Row) (rows.Row, error) {
	if r.Kind != protocol.ChatToolUse {
		return r, nil
	}
	e, ok := x.resultOf(r.ToolID)
	if !ok {
		return r, nil
	}
	line, err := read(src, e)
	if err != nil {
		return r, err
	}
	_, list := x.read(rows.State{}, nil, line)
	for i := range list {
		if list[i].Kind == protocol.ChatToolResult && list[i].ToolID == r.ToolID {
			rows.Merge(&r, &list[i])
		}
	}
	return r, nil
}

// read returns the line of an entry.
func read(src io.ReaderAt, e entry) ([]byte, error) {
	line := make([]byte, e.length)
	if n, err := src.ReadAt(line, e.at); n < len(line) {
		return nil, fmt.Errorf("the transcript has changed: %w", err)
	}
	return line, nil
}
