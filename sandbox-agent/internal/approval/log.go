// Package approval keeps requests that a sandbox may carry out only if somebody
// allows them: the open questions, the first answer to each, and a log of both
// per session, on disk. If nobody answers in time, the answer is no.
package approval

import (
	"context"
	"crypto/rand"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/protocol/eventlog"
	"github.com/fairlead/fairlead/sandbox-agent/internal/feature"
	"github.com/fairlead/fairlead/sandbox-agent/internal/journal"
)

const (
	// maxTTL bounds the life of a question.
	maxTTL = time.Hour
	// maxHostBytes is the longest host in a question: a name of 253 bytes and a
	// port.
	maxHostBytes = 260
)

// Options configure a [Log].
type Options struct {
	Dir    string // made if missing, 0700
	Logger *slog.Logger
	// Listeners are called for each approval that was asked, decided, cancelled or
	// has expired, in order, after it was stored and before it takes effect. During
	// Open they get those that ended with the last process.
	Listeners []Listener
}

// A Listener gets approvals as they are stored, without the inputs of tools. It
// must not block, nor call the Log.
type Listener interface{ Approval(protocol.Approval) }

var _ interface {
	feature.Router
	feature.Followed
	feature.SessionEnder
	io.Closer
} = (*Log)(nil)

// A Log holds the approvals of a sandbox. It is safe for concurrent use.
type Log struct {
	// Static after construction.
	disk      journal.Disk
	log       *slog.Logger
	listeners []Listener

	lagging atomic.Uint64 // for Stats

	mu sync.Mutex
	// Guarded by mu, which is held while the disk is written: what takes effect
	// is stored first, in the order in which it does.
	state    *state
	sessions map[protocol.SessionID]*sessionLog
	unknown  protocol.Epoch // of sessions without a log
	timer    *time.Timer    // fires at the next deadline; nil before the first question
	stats    Stats
	closed   bool
}

// Stats count what happened since the Log was opened.
type Stats struct {
	Asked     uint64 // opened questions
	Coalesced uint64 // requests that joined an open question
	Refused   uint64 // too many were open
	Unstored  uint64 // refused or undecided because the disk failed
	Decided   uint64
	Expired   uint64
	Cancelled uint64
	Late      uint64 // decisions after the end
	Lagging   uint64 // subscribers ended for being too slow
	Pending   int    // open questions
}

// A Request is a sandbox's question.
type Request struct {
	Session protocol.SessionID
	PTY     protocol.PTYID // the asking terminal; may be empty
	Kind    protocol.ApprovalKind
	Host    string        // canonical, ASCII; broker: host or host:port
	Port    int           // egress
	Secret  string        // broker: name of the secret
	TTL     time.Duration // at most 1 h; 0: the default of the kind
}

func (r *Request) check() error {
	if r.TTL == 0 {
		r.TTL = protocol.EgressTTL
		if r.Kind == protocol.ApprovalBroker {
			r.TTL = protocol.BrokerTTL
		}
	}
	switch {
	case !protocol.ValidID(r.Session), r.PTY != "" && !protocol.ValidID(r.PTY):
		return protocol.Errorf(protocol.KindInvalid, "an approval belongs to a session")
	case r.Kind != protocol.ApprovalEgress && r.Kind != protocol.ApprovalBroker:
		return protocol.Errorf(protocol.KindInvalid, "unknown kind of approval")
	case r.Host == "" || len(r.Host) > maxHostBytes || strings.ContainsFunc(r.Host, func(c rune) bool { return c <= ' ' || c > '~' }):
		return protocol.Errorf(protocol.KindInvalid, "not a canonical host")
	case r.Kind == protocol.ApprovalEgress && (r.Port < 1 || r.Port > 65535 || r.Secret != ""):
		return protocol.Errorf(protocol.KindInvalid, "an egress approval has a host and a port")
	case r.Kind == protocol.ApprovalBroker && (r.Port != 0 || protocol.CheckEnvName(r.Secret) != nil):
		return protocol.Errorf(protocol.KindInvalid, "a broker approval has a host and a secret")
	case r.TTL < 0 || r.TTL > maxTTL:
		return protocol.Errorf(protocol.KindInvalid, "an approval may be pending for %v at most", maxTTL)
	}
	return nil
}

