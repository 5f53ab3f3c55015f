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

// Domains of the hashes, so that one kind can't pass for another.
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

// lineHash returns the Prev of the next record.
func lineHash(line []byte) string { return hashOf(recordDomain, line) }

// headHash returns what a head's signature covers: its line up to the signature
// and so, through Prev, all lines before it.
func headHash(line []byte) string {
	at := bytes.LastIndex(line, headMember)
	return hashOf(headDomain, line[:max(at, 0)])
}

// A Chain numbers records and links each to its predecessor. The zero Chain
// begins a log. It is not safe for concurrent use.
type Chain struct {
	last uint64
	prev string // hash of the line of record last; empty: none
}

// Last returns the number of the newest record, 0 when there is none.
func (c *Chain) Last() uint64 { return c.last }

// Append appends the line of r to dst. The chain sets r's Sequence, Kind and
// Prev; the caller sets At and one content other than a head. Strings are cut
// at 256 bytes.
func (c *Chain) Append(dst []byte, r Record) []byte {
	return append(dst, c.add(r.tidied())...)
}

// AppendBreak appends the Opened record of a log after an end that can't be
// trusted: it has the next number but no link. Its After says why.
func (c *Chain) AppendBreak(dst []byte, at time.Time, o Opened) []byte {
	c.prev = ""
	return c.Append(dst, Record{At: at.UnixMilli(), Opened: &o})
}

// AppendHead appends a head, which signs all records so far, and returns it
// with its signature in the control plane's form. sign signs a transcript; if
// it fails the chain is unchanged.
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
