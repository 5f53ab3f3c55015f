package chatlog

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"io"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/fairlead/fairlead/protocol"
)

// Bounds of what is kept of logs in memory.
const (
	maxSayings = 4096 // of one conversation
	maxIndexed = 64   // logs
)

// A Saying is a person's message as a conversation's log has it.
type Saying struct {
	ID      string
	Text    Digest // of the masked text
	Command bool   // it begins with a slash
	At      time.Time
	From    *protocol.ChatFrom
	Own     string               // its sender's own name of it
	Images  []protocol.ChatImage // those that have a URL
}

// A Digest tells one text from another, whatever white space is around them.
type Digest [sha256.Size]byte

// DigestOf returns the digest of a text.
func DigestOf(text string) Digest { return sha256.Sum256([]byte(strings.TrimSpace(text))) }

// IsCommand reports whether a text is a command of the coding agent's own.
func IsCommand(text string) bool { return strings.HasPrefix(strings.TrimSpace(text), "/") }

// Said is what a log says that no transcript of the conversation does, as far as
// the log goes back.
type Said struct {
	Sayings []Saying // of persons, in order
	Window  int64    // tokens of the model's context, as its program has said last; 0: it hasn't
}

// Indexes knows what the logs say that were asked about last, each of which it
// reads once and then follows. It is safe for concurrent use.
type Indexes struct {
	mu  sync.Mutex
	all []*index // guarded by mu; the one that was used last is the last
}

// Said returns what a log says.
func (x *Indexes) Said(l *Log) (Said, error) { return x.of(l.id).said(l) }

// of returns the index of a log.
func (x *Indexes) of(id protocol.ConversationID) *index {
	x.mu.Lock()
	defer x.mu.Unlock()
	found := &index{id: id}
	if i := x.find(id); i >= 0 {
		found = x.all[i]
		x.all = slices.Delete(x.all, i, i+1)
	} else if len(x.all) == maxIndexed {
		x.all = slices.Delete(x.all, 0, 1)
	}
	x.all = append(x.all, found)
	return found
}

// find returns where the index of a log is, −1 if there is none. The caller holds
// mu.
func (x *Indexes) find(id protocol.ConversationID) int {
	return slices.IndexFunc(x.all, func(i *index) bool { return i.id == id })
}

// Forget drops the index of a log that was deleted.
func (x *Indexes) Forget(id protocol.ConversationID) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if i := x.find(id); i >= 0 {
		x.all = slices.Delete(x.all, i, i+1)
	}
}

// Note adds events that were just appended to a log to its index, if there is one
// and nobody uses it: otherwise they are read when somebody asks again.
func (x *Indexes) Note(l *Log, events []*protocol.ChatEvent) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if i := x.find(l.id); i >= 0 && len(events) > 0 {
		x.all[i].note(l.Position().Epoch, events)
	}
}

// An index is what is known of a log up to one event.
type index struct {
	id protocol.ConversationID // static

	mu sync.Mutex
	// Guarded by mu.
	epoch protocol.Epoch
	last  uint64   // number of the last event that was looked at; 0: none was
	seqs  []uint64 // of the sayings
	Said
}

// note adds events of an epoch, if they are the next ones.
func (i *index) note(epoch protocol.Epoch, events []*protocol.ChatEvent) {
	if !i.mu.TryLock() {
		return
	}
	defer i.mu.Unlock()
	if i.epoch == epoch && i.last > 0 && i.last+1 == events[0].Seq {
		for _, e := range events {
			i.add(e)
		}
	}
}

// said returns what a log says.
func (i *index) said(log *Log) (Said, error) {
	i.mu.Lock()
	defer i.mu.Unlock()
	err := i.extend(log)
	if errors.Is(err, ErrReset) || errors.As(err, new(ErrGap)) { // while it was read
		err = i.extend(log)
	}
	return Said{slices.Clone(i.Sayings), i.Window}, err
}

// extend looks at what has come since the last time, and drops what the log has
// dropped. A log of another epoch is looked at from its beginning. The caller holds
// mu.
func (i *index) extend(log *Log) error {
	at := log.Position()
	if i.epoch != at.Epoch || i.last > at.Last {
		i.epoch, i.last, i.seqs, i.Said = at.Epoch, 0, nil, Said{}
	}
	if gone, _ := slices.BinarySearch(i.seqs, at.First); gone > 0 {
		i.drop(gone)
	}
	if at.Last == 0 || i.last == at.Last {
		return nil
	}
	reader, _ := log.Read(i.last, at.Last)
	defer reader.Close()
	for {
		entry, err := reader.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		var e protocol.ChatEvent // of the others only the number counts
		if tells(entry.JSON) && json.Unmarshal(entry.JSON, &e) != nil {
			e = protocol.ChatEvent{}
		}
		e.Seq = entry.Seq
		i.add(&e)
	}
}

// tells reports whether an event may say something that an index keeps. Quotes
// within its texts are escaped.
func tells(event []byte) bool {
	return bytes.Contains(event, []byte(`"role":"user"`)) || bytes.Contains(event, []byte(`"tokenBudget":`))
}

// add adds the next event. The caller holds mu.
func (i *index) add(e *protocol.ChatEvent) {
	i.last = e.Seq
	if e.TokenBudget != nil && e.TokenBudget.Total > 0 {
		i.Window = e.TokenBudget.Total
	}
	if e.Kind != protocol.ChatText || e.Role != "user" || e.Content == nil {
		return
	}
	if len(i.Sayings) == maxSayings {
		i.drop(1)
	}
	at, _ := time.Parse(time.RFC3339Nano, e.Timestamp) // else it is at no time
	from := e.From
	if n := len(i.Sayings); n > 0 && from != nil && i.Sayings[n-1].From != nil && *i.Sayings[n-1].From == *from {
		from = i.Sayings[n-1].From // most have the same
	}
	i.seqs = append(i.seqs, e.Seq)
	i.Sayings = append(i.Sayings, Saying{e.ID, DigestOf(*e.Content), IsCommand(*e.Content), at, from, e.ClientMessageID, named(e.Images)})
}

// drop forgets the first n sayings. The caller holds mu.
func (i *index) drop(n int) {
	i.seqs, i.Sayings = slices.Delete(i.seqs, 0, n), slices.Delete(i.Sayings, 0, n)
}

// maxURL is longer than the URL of an image; what is longer is the image itself.
const maxURL = 256

// named returns the images that have a URL.
func named(images []protocol.ChatImage) (all []protocol.ChatImage) {
	for _, image := range images {
		if len(image.Data) <= maxURL {
			all = append(all, image)
		}
	}
	return all
}
