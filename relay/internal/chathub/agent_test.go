package chathub

import (
	"encoding/json"
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/tunnel"
)

// A sandbox plays an agent: it holds the logs of conversations and streams them as
// the protocol says.
type sandbox struct {
	tb testing.TB

	mu     sync.Mutex
	logs   map[protocol.ConversationID]*log
	grants []string                                    // of GRANT, in order
	takes  func(m protocol.GrantAdd) *protocol.Granted // nil: all are taken
	opens  func(o protocol.Open) error                 // nil: all may open
	raw    func(in *tunnel.Incoming, s *tunnel.Stream) // plays a hostile agent after OPENED
	reads  func(protocol.ChatReadParams) error         // nil: all is read
	news   []*tunnel.Stream
	seen   []protocol.ChatParams
	heard  chan protocol.Message
	newsIn chan struct{}
}

// A log is one conversation.
type log struct {
	id      protocol.ConversationID
	epoch   protocol.Epoch
	first   uint64
	last    uint64
	events  []protocol.Chat // Left 0
	state   protocol.ChatState
	lease   protocol.Lease
	streams map[*tunnel.Stream]*sync.Mutex
	changed chan struct{}
}

func newSandbox(tb testing.TB) *sandbox {
	return &sandbox{tb: tb, logs: map[protocol.ConversationID]*log{}, heard: make(chan protocol.Message, 1<<16), newsIn: make(chan struct{}, 64)}
}

// has makes a conversation with n events of finished runs.
func (s *sandbox) has(id protocol.ConversationID, n int) *log {
	s.mu.Lock()
	defer s.mu.Unlock()
	l := &log{
		id: id, epoch: 7, first: 1, state: protocol.ChatState{Run: protocol.RunIdle, Provider: "claude"},
		lease: protocol.Lease{Revision: 1, State: protocol.LeaseFree}, streams: map[*tunnel.Stream]*sync.Mutex{}, changed: make(chan struct{}),
	}
	s.logs[id] = l
	for range n {
		l.put("", text(id, l.last+1))
	}
	return l
}

// text returns an event.
func text(id protocol.ConversationID, seq uint64) string {
	return fmt.Sprintf(`{"kind":"text","id":"ev_%d","sessionId":%q,"seq":%d,"role":"assistant","content":"number %d"}`, seq, id, seq, seq)
}

func (l *log) put(origin protocol.CommandID, event string) protocol.Chat {
	l.last++
	m := protocol.Chat{Seq: l.last, Origin: origin, Bytes: []byte(event)}
	l.events = append(l.events, m)
	close(l.changed)
	l.changed = make(chan struct{})
	return m
}

// prints appends an event and sends it to all streams.
func (s *sandbox) prints(l *log) uint64 { return s.printsOf(l, "", "") }

func (s *sandbox) printsOf(l *log, origin protocol.CommandID, event string) uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	if event == "" {
		event = text(l.id, l.last+1)
	}
	return l.put(origin, event).Seq
}

// becomes sends another state, in order with events.
func (s *sandbox) becomes(l *log, run protocol.RunState, command protocol.CommandID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	l.state.Run, l.state.CommandID, l.state.BeganAt = run, command, 0
	if run != protocol.RunIdle {
		l.state.BeganAt = l.last + 1
	}
	s.tellLocked(l, l.state)
}

// goesOn sends that nothing runs here and the conversation goes on in a terminal.
func (s *sandbox) goesOn(l *log, in protocol.PTYID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	l.state.Run, l.state.CommandID, l.state.BeganAt, l.state.Terminal = protocol.RunIdle, "", 0, in
	s.tellLocked(l, l.state)
}

// marks are the messages that go between events, by the event that they follow.
type between struct {
	protocol.Message
	after uint64
}

// tellLocked queues a message for all streams behind the events so far.
func (s *sandbox) tellLocked(l *log, m protocol.Message) {
	for stream := range l.streams {
		l.pend(stream, between{m, l.last})
	}
	close(l.changed)
	l.changed = make(chan struct{})
}

