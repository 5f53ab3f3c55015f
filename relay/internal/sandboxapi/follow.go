package sandboxapi

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"sync"
	"time"

	"github.com/fairlead/fairlead/deploy/program/pause"
	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/protocol/jws"
	"github.com/fairlead/fairlead/relay/internal/reverseproxy"
	"github.com/fairlead/fairlead/tunnel"
)

const (
	// maxFollowsPerPerson bounds one person's streams of approvals, and maxFollows
	// those of a relay; beyond them 429.
	maxFollowsPerPerson = 16
	maxFollows          = 4096
	// heartbeat is the interval of comments, which show either side whether the
	// other is still there.
	heartbeat = 15 * time.Second
	// followWriteTimeout bounds writing one event.
	followWriteTimeout = 10 * time.Second
	// lookEvery is the interval of looking for a lost sandbox.
	lookEvery = 100 * time.Millisecond
	// again is the pause before an ended stream is reopened.
	again = 500 * time.Millisecond
	// followOpening tells the page to reconnect after 2 s.
	followOpening = "retry: 2000\n\n"
)

// followers counts the streams of approvals. Its zero value is ready.
type followers struct {
	mu       sync.Mutex
	all      int                     // guarded by mu
	ofPerson map[protocol.UserID]int // guarded by mu
}

// enter counts one more, or fails with kind too_many.
func (f *followers) enter(id protocol.UserID) (leave func(), err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.all >= maxFollows || f.ofPerson[id] >= maxFollowsPerPerson {
		return nil, protocol.Errorf(protocol.KindTooMany, "too many streams of approvals")
	}
	if f.ofPerson == nil {
		f.ofPerson = map[protocol.UserID]int{}
	}
	f.all++
	f.ofPerson[id]++
	return func() {
		f.mu.Lock()
		defer f.mu.Unlock()
		f.all--
		if f.ofPerson[id]--; f.ofPerson[id] == 0 {
			delete(f.ofPerson, id)
		}
	}, nil
}

// A follow is one page that follows the approvals of a session.
type follow struct {
	api     *API
	grant   *jws.Grant
	token   string
	session protocol.SessionID
	since   *protocol.Position // where to continue; nil: from now on
	out     eventWriter
	events  int // approvals sent
}

// followApprovals is GET /sessions/{sid}/approvals/events: server-sent events.
// `opened` lists the pending approvals, `approval` is one change, `waiting`
// says that the sandbox is away. The id of an event is the position behind it.
func (a *API) followApprovals(w http.ResponseWriter, r *http.Request) {
	grant, token, err := a.authorize(r, protocol.CapApprove)
	f := &follow{api: a, grant: grant, token: token, session: protocol.SessionID(r.PathValue("sid"))}
	if err == nil {
		f.since, err = sinceOf(r)
	}
	var leave func()
	if err == nil {
		leave, err = a.followers.enter(grant.Subject)
	}
	if err != nil {
		a.refuse(w, err)
		return
	}
	defer leave()
	ctx, request, err := a.Requests.Begin(r.Context(), grant)
	if err != nil {
		a.refuse(w, err)
		return
	}
	defer request.End()
	request.Endless()
	session, err := a.Tunnels.Session(grant.Sandbox)
	var source *approvals
	if err == nil {
		source, err = f.open(ctx, session)
	}
	if err != nil {
		a.refuse(w, err)
		return
	}
	f.out = newEventWriter(w)
	defer f.out.release()
	err = f.run(ctx, session, source)
	if cause := context.Cause(ctx); cause != nil {
		err = cause
	}
	a.Log.Info("approvals followed", "session", f.session, "user", grant.Subject, "events", f.events, "ended", err)
}

// sinceOf returns the position from which r continues.
func sinceOf(r *http.Request) (*protocol.Position, error) {
	text := r.Header.Get("Last-Event-ID")
	if q := r.URL.Query(); q.Has("since") && text == "" {
		text = q.Get("since")
	}
	if text == "" {
		return nil, nil
	}
	position, err := protocol.ParsePosition(text)
	if err != nil {
		return nil, err
	}
	return &position, nil
}

// run sends the events of source and its successors until ctx ends, the page
// stops reading, or the sandbox refuses.
func (f *follow) run(ctx context.Context, session *tunnel.Session, source *approvals) error {
	for {
		err := f.relay(ctx, source)
		source.close()
		if ctx.Err() != nil || f.out.err != nil {
			return err
		}
		away := isOver(session)
		if away {
			err = f.await()
		} else { // the sandbox ended the stream, or its tunnel is ending
			err = f.pause(ctx, again)
		}
		if err != nil {
			return err
		}
		if session, source, err = f.reopen(ctx, away); err != nil {
			return err
		}
	}
}

// await tells the page that the sandbox is away.
func (f *follow) await() error {
	return f.out.event(protocol.ServerWaiting, "", protocol.Waiting{Reason: protocol.WaitingSandbox})
}

// reopen reopens the stream where it ended, over the present tunnel or the next
// one. waiting: the page knows that there is none.
func (f *follow) reopen(ctx context.Context, waiting bool) (*tunnel.Session, *approvals, error) {
	for {
		session, err := f.api.Tunnels.Session(f.grant.Sandbox)
		if err == nil && !isOver(session) {
			source, err := f.open(ctx, session)
			if err == nil {
				return session, source, nil
			}
			switch protocol.KindOf(err) {
			case protocol.KindUnavailable, protocol.KindUpstream, protocol.KindTooMany, protocol.KindInternal:
			default:
				return nil, nil, err // the sandbox refuses
			}
			if err := f.pause(ctx, again); err != nil {
				return nil, nil, err
			}
		}
		if !waiting {
			waiting = true
			if err := f.await(); err != nil {
				return nil, nil, err
			}
		}
		if err := f.pause(ctx, lookEvery); err != nil {
			return nil, nil, err
		}
	}
}

