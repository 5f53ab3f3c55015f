package audit

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strings"
	"time"

	"github.com/fairlead/fairlead/protocol"
)

// What a hash is over, so that it can't stand for one of something else.
const (
	recordDomain = "fairlead/1 audit record\n"
	headDomain   = "fairlead/1 audit head\n"
)

// noPrev is the Prev of a first record.
var noPrev = strings.Repeat("0", 2*sha256.Size)

// headMember is where the signed part of a head's line ends.
var headMember = []byte(`,"head":`)

func hashOf(domain string, text []byte) string {
	h := sha256.New()
	h.Write([]byte(domain))
	h.Write(text)
	return hex.EncodeToString(h.Sum(nil))
}

// lineHash is what the next record has as its Prev.
func lineHash(line []byte) string { return hashOf(recordDomain, line) }

// headHash is what a head's signature is over: its line up to the signature,
// and so, through Prev, all lines before it.
func headHash(line []byte) string {
	at := bytes.LastIndex(line, headMember)
	return hashOf(headDomain, line[:max(at, 0)])
}

// A Chain numbers records and links each to the one before. The zero Chain
// begins a log. It is not safe for concurrent use.
type Chain struct {
	last uint64
	prev string // hash of the line of record last; empty: none
}

// Last returns the number of the newest record, 0 when there is none.
func (c *Chain) Last() uint64 { return c.last }

// Append appends the line of r to dst. The chain gives r its Sequence, Kind and
// Prev; the caller gives At and one content other than a head. Strings of more
// than 256 bytes are cut.
func (c *Chain) Append(dst []byte, r Record) []byte {
	return append(dst, c.add(r.tidied())...)
}

// AppendBreak appends the Opened record of a log whose end can't be trusted any
// more: it has the next number but is linked to nothing. Its After says why.
func (c *Chain) AppendBreak(dst []byte, at time.Time, o Opened) []byte {
	c.prev = ""
	return c.Append(dst, Record{At: at.UnixMilli(), Opened: &o})
}

// AppendHead appends a head, which vouches for all records so far, and returns
// it with its signature in the form that a control plane keeps. sign makes the
// signature over a transcript; when it fails the chain is as it was.
func (c *Chain) AppendHead(dst []byte, sandbox protocol.SandboxID, at time.Time, sign func([]byte) ([]byte, error)) ([]byte, protocol.AuditHead, []byte, error) {
	r := c.numbered(Record{At: at.UnixMilli(), Head: &Head{Signature: []byte{}}})
	head := protocol.AuditHead{SandboxID: sandbox, Sequence: r.Sequence, Hash: headHash(r.encode()), At: r.At}
	signature, err := sign(protocol.AuditTranscript(sandbox, head.Sequence, head.Hash))
	if err != nil {
		return dst, protocol.AuditHead{}, nil, fmt.Errorf("audit: head: %w", err)
	}
	r.Head.Signature = signature
	return append(dst, c.add(r)...), head, signature, nil
}

func (c *Chain) numbered(r Record) Record {
	r.Sequence, r.Kind, r.Prev = c.last+1, r.content(), c.prev
	if r.Prev == "" {
		r.Prev = noPrev
	}
	return r
}

func (c *Chain) add(r Record) []byte {
	r = c.numbered(r)
	line := r.encode()
	c.last, c.prev = r.Sequence, lineHash(line)
	return line
}