var pends sync.Map // *tunnel.Stream → *[]between

func (l *log) pend(stream *tunnel.Stream, b between) {
	p, _ := pends.LoadOrStore(stream, new([]between))
	list := p.(*[]between)
	*list = append(*list, b)
}

// leases sends another lease.
func (s *sandbox) leases(l *log, lease protocol.Lease, id uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	l.lease = lease
	s.tellLocked(l, protocol.Leased{ID: id, Lease: lease})
}

// says sends any message.
func (s *sandbox) says(l *log, m protocol.Message) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.tellLocked(l, m)
}

// resets rewrites the log under another epoch.
func (s *sandbox) resets(l *log) {
	s.mu.Lock()
	defer s.mu.Unlock()
	l.epoch++
	s.tellLocked(l, protocol.ChatReset{Epoch: l.epoch, FirstSeq: l.first, LastSeq: l.last})
}

// cuts ends all streams of a conversation.
func (s *sandbox) cuts(l *log) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for stream := range l.streams {
		stream.Close()
	}
}

func (s *sandbox) answer(in *tunnel.Incoming) {
	s.mu.Lock()
	opens := s.opens
	s.mu.Unlock()
	if opens != nil {
		if err := opens(in.Open); err != nil {
			in.Refuse(err)
			return
		}
	}
	switch in.Open.Kind {
	case protocol.StreamChat:
		s.serveChat(in)
	case protocol.StreamChatRead:
		s.serveRead(in)
	case protocol.StreamChatNews:
		s.serveNews(in)
	default:
		in.Refuse(protocol.Fault(protocol.KindUnsupported, nil))
	}
}

func (s *sandbox) serveNews(in *tunnel.Incoming) {
	stream, err := in.Accept(protocol.Opened{Result: []byte(`{}`)})
	if err != nil {
		return
	}
	s.mu.Lock()
	s.news = append(s.news, stream)
	s.mu.Unlock()
	s.newsIn <- struct{}{}
	protocol.NewFrameReader(stream).Next()
	stream.Close()
}

func (s *sandbox) serveRead(in *tunnel.Incoming) {
	var p protocol.ChatReadParams
	json.Unmarshal(in.Open.Params, &p)
	s.mu.Lock()
	l, reads := s.logs[p.ConversationID], s.reads
	if l == nil {
		s.mu.Unlock()
		in.Refuse(protocol.Fault(protocol.KindNotFound, nil))
		return
	}
	opened := protocol.ChatReadOpened{Epoch: l.epoch, FirstSeq: l.first, Gap: p.After+1 < l.first}
	events := l.events
	s.mu.Unlock()
	if reads != nil {
		if err := reads(p); err != nil {
			in.Refuse(err)
			return
		}
	}
	result, _ := json.Marshal(opened)
	stream, err := in.Accept(protocol.Opened{Result: result})
	if err != nil {
		return
	}
	defer stream.Close()
	for _, e := range events {
		if e.Seq > p.After && e.Seq <= p.Until && e.Seq >= opened.FirstSeq && send(stream, e) != nil {
			return
		}
	}
}

// send sends an event in pieces.
func send(stream *tunnel.Stream, e protocol.Chat) error {
	all := e.Bytes
	for len(all) > 0 {
		n := min(len(all), protocol.MaxChatPiece)
		piece := protocol.Chat{Seq: e.Seq, Origin: e.Origin, Left: len(all) - n, Bytes: all[:n]}
		if err := protocol.Write(stream, piece); err != nil {
			return err
		}
		all = all[n:]
	}
	return nil
}