// Open reads the logs in o.Dir. Approvals that were pending when the last
// process ended have expired, or are cancelled if they were about tools. It puts a damaged file aside, and its session
// begins anew: a sandbox that doesn't start would be worse. It fails if there
// is no directory.
func Open(o Options) (*Log, error) {
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	folder, err := journal.MakeFolder(o.Dir)
	if err != nil {
		return nil, fmt.Errorf("approvals: %w", err)
	}
	l := newLog(o, folder)
	names, err := folder.Names(suffix)
	if err != nil {
		return nil, fmt.Errorf("approvals: %w", err)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	names = slices.DeleteFunc(names, func(name string) bool { return !protocol.ValidID(name) })
	for i, name := range names {
		if i < maxFiles {
			l.load(folder, protocol.SessionID(name))
		} else if err := folder.Remove(name + suffix); err != nil {
			l.log.Warn("the approvals of an old session stay", "file", folder.Path(name+suffix), "err", err)
		}
	}
	return l, nil
}

func newLog(o Options, disk journal.Disk) *Log {
	return &Log{
		disk: disk, log: o.Logger, listeners: o.Listeners,
		state: newState(), sessions: map[protocol.SessionID]*sessionLog{}, unknown: journal.NewEpoch(),
	}
}

// load reads the log of one session. The caller holds mu.
func (l *Log) load(folder journal.Folder, session protocol.SessionID) {
	s, o := l.newSession(session)
	var err error
	if s.events, err = journal.Open(o); err != nil {
		aside := folder.PutAside(o.Name) // if that fails, the file is overwritten
		l.log.Error("a session's approvals are of no use; it begins anew", "file", folder.Path(o.Name), "err", err, "aside", aside)
		return
	}
	l.sessions[session] = s
	s.events.View(func(events *eventlog.Log[protocol.Approval]) {
		for _, a := range events.All() {
			if a.State != protocol.ApprovalPending {
				l.state.over[a.ID] = a
			}
		}
	})
	var over []protocol.Approval
	for _, a := range s.pendingAt(s.events.Position().Offset) {
		over = append(over, without(a, time.Now().UnixMilli()))
	}
	l.storeAnyway(s, over)
	for _, a := range over {
		l.state.over[a.ID] = a
		l.count(a)
		l.tell(a)
	}
}

// count counts an approval that has ended without an answer. It is called with
// mu held.
func (l *Log) count(a protocol.Approval) {
	if a.State == protocol.ApprovalCancelled {
		l.stats.Cancelled++
	} else {
		l.stats.Expired++
	}
}

// Ask asks somebody to allow r, or joins an open question for the same. It
// fails with KindTooMany at protocol.MaxApprovals open questions, with
// KindNoSpace or KindUnavailable if the question can't be stored, and with
// KindInvalid: none of these is a yes.
func (l *Log) Ask(r Request) (*Pending, error) {
	if err := r.check(); err != nil {
		return nil, err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return nil, errClosed
	}
	now := time.Now()
	l.expire(now)
	about := subject{r.Session, r.Kind, r.Host, r.Port, r.Secret}
	if q := l.state.same[about]; q != nil {
		l.stats.Coalesced++
		return &Pending{q}, nil
	}
	if l.state.full(r.Kind) {
		l.stats.Refused++
		return nil, protocol.Errorf(protocol.KindTooMany, "too many approvals are pending")
	}
	a := protocol.Approval{
		ID: newID(), Revision: 1, Kind: r.Kind, SessionID: r.Session, PTYID: r.PTY,
		Host: r.Host, Port: r.Port, Secret: r.Secret, State: protocol.ApprovalPending,
		AskedAt: now.UnixMilli(), EndsAt: now.Add(r.TTL).UnixMilli(),
	}
	if err := l.storeAsked(a); err != nil {
		return nil, err
	}
	return l.asked(l.state.add(about, a, now.Add(r.TTL)), now), nil
}

func newID() string { return "apr_" + strings.ToLower(rand.Text()) }

// storeAsked stores a question. It is called with mu held.
func (l *Log) storeAsked(a protocol.Approval) error {
	s := l.session(a.SessionID)
	err := l.store(s, a)
	if err != nil {
		l.stats.Unstored++
		l.drop(s)
	}
	return err
}

// asked tells of a question that is stored. It is called with mu held.
func (l *Log) asked(q *question, now time.Time) *Pending {
	l.stats.Asked++
	l.tell(l.timed(q.approval, now))
	l.schedule()
	return &Pending{q}
}

var errClosed = protocol.Errorf(protocol.KindUnavailable, "the sandbox is shutting down")

// Await is Ask and Wait. With every error the decision is Deny.
func (l *Log) Await(ctx context.Context, r Request) (protocol.Decision, error) {
	p, err := l.Ask(r)
	if err != nil {
		return protocol.Deny, err
	}
	return p.Wait(ctx)
}

// Decide answers an approval. It uses answer's ID, Revision (as the person saw
// it), Kind, SessionID, Decision, UserID, GrantID and CommandID. The first
// answer in time is stored and takes effect, and applied is true. Otherwise it
// returns the approval's present state. It fails with KindNotFound if the
// session doesn't have the approval, or no longer, with KindConflict for a
// pending one of another revision, with KindInvalid for another kind, and with
// KindNoSpace or KindUnavailable if the answer can't be stored: then the
// approval stays pending.
func (l *Log) Decide(answer protocol.Approval) (as protocol.Approval, applied bool, err error) {
	return l.DecideTool(answer, Reply{})
}

// DecideTool is Decide for an approval that may be about a tool. It uses answer's
// Remember, too; with reaches whoever has asked, and is stored nowhere.
func (l *Log) DecideTool(answer protocol.Approval, with Reply) (as protocol.Approval, applied bool, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return protocol.Approval{}, false, errClosed
	}
	now := time.Now()
	l.expire(now)
	next, applied, err := l.state.answer(answer, now.UnixMilli())
	if err != nil {
		return protocol.Approval{}, false, err
	}
	if !applied {
		l.stats.Late++
		return next, false, nil
	}
	if err := l.store(l.session(next.SessionID), next); err != nil {
		l.stats.Unstored++
		return protocol.Approval{}, false, err
	}
	l.stats.Decided++
	l.tell(next)
	l.state.settle(next, with)
	l.schedule()
	return next, true, nil
}

