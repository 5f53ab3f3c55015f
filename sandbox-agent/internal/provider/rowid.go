package provider

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"strconv"
	"strings"

	"github.com/fairlead/fairlead/protocol"
)

// CallResultID is the id of the event of a tool's result, where that of its use
// has the id of the call (gemini, opencode, cursor).
func CallResultID(call string) string { return call + "_result" }

// Said makes ids of texts and thoughts where nothing of a provider has any: they
// follow from what is said, so that live events and history have the same ones.
// It is a value: a copy goes on by itself.
type Said struct {
	turn string
	seen [8]struct { // the last different ones of the turn
		sum uint64
		n   uint32
	}
}

// Begin begins a turn. An empty id is good where the provider tells none; then
// all turns have equal ids for equal texts that come first.
func (s *Said) Begin(turn string) { *s = Said{turn: turn} }

// Turn is the id of the present turn.
func (s *Said) Turn() string { return s.turn }

// Next returns the id of what is said next. Of equal ones in a turn each has its
// own.
func (s *Said) Next(kind protocol.ChatKind, role, text string) string {
	h := sha256.New()
	for _, part := range []string{s.turn, string(kind), role, strings.TrimSpace(text)} {
		h.Write([]byte(strconv.Itoa(len(part)) + ":" + part))
	}
	digest := h.Sum(nil)
	id := "said_" + hex.EncodeToString(digest[:12])
	if n := s.count(binary.BigEndian.Uint64(digest)); n > 1 {
		id += "_" + strconv.Itoa(int(n))
	}
	return id
}

// count returns how often sum has been said, this time included.
func (s *Said) count(sum uint64) uint32 {
	for i := range s.seen {
		if s.seen[i].n > 0 && s.seen[i].sum == sum {
			s.seen[i].n++
			return s.seen[i].n
		}
	}
	copy(s.seen[1:], s.seen[:])
	s.seen[0].sum, s.seen[0].n = sum, 1
	return 1
}

// HiddenText reports whether a text that claude keeps as a user's is nobody's:
// clients never show it.
func HiddenText(text string) bool {
	text = strings.TrimLeft(text, " \t\r\n")
	for _, prefix := range hiddenTexts {
		if strings.HasPrefix(text, prefix) {
			return true
		}
	}
	return false
}

var hiddenTexts = []string{
	"<system-reminder>", "Caveat:", "<local-command-caveat>", "[Request interrupted", "Base directory for this skill:",
	"<task-notification>",
}
