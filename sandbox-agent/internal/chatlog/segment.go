package chatlog

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"

	"github.com/fairlead/fairlead/protocol"
)

const (
	format       = 1
	maxLineBytes = protocol.MaxChatEvent + 1 // with its end
	chunkBytes   = 256 << 10                 // of a file, read at once
)

var (
	// errDamaged says that a segment's content is not what was written.
	errDamaged = errors.New("the segment is damaged")
	// errUnbegun says that not even the first line of a segment is whole.
	errUnbegun = fmt.Errorf("there is no first line: %w", errDamaged)
)

// A segment is one file of a log.
type segment struct {
	n           int // in its name
	path        string
	epoch       protocol.Epoch
	first, last uint64 // numbers of its events; last is first − 1 if there is none
	after       uint64 // number of the last event before it; first − 1 within an epoch
	bytes       int64  // on disk, and visible
	boot        string
}

// empty reports whether g holds nothing but its header.
func (g *segment) empty() bool { return g.last < g.first }

// A header is the first line of a segment.
type header struct {
	Format       int                     `json:"format"`
	Conversation protocol.ConversationID `json:"conversation"`
	Epoch        protocol.Epoch          `json:"epoch"`
	First        uint64                  `json:"first"`
	After        uint64                  `json:"after"` // number of the last event before it
	Boot         string                  `json:"boot,omitempty"`
}

// header returns the first line of g, with its end.
func (g *segment) header(id protocol.ConversationID, boot string) []byte {
	g.boot = boot
	line, err := json.Marshal(header{Format: format, Conversation: id, Epoch: g.epoch, First: g.first, After: g.after, Boot: boot})
	if err != nil {
		panic(err) // it holds nothing that can't be encoded
	}
	return append(line, '\n')
}

// parseHeader reads the first line of a segment, without its end.
func parseHeader(line []byte, id protocol.ConversationID) (header, error) {
	var h header
	if err := json.Unmarshal(line, &h); err != nil || h.Format != format || h.Conversation != id || h.First <= h.After {
		return header{}, fmt.Errorf("first line: %w", errDamaged)
	}
	return h, nil
}

var seqKey = []byte(`"seq":`)

// seqOf returns the number in an event's line; false for what is no event's line.
// Members before it hold no raw quote, so that nobody else's text is taken for it.
func seqOf(line []byte) (uint64, bool) {
	if len(line) < 2 || line[0] != '{' || line[len(line)-1] != '}' {
		return 0, false
	}
	at := bytes.Index(line, seqKey)
	if at < 0 {
		return 0, false
	}
	digits := line[at+len(seqKey):]
	end := bytes.IndexAny(digits, ",}")
	if end <= 0 || end > len("18446744073709551615") {
		return 0, false
	}
	n, err := strconv.ParseUint(string(digits[:end]), 10, 64)
	return n, err == nil
}

var commandKey = []byte(`"commandId":`)

// originOf returns the origin of an event, see [Entry].
func originOf(line []byte) protocol.CommandID {
	if !bytes.Contains(line, commandKey) {
		return ""
	}
	var e struct {
		Kind      protocol.ChatKind  `json:"kind"`
		Role      string             `json:"role"`
		CommandID protocol.CommandID `json:"commandId"`
	}
	if json.Unmarshal(line, &e) != nil || e.Kind != protocol.ChatText || e.Role != "user" {
		return ""
	}
	return e.CommandID
}

// lines reads a file line by line. A line stays valid: the next one doesn't
// overwrite it.
type lines struct {
	from io.Reader
	buf  []byte // read, not yet returned
	err  error
}

// next returns a line without its end. At the end of the file it fails with
// io.EOF, or with io.ErrUnexpectedEOF for what there is of a line without an end.
// A line that is too long is skipped: errDamaged.
func (l *lines) next() ([]byte, error) {
	long := false
	for seen := 0; ; {
		if i := bytes.IndexByte(l.buf[seen:], '\n'); i >= 0 {
			line := l.buf[: seen+i : seen+i]
			l.buf = l.buf[seen+i+1:]
			if long || len(line) >= maxLineBytes {
				return nil, errDamaged
			}
			return line, nil
		}
		if seen = len(l.buf); seen >= maxLineBytes {
			long, seen, l.buf = true, 0, nil
		}
		switch {
		case l.err == io.EOF && (seen > 0 || long):
			l.buf = nil
			return nil, io.ErrUnexpectedEOF
		case l.err != nil:
			return nil, l.err
		}
		l.read()
	}
}

// read adds to buf.
func (l *lines) read() {
	seen := len(l.buf)
	grown := make([]byte, seen, seen+chunkBytes)
	copy(grown, l.buf)
	var n int
	n, l.err = l.from.Read(grown[seen:cap(grown)])
	l.buf = grown[:seen+n]
}

// A content is what a scan of a segment has found.
type content struct {
	header header
	last   uint64 // number of the last event; header.First − 1: none
	bytes  int64  // up to there
	torn   bool   // behind that is what a crash has cut
}

// scan reads a whole segment. It fails with errDamaged for anything but half a
// last line, or a rest that holds no event at all.
func scan(from io.Reader, id protocol.ConversationID) (c content, err error) {
	all := &lines{from: from}
	line, err := all.next()
	if err != nil {
		return content{}, unread(err)
	}
	if c.header, err = parseHeader(line, id); err != nil {
		return content{}, err
	}
	c.bytes, c.last = int64(len(line)+1), c.header.First-1
	for {
		line, err := all.next()
		switch {
		case err == io.EOF:
			return c, nil
		case errors.Is(err, io.ErrUnexpectedEOF):
			c.torn = true
			return c, nil
		case err != nil && !errors.Is(err, errDamaged):
			return content{}, err
		}
		seq, ok := seqOf(line)
		switch whole := err == nil && json.Valid(line); {
		case whole && ok && seq == c.last+1 && !c.torn:
			c.last, c.bytes = seq, c.bytes+int64(len(line)+1)
		case whole:
			return content{}, fmt.Errorf("event %d: %w", c.last+1, errDamaged)
		default:
			c.torn = true // unless an event follows
		}
	}
}

// unread returns why there is no first line.
func unread(err error) error {
	if err == io.EOF || errors.Is(err, io.ErrUnexpectedEOF) {
		return errUnbegun
	}
	return err
}

// scanFile is scan of the file at path.
func scanFile(path string, id protocol.ConversationID) (content, error) {
	f, err := os.Open(path)
	if err != nil {
		return content{}, err
	}
	defer f.Close()
	return scan(f, id)
}

// headerOf reads the first line of the file at path.
func headerOf(path string, id protocol.ConversationID) (header, error) {
	f, err := os.Open(path)
	if err != nil {
		return header{}, err
	}
	defer f.Close()
	line, err := (&lines{from: io.LimitReader(f, 4096)}).next()
	if err != nil {
		return header{}, unread(err)
	}
	return parseHeader(line, id)
}

const (
	filePrefix   = "events-"
	fileSuffix   = ".jsonl"
	newSuffix    = ".new"     // of a segment that Rewrite has not put in place
	damageSuffix = ".damaged" // of a segment that was put aside
)

// segmentNumber returns the number in a segment's name.
func segmentNumber(name string) (int, bool) {
	digits, ours := strings.CutPrefix(name, filePrefix)
	digits, whole := strings.CutSuffix(digits, fileSuffix)
	n, err := strconv.Atoi(digits)
	return n, ours && whole && err == nil && n > 0 && strconv.Itoa(n) == digits
}
