package chatlog

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"unicode/utf8"

	"github.com/fairlead/fairlead/protocol"
)

// encodeAll numbers events from first on. It returns their entries, the lines
// that hold them, and how many had to be cut.
func encodeAll(first uint64, events []*protocol.ChatEvent) (entries []Entry, lines []byte, cut int, err error) {
	for i, e := range events {
		e.Seq = first + uint64(i)
		text, shortened, err := encode(e)
		if err != nil {
			return nil, nil, 0, protocol.Errorf(protocol.KindInvalid, "the event can't be encoded: %v", err)
		}
		if shortened {
			cut++
		}
		lines = append(append(lines, text...), '\n')
		entries = append(entries, Entry{Seq: e.Seq, Origin: origin(e), JSON: text})
	}
	return entries, lines, cut, nil
}

func origin(e *protocol.ChatEvent) protocol.CommandID {
	if e.Kind == protocol.ChatText && e.Role == "user" {
		return e.CommandID
	}
	return ""
}

const (
	// usualBytes is more than most events take as JSON.
	usualBytes = 512
	// deepest is how deep encoding/json lets JSON nest.
	deepest = 10_000
)

// A short is an event with the members that a piece of text has. Most events are
// such pieces, and each is waited for: encoded as a [protocol.ChatEvent] it takes
// more than twice as long.
type short struct {
	ID        string                  `json:"id"`
	SessionID protocol.ConversationID `json:"sessionId"`
	Timestamp string                  `json:"timestamp"`
	Provider  string                  `json:"provider"`
	Kind      protocol.ChatKind       `json:"kind"`
	Seq       uint64                  `json:"seq,omitempty"`
	Content   *string                 `json:"content,omitempty"`
}

// shortOf returns e as a short, if it has no other members.
func shortOf(e *protocol.ChatEvent) (short, bool) {
	if e.Kind != protocol.ChatStreamDelta && e.Kind != protocol.ChatStreamEnd {
		return short{}, false
	}
	s := short{e.ID, e.SessionID, e.Timestamp, e.Provider, e.Kind, e.Seq, e.Content}
	rest := *e
	rest.ID, rest.SessionID, rest.Timestamp, rest.Provider, rest.Kind, rest.Seq, rest.Content = "", "", "", "", "", 0, nil
	return s, reflect.ValueOf(&rest).Elem().IsZero()
}

// encode returns e as JSON of at most protocol.MaxChatEvent bytes, in one line
// of valid UTF-8.
func encode(e *protocol.ChatEvent) (text []byte, cut bool, err error) {
	var out bytes.Buffer
	out.Grow(usualBytes)
	enc := json.NewEncoder(&out)
	enc.SetEscapeHTML(false)
	if short, ok := shortOf(e); ok {
		err = enc.Encode(short)
	} else {
		err = enc.Encode(e)
	}
	if err != nil {
		return nil, false, err
	}
	text = bytes.TrimSuffix(out.Bytes(), lineEnd)
	if !utf8.Valid(text) {
		text = bytes.ToValidUTF8(text, []byte("\uFFFD"))
	}
	if len(text) > deepest && !json.Valid(text) { // it nests too deep: a raw member alone is valid
		return nil, false, errors.New("it nests too deep")
	}
	if len(text) <= protocol.MaxChatEvent {
		return text, false, nil
	}
	return shorten(text, protocol.MaxChatEvent), true, nil
}

// minCut is the length from which on a string may be cut, in bytes.
const minCut = 1 << 10

// A text is a string in JSON, between its quotes.
type text struct{ begin, end int }

// shorten cuts the longest strings in JSON, each in its middle, until it has at
// most limit bytes. JSON that is long for another reason becomes an object with
// the strings, numbers and booleans that stand first in it.
func shorten(from []byte, limit int) []byte {
	texts := stringsIn(from)
	lengths := make([]int, len(texts))
	for i, t := range texts {
		lengths[i] = t.end - t.begin
	}
	keep := fitting(lengths, len(from)-limit)
	out := make([]byte, 0, limit)
	at := 0
	for _, t := range texts {
		if t.end-t.begin <= keep {
			continue
		}
		out = append(out, from[at:t.begin]...)
		out = append(out, cutMiddle(from[t.begin:t.end], keep)...)
		at = t.end
	}
	out = append(out, from[at:]...)
	if len(out) <= limit {
		return out
	}
	return bare(from, limit)
}

