package chatlog

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/fairlead/fairlead/protocol"
)

// A Mask returns what may stay of an event's JSON. It must not change its
// argument.
type Mask func(json []byte) []byte

// Rewrite replaces each stored event by what mask makes of it, as when a secret
// is added late. If that changes any, the log goes on under another epoch with
// the same numbers, and followers get a [Reset]. Of an event for which mask
// returns no JSON, or another number, only the kind and number stay. Segments
// that were put aside as damaged are removed.
//
// A crash leaves a log in which each event is as it was, or masked. Nobody can
// append meanwhile. When Rewrite fails with KindNoSpace nothing has changed; after
// any error the caller should try again, for events may be as they were.
func (l *Log) Rewrite(mask Mask) (changed bool, err error) {
	l.writing.Lock()
	defer l.writing.Unlock()
	l.mu.Lock()
	ended, segments := l.ended, l.segments
	l.mu.Unlock()
	if ended {
		return false, errClosed
	}
	if err := errors.Join(l.removeAll(damageSuffix), l.removeAll(newSuffix)); err != nil {
		return false, refusal(err)
	}
	changed, err = l.rewrite(segments, mask)
	if err != nil {
		return changed, refusal(err)
	}
	return changed, nil
}

// rewrite writes what has to change, and the last segment, whose epoch is the
// log's, into files of their own, and then puts these in place. As soon as one
// is in place the others follow, also after a crash. The caller holds writing.
func (l *Log) rewrite(segments []*segment, mask Mask) (bool, error) {
	epoch := newEpoch()
	masked := make(map[*segment]*segment)
	var err error
	for i, g := range segments {
		changes := len(masked) > 0 && i == len(segments)-1
		if !changes {
			if changes, err = l.changes(g, mask); err != nil {
				break
			}
		}
		if !changes {
			continue
		}
		if masked[g], err = l.writeMasked(g, epoch, mask); err != nil {
			break
		}
	}
	if last := len(segments) - 1; err == nil && len(masked) > 0 && masked[segments[last]] == nil {
		masked[segments[last]], err = l.writeMasked(segments[last], epoch, mask)
	}
	if err == nil && len(masked) > 0 {
		err = l.room.disk.syncFolder(l.folder())
	}
	if err != nil || len(masked) == 0 {
		return false, errors.Join(err, l.removeAll(newSuffix))
	}
	return true, l.replace(masked, epoch)
}

// each calls fn with each event of g.
func (l *Log) each(g *segment, fn func(seq uint64, line []byte) error) error {
	f, err := os.Open(g.path)
	if err != nil {
		return err
	}
	defer f.Close()
	all := &lines{from: io.LimitReader(f, g.bytes)}
	if _, err := all.next(); err != nil {
		return err
	}
	for seq := g.first; seq <= g.last; seq++ {
		line, err := all.next()
		if err == nil {
			err = fn(seq, line)
		}
		if err != nil {
			return fmt.Errorf("event %d: %w", seq, err)
		}
	}
	return nil
}

// errChanges ends a look at a segment.
var errChanges = errors.New("an event changes")

// changes reports whether mask changes an event of g.
func (l *Log) changes(g *segment, mask Mask) (bool, error) {
	err := l.each(g, func(_ uint64, line []byte) error {
		if !bytes.Equal(mask(line), line) {
			return errChanges
		}
		return nil
	})
	if errors.Is(err, errChanges) {
		return true, nil
	}
	return false, err
}

// writeMasked writes what becomes of g beside it, and syncs that.
func (l *Log) writeMasked(g *segment, epoch protocol.Epoch, mask Mask) (*segment, error) {
	m := &segment{n: g.n, path: g.path, epoch: epoch, first: g.first, last: g.last, after: g.after}
	file, err := os.OpenFile(g.path+newSuffix, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return nil, err
	}
	out := bufio.NewWriterSize(writer{file, l.room.disk}, chunkBytes)
	put := func(line []byte) {
		n, _ := out.Write(line) // Flush returns the error
		m.bytes += int64(n)
	}
	put(m.header(l.id, g.boot)) // what that boot has lost stays lost
	err = l.each(g, func(seq uint64, line []byte) error {
		put(checked(mask(line), line, seq))
		put(lineEnd)
		return nil
	})
	if err = errors.Join(err, out.Flush()); err == nil {
		err = l.room.sync(file)
	}
	return m, errors.Join(err, file.Close())
}

// A writer writes to a file of disk.
type writer struct {
	file *os.File
	disk disk
}

func (w writer) Write(p []byte) (int, error) {
	if err := w.disk.write(w.file, p); err != nil {
		return 0, err
	}
	return len(p), nil
}

// checked returns masked if it can take the place of line in a log.
func checked(masked, line []byte, seq uint64) []byte {
	if bytes.Equal(masked, line) {
		return line
	}
	if n, ok := seqOf(masked); ok && n == seq && len(masked) <= protocol.MaxChatEvent &&
		json.Valid(masked) && !bytes.ContainsAny(masked, "\r\n") {
		return masked
	}
	var was struct {
		SessionID protocol.ConversationID `json:"sessionId"`
		Timestamp string                  `json:"timestamp"`
		Provider  string                  `json:"provider"`
		Kind      protocol.ChatKind       `json:"kind"`
	}
	if json.Unmarshal(line, &was) != nil {
		was.Kind = protocol.ChatStatus
	}
	rest, _, err := encode(&protocol.ChatEvent{
		SessionID: was.SessionID, Timestamp: was.Timestamp, Provider: was.Provider, Kind: was.Kind, Seq: seq,
	})
	if err != nil {
		panic(err) // it holds nothing that can't be encoded
	}
	return rest
}

// replace puts masked segments in the place of the ones that they came from.
// The caller holds writing.
func (l *Log) replace(masked map[*segment]*segment, epoch protocol.Epoch) error {
	l.closeOut()
	l.mu.Lock()
	defer l.mu.Unlock()
	before := l.size()
	var err error
	for i, g := range l.segments {
		m := masked[g]
		if m == nil {
			continue
		}
		if failed := os.Rename(m.path+newSuffix, m.path); failed != nil {
			err = errors.Join(err, failed)
			continue
		}
		l.segments[i] = m
	}
	l.epoch, l.tail = epoch, tail{}
	l.resets++
	l.wake()
	l.room.grow(l.size() - before)
	if err != nil { // what was not put in place must not be later: the log goes on
		err = errors.Join(err, l.removeAll(newSuffix))
	}
	return errors.Join(err, l.room.disk.syncFolder(l.folder()))
}
