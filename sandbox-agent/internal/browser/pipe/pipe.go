// Package pipe exchanges messages with a Chromium, of which pages decide how many
// there are and how long: it keeps none over its limits.
package pipe

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"strconv"
	"sync"

	"github.com/chromedp/cdproto"
	"github.com/chromedp/cdproto/cdp/jsonv2"
	"github.com/chromedp/cdproto/target"
	"github.com/chromedp/chromedp"
)

const (
	// maxAnswer bounds an answer of Chromium, in bytes. A longer one is dropped,
	// and its caller gets an error.
	maxAnswer = 16 << 20
	// maxEvent bounds an event other than a screencast frame, in bytes; longer
	// ones are dropped.
	maxEvent = 64 << 10
	// pipeHead is how much of a message is read to classify it.
	pipeHead = 128
	// tooLargeCode is the error code of an answer over maxAnswer.
	tooLargeCode = -32090
)

// heard are the used events, with the largest size of each. All others are
// dropped without decoding: a page can cause them as fast as it likes.
var heard = map[string]int{
	"Page.lifecycleEvent":          maxEvent,
	"Page.frameNavigated":          maxEvent,
	"Page.javascriptDialogOpening": maxEvent,
	"Page.windowOpen":              maxEvent,
	"Page.screencastFrame":         maxAnswer,
	"Inspector.targetCrashed":      maxEvent,
	"Target.targetCreated":         maxEvent,
	"Target.targetDestroyed":       maxEvent,
	"Target.targetCrashed":         maxEvent,
	"Target.detachedFromTarget":    maxEvent,
}

// A Pipe exchanges messages with a Chromium started with
// --remote-debugging-pipe: JSON, each followed by a zero byte. It is a
// chromedp.Transport that keeps no message over its limits.
type Pipe struct {
	// Static after construction.
	r  io.ReadCloser
	w  io.WriteCloser
	br *bufio.Reader // of r; owned by Read

	close    sync.Once
	closeErr error // set by close

	writing sync.Mutex // held while a message is written

	// Guarded by mu.
	mu       sync.Mutex
	awaiting map[int64]target.SessionID // commands without an answer, with their sessions
}

// New returns a Pipe of its two directions.
func New(r io.ReadCloser, w io.WriteCloser) *Pipe {
	return &Pipe{r: r, w: w, br: bufio.NewReaderSize(r, 64<<10), awaiting: make(map[int64]target.SessionID)}
}

// Close closes both directions, which ends Chromium.
func (p *Pipe) Close() error {
	p.close.Do(func() { p.closeErr = errors.Join(p.w.Close(), p.r.Close()) })
	return p.closeErr
}

// Read returns the next message that somebody needs. It fails with io.EOF if
// Chromium has closed its end, and on malformed messages.
func (p *Pipe) Read(_ context.Context, m *cdproto.Message) error {
	for {
		done, err := p.next(m)
		if done || err != nil {
			return err
		}
	}
}

// next reads one message, and reports whether somebody needs it.
func (p *Pipe) next(m *cdproto.Message) (bool, error) {
	head, err := p.br.Peek(1)
	if err != nil {
		return false, err
	}
	head, err = p.br.Peek(min(pipeHead, max(p.br.Buffered(), len(head))))
	if err != nil {
		return false, err
	}
	if end := bytes.IndexByte(head, 0); end >= 0 {
		head = head[:end]
	}
	limit := maxAnswer
	if method, ok := eventName(head); ok {
		limit = heard[method]
	}
	id, isAnswer := answerID(head)
	text, whole, err := p.read(limit)
	switch {
	case err != nil:
		return false, err
	case !whole && isAnswer:
		*m = cdproto.Message{ID: id, SessionID: p.answered(id), Error: &cdproto.Error{
			Code: tooLargeCode, Message: fmt.Sprintf("the answer is larger than %d MiB", maxAnswer>>20),
		}}
		return true, nil
	case !whole, len(bytes.TrimSpace(text)) == 0:
		return false, nil
	}
	*m = cdproto.Message{}
	if err := jsonv2.Unmarshal(text, m, chromedp.DefaultUnmarshalOptions); err != nil {
		return false, fmt.Errorf("a message of Chromium: %w", err)
	}
	if m.ID != 0 {
		p.answered(m.ID)
		return true, nil
	}
	if m.Method == "Page.frameNavigated" && bytes.Contains(m.Params, []byte(`"parentId":`)) {
		return false, nil // of a frame in the page: chromedp would keep every one for ever
	}
	return len(text) <= heard[string(m.Method)], nil // the name may come late in the text
}

// read reads a message of at most limit bytes. It skips the rest of a longer
// one, and reports whether the message is whole.
func (p *Pipe) read(limit int) (text []byte, whole bool, err error) {
	whole = true
	for {
		piece, err := p.br.ReadSlice(0)
		if whole = whole && len(text)+len(piece) <= limit+1; whole {
			text = append(text, piece...)
		}
		switch {
		case err == nil:
			return bytes.TrimSuffix(text, []byte{0}), whole, nil
		case errors.Is(err, bufio.ErrBufferFull):
		case err == io.EOF && len(piece) > 0:
			return nil, false, io.ErrUnexpectedEOF
		default:
			return nil, false, err
		}
		if !whole {
			text = nil
		}
	}
}

// eventName returns the method of an event whose text begins with head.
func eventName(head []byte) (string, bool) {
	rest, ok := bytes.CutPrefix(head, []byte(`{"method":"`))
	if !ok {
		return "", false
	}
	name, _, ok := bytes.Cut(rest, []byte{'"'})
	return string(name), ok
}

// answerID returns the command's number in an answer whose text begins with
// head.
func answerID(head []byte) (int64, bool) {
	rest, ok := bytes.CutPrefix(head, []byte(`{"id":`))
	if !ok {
		return 0, false
	}
	n := bytes.IndexFunc(rest, func(r rune) bool { return r < '0' || r > '9' })
	if n <= 0 {
		return 0, false
	}
	id, err := strconv.ParseInt(string(rest[:n]), 10, 64)
	return id, err == nil
}

// answered removes an answered command, and returns its session.
func (p *Pipe) answered(id int64) target.SessionID {
	p.mu.Lock()
	defer p.mu.Unlock()
	session := p.awaiting[id]
	delete(p.awaiting, id)
	return session
}

// Write sends a command.
func (p *Pipe) Write(_ context.Context, m *cdproto.Message) error {
	text, err := jsonv2.Marshal(m, chromedp.DefaultMarshalOptions)
	if err != nil {
		return fmt.Errorf("encode %s: %w", m.Method, err)
	}
	p.mu.Lock()
	p.awaiting[m.ID] = m.SessionID
	p.mu.Unlock()
	p.writing.Lock() // not mu: reading must not depend on Chromium's reading
	defer p.writing.Unlock()
	_, err = p.w.Write(append(text, 0))
	return err
}

// TooLarge reports whether err says that an answer was over maxAnswer.
func TooLarge(err error) bool {
	var said *cdproto.Error
	return errors.As(err, &said) && said.Code == tooLargeCode
}
