package chathub

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"sync"
	"sync/atomic"

	"github.com/fairlead/fairlead/deploy/program/pause"
	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/relay/internal/agentstream"
	"github.com/fairlead/fairlead/relay/internal/chatring"
	"github.com/fairlead/fairlead/tunnel"
)

// A filler reads agents' logs for the cursors of one socket that are older than
// their rings, one after another. Meanwhile the socket's other conversations go on.
type filler struct {
	// Static after construction.
	life    agentstream.Life // of the socket
	key     Key              // without a conversation
	token   *atomic.Pointer[string]
	tunnels agentstream.Tunnels
	queue   *queue
	log     *slog.Logger
	metrics *Metrics
	running sync.WaitGroup

	// Guarded by mu.
	mu      sync.Mutex
	waiting []*spot
	busy    bool // a goroutine handles them
}

// fill has the log read for a cursor. Only the socket's writer calls it.
func (r *filler) fill(s *spot) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.waiting = append(r.waiting, s)
	if !r.busy {
		r.busy = true
		r.running.Go(r.run)
	}
}

// run reads until nobody waits.
func (r *filler) run() {
	for {
		r.mu.Lock()
		if r.busy = len(r.waiting) > 0 && r.life.Err() == nil; !r.busy {
			r.waiting = nil
			r.mu.Unlock()
			return
		}
		s := r.waiting[0]
		r.waiting = r.waiting[1:]
		r.mu.Unlock()
		r.read(s)
	}
}

// read reads what a cursor lacks until it is in the ring, or gives up.
func (r *filler) read(s *spot) {
	for {
		part, ok := s.cursor.Lacks()
		if !ok {
			return
		}
		err := r.part(s, part)
		switch {
		case r.life.Err() != nil:
			return
		case err == nil:
			s.cursor.Done(part)
		case errors.Is(err, chatring.ErrVoid):
		case agentstream.Final(err):
			s.cursor.GiveUp(part)
		default:
			r.log.Info("a chat log was not read", "conversation", s.conversation, "err", err)
			pause.For(r.life, agentstream.FirstPause)
		}
	}
}

// part reads a part of the agent's log and queues it.
func (r *filler) part(s *spot, p chatring.Part) error {
	params, err := json.Marshal(protocol.ChatReadParams{
		SessionID: r.key.Session, ConversationID: s.conversation, After: p.After, Until: p.Until,
	})
	if err != nil {
		return err
	}
	session, err := r.tunnels.Wait(r.life, r.key.Sandbox)
	if err != nil {
		return err
	}
	var opened protocol.ChatReadOpened
	stream, err := openRead(r.life, session, protocol.Open{Kind: protocol.StreamChatRead, Grant: *r.token.Load(), Params: params}, &opened)
	if err != nil {
		return err
	}
	defer stream.Close()
	defer context.AfterFunc(r.life, func() { stream.Close() })()
	r.metrics.Reads.Inc()
	if err := s.cursor.Reads(p, opened.Epoch, opened.Gap); err != nil {
		return err
	}
	return r.events(s, p, protocol.NewFrameReader(stream))
}

// openRead opens a stream to a part of a log.
func openRead(ctx context.Context, session *tunnel.Session, open protocol.Open, opened *protocol.ChatReadOpened) (*tunnel.Stream, error) {
	ctx, cancel := context.WithTimeout(ctx, openTimeout)
	defer cancel()
	stream, answer, err := session.Open(ctx, protocol.LaneBulk, open)
	if err != nil {
		return nil, err
	}
	if err := json.Unmarshal(answer.Result, opened); err != nil {
		stream.Close()
		return nil, protocol.Fault(protocol.KindUpstream, fmt.Errorf("chathub: result of OPENED: %w", err))
	}
	return stream, nil
}

// events queues the events of a part of the log as they come.
func (r *filler) events(s *spot, p chatring.Part, frames *protocol.FrameReader) error {
	var pieces chatring.Assembly
	last := p.After
	for {
		frame, err := frames.Next()
		if errors.Is(err, io.EOF) && !pieces.Started() {
			return nil
		}
		if err != nil {
			return err
		}
		m, err := protocol.Decode(frame)
		if err != nil {
			return err
		}
		piece, ok := m.(protocol.Chat)
		if !ok || piece.Seq <= last || piece.Seq > p.Until {
			r.metrics.Dropped.WithLabelValues(droppedStream).Inc()
			return fmt.Errorf("chathub: %s in events %d to %d of a log", frame.Type, last+1, p.Until)
		}
		whole, err := pieces.Add(piece)
		if err != nil {
			r.metrics.Dropped.WithLabelValues(droppedStream).Inc()
			return err
		}
		if !whole {
			continue
		}
		last = piece.Seq
		e, err := pieces.Take()
		if err != nil {
			r.metrics.Dropped.WithLabelValues(droppedEvent).Inc()
			continue
		}
		if err := r.event(s, p, e); err != nil {
			return err
		}
	}
}

// event queues one event once there is room.
func (r *filler) event(s *spot, p chatring.Part, e chatring.Event) error {
	for !r.queue.reserve(len(e.Frame)) {
		select {
		case <-r.queue.room:
		case <-r.life.Done():
			return chatring.ErrVoid
		}
	}
	used, err := s.cursor.Read(p, e)
	if !used {
		r.queue.free(len(e.Frame))
		return err
	}
	r.metrics.ReadBytes.Add(float64(len(e.Frame)))
	return nil
}