// fitting returns the length that strings may keep so that at least so many
// bytes go; minCut if that is not enough.
func fitting(lengths []int, surplus int) int {
	sorted := slices.Clone(lengths)
	slices.Sort(sorted)
	slices.Reverse(sorted)
	total := 0
	for i, length := range sorted {
		total += length
		next := 0
		if i+1 < len(sorted) {
			next = sorted[i+1]
		}
		if keep := (total - surplus) / (i + 1); total >= surplus && keep >= next {
			return max(keep, minCut)
		}
	}
	return minCut
}

// stringsIn returns the strings of valid compact JSON that are no names of
// members.
func stringsIn(from []byte) (all []text) {
	for at := 0; at < len(from); at++ {
		if from[at] != '"' {
			continue
		}
		begin := at + 1
		for at = begin; at < len(from) && from[at] != '"'; at++ {
			if from[at] == '\\' {
				at++
			}
		}
		if at+1 < len(from) && from[at+1] != ':' {
			all = append(all, text{begin, at})
		}
	}
	return all
}

// cutMiddle returns the beginning and the end of a JSON string, given without
// its quotes, in at most keep bytes, at least minCut.
func cutMiddle(from []byte, keep int) []byte {
	cut := len(from) - keep
	mark := fmt.Sprintf("… %d bytes cut …", cut+len("… 1000000 bytes cut …"))
	half := (keep - len(mark)) / 2
	head, rest := half, len(from)-half
	for head = half; head > 0 && inside(from, head); head-- {
	}
	for rest < len(from) && inside(from, rest) {
		rest++
	}
	return slices.Concat(from[:head], fmt.Appendf(nil, "… %d bytes cut …", rest-head), from[rest:])
}

// escapeBytes is the length of \uXXXX, two of which may be one character.
const escapeBytes = 6

// inside reports whether a cut of a JSON string at at would divide a character
// or an escape.
func inside(from []byte, at int) bool {
	if at >= len(from) {
		return false
	}
	if !utf8.RuneStart(from[at]) {
		return true
	}
	// Of the two escapes that may be one character the first begins at most 11
	// bytes before.
	for i := max(at-2*escapeBytes, 0); i < at; i++ {
		if from[i] != '\\' || escaped(from, i) {
			continue
		}
		width := 2
		if i+1 < len(from) && from[i+1] == 'u' {
			width = escapeBytes
			if surrogate(from[i:]) {
				width = 2 * escapeBytes
			}
		}
		if at < i+width {
			return true
		}
		i += width - 1
	}
	return false
}

// escaped reports whether the byte at at stands behind an odd number of
// backslashes.
func escaped(from []byte, at int) bool {
	n := 0
	for at > n && from[at-n-1] == '\\' {
		n++
	}
	return n%2 == 1
}

// surrogate reports whether an escape is the first half of a character.
func surrogate(from []byte) bool {
	return len(from) >= 2*escapeBytes && (from[2] == 'd' || from[2] == 'D') &&
		bytes.IndexByte([]byte("89abAB"), from[3]) >= 0 && from[escapeBytes] == '\\' && from[escapeBytes+1] == 'u'
}

// bare returns an event with only those members that are short, and says so in
// its content.
func bare(from []byte, limit int) []byte {
	var members map[string]json.RawMessage
	var whole, e protocol.ChatEvent
	if err := errors.Join(json.Unmarshal(from, &members), json.Unmarshal(from, &whole)); err != nil {
		panic(err) // it was encoded before
	}
	for name, value := range members {
		if len(value) > minCut {
			delete(members, name)
		}
	}
	kept, err := json.Marshal(members)
	if err == nil {
		err = json.Unmarshal(kept, &e)
	}
	if err != nil {
		panic(err) // it was decoded before
	}
	e.Content = new(fmt.Sprintf("… %d bytes cut", len(from)))
	short, err := json.Marshal(e)
	if err != nil || len(short) > limit {
		short, _ = json.Marshal(protocol.ChatEvent{Kind: whole.Kind, Seq: whole.Seq, Content: e.Content}) // plain members
	}
	return short
}