// expire settles what is due. It is called with mu held.
func (l *Log) expire(now time.Time) {
	due := l.state.due(now)
	for len(due) > 0 {
		session := due[0].approval.SessionID
		var over []protocol.Approval
		rest := due[:0]
		for _, q := range due {
			if q.approval.SessionID == session {
				over = append(over, expired(q.approval, now.UnixMilli()))
			} else {
				rest = append(rest, q)
			}
		}
		due = rest
		l.end(l.session(session), over)
	}
	l.schedule()
}

// end settles questions of a session that nobody has answered. It is called
// with mu held.
func (l *Log) end(s *sessionLog, over []protocol.Approval) {
	l.storeAnyway(s, over)
	for _, a := range over {
		l.count(a)
		l.tell(a)
		l.state.settle(a, Reply{})
	}
}

// schedule has the next deadline kept. It is called with mu held.
func (l *Log) schedule() {
	next := l.state.deadline()
	switch {
	case next.IsZero() && l.timer != nil:
		l.timer.Stop()
	case next.IsZero():
	case l.timer == nil:
		l.timer = time.AfterFunc(time.Until(next), func() {
			l.mu.Lock()
			defer l.mu.Unlock()
			if !l.closed {
				l.expire(time.Now())
			}
		})
	default:
		l.timer.Reset(time.Until(next))
	}
}

// store puts an event on disk, and then into the session's log. It is called
// with mu held.
func (l *Log) store(s *sessionLog, event protocol.Approval) error {
	if err := s.events.Append(event); err != nil {
		return l.failed(s, err)
	}
	return nil
}

// storeAnyway is store for what happens whether or not it can be stored: an
// agent that starts again finds it pending, and lets it expire.
func (l *Log) storeAnyway(s *sessionLog, events []protocol.Approval) {
	if len(events) == 0 {
		return
	}
	if err := s.events.AppendAnyway(events...); err != nil {
		l.failed(s, err)
	}
}

// failed logs that the disk has failed, and returns the error for whoever asked.
func (l *Log) failed(s *sessionLog, err error) error {
	l.log.Error("approvals can't be stored", "session", s.session, "err", err)
	return unstored(err)
}

// session returns the log of a session, made when there is none. It is called
// with mu held.
func (l *Log) session(id protocol.SessionID) *sessionLog {
	s := l.sessions[id]
	if s == nil {
		var o journal.Options[protocol.Approval]
		s, o = l.newSession(id)
		s.events = journal.New(o, protocol.Position{Epoch: l.unknown})
		l.sessions[id] = s
	}
	return s
}

// drop forgets the log of a session to which nothing has happened yet, unless
// somebody waits for that. It is called with mu held.
func (l *Log) drop(s *sessionLog) {
	if s.events.Position().Offset == 0 && !s.events.Followed() && l.sessions[s.session] == s {
		delete(l.sessions, s.session)
	}
}

func (l *Log) tell(a protocol.Approval) {
	for _, listener := range l.listeners {
		listener.Approval(a)
	}
}

// SessionEnded implements [feature.SessionEnder]: what is pending expires, or is
// cancelled if it is about a tool, and the session's log goes.
func (l *Log) SessionEnded(session protocol.SessionID) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	s := l.sessions[session]
	if s == nil || l.closed {
		return nil
	}
	var over []protocol.Approval
	for _, q := range l.state.of(session) {
		over = append(over, without(q.approval, time.Now().UnixMilli()))
	}
	l.end(s, over)
	l.schedule()
	s.events.View(func(events *eventlog.Log[protocol.Approval]) {
		for _, a := range events.All() {
			delete(l.state.over, a.ID)
		}
	})
	s.events.End(ErrEnded)
	delete(l.sessions, session)
	l.unknown = journal.NewEpoch() // should the session come back, it is another
	if err := s.events.Remove(); err != nil {
		return fmt.Errorf("approvals: %w", err)
	}
	return nil
}

// Stats returns what was counted.
func (l *Log) Stats() Stats {
	l.mu.Lock()
	defer l.mu.Unlock()
	stats := l.stats
	stats.Pending, stats.Lagging = len(l.state.open), l.lagging.Load()
	return stats
}

// Close ends all waits, with Deny, and all subscriptions. What is pending is
// found expired or cancelled by the next Open.
func (l *Log) Close() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return nil
	}
	l.closed = true
	if l.timer != nil {
		l.timer.Stop()
	}
	for _, q := range l.state.open {
		q.fail(errClosed)
	}
	for _, s := range l.sessions {
		s.events.End(ErrEnded)
	}
	return nil
}