func (s *sandbox) serveChat(in *tunnel.Incoming) {
	var p protocol.ChatParams
	json.Unmarshal(in.Open.Params, &p)
	s.mu.Lock()
	s.seen = append(s.seen, p)
	l := s.logs[p.ConversationID]
	if l == nil || p.SessionID != testSession {
		s.mu.Unlock()
		in.Refuse(protocol.Fault(protocol.KindNotFound, nil))
		return
	}
	from := l.last + 1
	if l.state.Run != protocol.RunIdle {
		from = max(l.state.BeganAt, l.first)
	}
	gap := false
	if p.After != nil {
		from = *p.After + 1
		if gap = p.Epoch != l.epoch || from < l.first || from > l.last+1; gap {
			from = l.last + 1
		}
	}
	opened := protocol.ChatOpened{
		Epoch: l.epoch, FirstSeq: l.first, From: from, LastSeq: l.last, Gap: gap, State: l.state, Lease: l.lease,
	}
	result, err := json.Marshal(opened)
	if err != nil {
		s.tb.Error(err)
	}
	// Whoever has heard of the stream can have it cut, so it is known as soon.
	stream, err := in.Accept(protocol.Opened{Result: result})
	if err != nil {
		s.mu.Unlock()
		return
	}
	writing := &sync.Mutex{}
	l.streams[stream] = writing
	raw := s.raw
	s.mu.Unlock()
	defer func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(l.streams, stream)
		pends.Delete(stream)
	}()
	done := make(chan struct{})
	go func() {
		defer close(done)
		s.hear(stream, writing)
	}()
	if raw != nil {
		raw(in, stream)
		<-done // until the hub ends it
	} else {
		s.stream(l, stream, writing, from, done)
	}
	stream.Close()
	<-done
}

// stream sends events and what goes between them.
func (s *sandbox) stream(l *log, stream *tunnel.Stream, writing *sync.Mutex, next uint64, done chan struct{}) {
	for {
		s.mu.Lock()
		var batch []protocol.Message
		var pending []between
		if p, ok := pends.Load(stream); ok {
			list := p.(*[]between)
			pending, *list = *list, nil
		}
		for _, b := range pending {
			for ; next <= b.after; next++ {
				batch = append(batch, l.events[next-1])
			}
			batch = append(batch, b.Message)
		}
		for ; next <= l.last; next++ {
			batch = append(batch, l.events[next-1])
		}
		changed := l.changed
		s.mu.Unlock()
		for _, m := range batch {
			writing.Lock()
			var err error
			if e, ok := m.(protocol.Chat); ok {
				err = send(stream, e)
			} else {
				err = protocol.Write(stream, m)
			}
			writing.Unlock()
			if err != nil {
				return
			}
		}
		select {
		case <-changed:
		case <-done:
			return
		}
	}
}

// hear reads what the hub says, and takes grants.
func (s *sandbox) hear(stream *tunnel.Stream, writing *sync.Mutex) {
	frames := protocol.NewFrameReader(stream)
	for {
		frame, err := frames.Next()
		if err != nil {
			return
		}
		m, err := protocol.Decode(frame)
		if err != nil {
			s.tb.Errorf("from the hub: %v", err)
			return
		}
		if m, ok := m.(protocol.GrantAdd); ok {
			s.mu.Lock()
			s.grants = append(s.grants, m.Grant)
			takes := s.takes
			s.mu.Unlock()
			answer := &protocol.Granted{Handle: m.Handle}
			if takes != nil {
				answer = takes(m)
			}
			if answer != nil {
				writing.Lock()
				protocol.Write(stream, *answer)
				writing.Unlock()
			}
		}
		select {
		case s.heard <- m:
		default:
		}
	}
}

// tells sends news to all who hear them.
func (s *sandbox) tells(message string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, stream := range s.news {
		protocol.Write(stream, protocol.ChatNews{Message: json.RawMessage(message)})
	}
}

// long returns an event of about n bytes.
func long(id protocol.ConversationID, seq uint64, n int) string {
	return fmt.Sprintf(`{"kind":"text","sessionId":%q,"seq":%d,"content":%q}`, id, seq, strings.Repeat("x", n))
}