func isOver(session *tunnel.Session) bool {
	select {
	case <-session.Done():
		return true
	default:
		return false
	}
}

// pause sends comments for a while.
func (f *follow) pause(ctx context.Context, d time.Duration) error {
	if pause.For(ctx, d) != nil {
		return context.Cause(ctx)
	}
	return f.out.beat()
}

// relay sends source's events until either side ends.
func (f *follow) relay(ctx context.Context, source *approvals) error {
	if err := f.opened(source.opened); err != nil {
		return err
	}
	beat := time.NewTicker(time.Second) // for checking whether a heartbeat is due
	defer beat.Stop()
	for {
		select {
		case event, ok := <-source.events:
			if !ok {
				return source.err
			}
			if err := f.change(event); err != nil {
				return err
			}
		case <-beat.C:
			if err := f.out.beat(); err != nil {
				return err
			}
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

func (f *follow) opened(m protocol.ApprovalsOpened) error {
	if m.Pending == nil {
		m.Pending = []protocol.Approval{}
	}
	f.since = &protocol.Position{Epoch: m.Epoch, Offset: m.Offset}
	return f.out.event("opened", f.since.String(), m)
}

func (f *follow) change(m protocol.ApprovalEvent) error {
	f.since = &protocol.Position{Epoch: f.since.Epoch, Offset: m.Offset + 1}
	f.events++
	return f.out.event("approval", f.since.String(), m)
}

// approvals is a stream of approvals from the sandbox.
type approvals struct {
	stream *tunnel.Stream
	opened protocol.ApprovalsOpened
	events chan protocol.ApprovalEvent // closed at the end of the stream, after err is set
	err    error
	left   chan struct{} // closed by close
}

// open opens a stream at f's position. close ends its reader.
func (f *follow) open(ctx context.Context, session *tunnel.Session) (*approvals, error) {
	params, err := json.Marshal(protocol.ApprovalParams{SessionID: f.session, Since: f.since})
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, openTimeout)
	defer cancel()
	stream, answer, err := session.Open(ctx, protocol.LaneControl,
		protocol.Open{Kind: protocol.StreamApproval, Grant: f.token, Params: params})
	if err != nil {
		return nil, err
	}
	s := &approvals{stream: stream, events: make(chan protocol.ApprovalEvent), left: make(chan struct{})}
	if err := json.Unmarshal(answer.Result, &s.opened); err != nil {
		stream.Close()
		return nil, protocol.Fault(protocol.KindUpstream, fmt.Errorf("sandboxapi: result of OPENED: %w", err))
	}
	go s.read() // close waits for it
	return s, nil
}

func (s *approvals) read() {
	defer close(s.events)
	frames := protocol.NewFrameReader(s.stream)
	for {
		frame, err := frames.Next()
		var m protocol.Message
		if err == nil {
			m, err = protocol.Decode(frame)
		}
		if err != nil {
			s.err = err
			return
		}
		event, ok := m.(protocol.ApprovalEvent)
		if !ok {
			s.err = fmt.Errorf("sandboxapi: %s on a stream of approvals", frame.Type)
			return
		}
		select {
		case s.events <- event:
		case <-s.left:
			s.err = context.Canceled
			return
		}
	}
}

// close ends the stream and waits for its reader.
func (s *approvals) close() {
	close(s.left)
	s.stream.Close()
	for range s.events { // until read has closed it
	}
}

// An eventWriter writes server-sent events. After an error every call fails.
type eventWriter struct {
	w    http.ResponseWriter
	out  *http.ResponseController
	last time.Time // time of the last write
	err  error
}

// newEventWriter answers a request with a stream of events.
func newEventWriter(w http.ResponseWriter) eventWriter {
	h := w.Header()
	reverseproxy.Confine(h)
	h.Set("Content-Type", "text/event-stream")
	h.Set("X-Accel-Buffering", "no") // proxies must not buffer
	w.WriteHeader(http.StatusOK)
	e := eventWriter{w: w, out: http.NewResponseController(w)}
	_ = e.write([]byte(followOpening)) // if it fails, so does the next write
	return e
}

// event writes an event, with an id unless that is empty.
func (e *eventWriter) event(name, id string, v any) error {
	data, err := json.Marshal(v)
	if err != nil {
		return err
	}
	frame := make([]byte, 0, len(data)+len(name)+len(id)+32)
	frame = append(frame, "event: "+name+"\n"...)
	if id != "" {
		frame = append(frame, "id: "+id+"\n"...)
	}
	frame = append(frame, "data: "...)
	frame = append(frame, data...)
	return e.write(append(frame, "\n\n"...))
}

// beat writes a comment if the last write was too long ago.
func (e *eventWriter) beat() error {
	if time.Since(e.last) < heartbeat {
		return e.err
	}
	return e.write([]byte(": \n\n"))
}

func (e *eventWriter) write(data []byte) error {
	if e.err != nil {
		return e.err
	}
	e.last = time.Now()
	e.out.SetWriteDeadline(e.last.Add(followWriteTimeout)) // fails where there are no deadlines
	if _, e.err = e.w.Write(data); e.err == nil {
		e.err = e.out.Flush()
	}
	return e.err
}

// release clears the deadline, as the connection may be reused.
func (e *eventWriter) release() { e.out.SetWriteDeadline(time.Time{}) }
