package cookies

import (
	"context"
	"errors"
	"time"

	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/protocol/audit"
	"github.com/fairlead/fairlead/protocol/op"
	"github.com/fairlead/fairlead/protocol/seal"
)

const (
	// setTimeout and setEach bound how long Chromium may take for cookies.
	setTimeout = time.Minute
	setEach    = 5 * time.Millisecond
	// maxPosts bounds the envelopes for one pairing that are under way, most of which
	// wait for their turn.
	maxPosts = 64
	// way is how long a push stands back between its steps.
	way = time.Millisecond
)

// A push is an envelope whose sequence counts, and what has come of it.
type push struct {
	sink     *Sink
	pairing  *pairing
	envelope seal.Envelope
	policy   *seal.Policy

	number  int64
	batch   batch
	report  report
	gone    []seal.CookieID // not the pairing's any more
	removed int             // of them, since the envelope is complete without them
}

// take does with an opened envelope what it says. Its steps are an order: one that
// fails leaves everything behind it as it was.
func (s *Sink) take(ctx context.Context, p *pairing, plain []byte) (op.SyncAnswer, error) {
	if err := p.session.turn.take(ctx); err != nil {
		return op.SyncAnswer{}, err
	}
	defer p.session.turn.give()
	versions, err := s.stands(p)
	if err != nil {
		return op.SyncAnswer{}, err
	}
	envelope, err := seal.DecodeInSteps(plain, versions, new(steps))
	if err != nil {
		return op.SyncAnswer{}, err
	}
	last, err := p.tracker.check(envelope.SourceHostname, envelope.Sequence)
	if err != nil {
		return op.SyncAnswer{}, err
	}
	policy, err := readPolicy(s.dirOf(p.session.id))
	if err != nil {
		return op.SyncAnswer{}, err
	}
	giveWay()
	if err := p.tracker.store(last); err != nil {
		return op.SyncAnswer{}, err
	}
	giveWay()
	work := &push{sink: s, pairing: p, envelope: envelope, policy: policy}
	err = work.do()
	work.note(err)
	return work.report.answer(), err
}

// stands returns the versions that a pairing takes, unless it has ended meanwhile.
func (s *Sink) stands(p *pairing) ([]int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.addresses[p.Address] != p {
		return nil, errNoAddress
	}
	return p.versions, nil
}

// do writes what passes. What is kept is written before Chromium has it: nothing is
// there that the pairing's end wouldn't take out. It goes on when the source is gone.
func (w *push) do() error {
	w.sift()
	ctx, cancel := context.WithTimeout(w.pairing.session.over, setTimeout+time.Duration(len(w.batch.cookies))*setEach)
	defer cancel()
	if err := w.keep(); err != nil {
		return fault("the cookies can't be stored", err)
	}
	giveWay()
	if err := w.set(ctx); err != nil {
		return fault("the cookies can't be written into the browser", err)
	}
	if err := w.sink.retract(ctx, w.pairing.session.id, w.policy, w.gone); err != nil {
		return fault("not all cookies that are gone could be taken out of the browser", err)
	}
	return nil
}

// sift passes over what may not be there, and what can't.
func (w *push) sift() {
	w.report.ignored = w.envelope.Ignored
	now := time.Now()
	w.batch.cookies = w.envelope.Cookies[:0] // there is no second copy: as many were read before
	for _, c := range w.envelope.Cookies {
		if !w.policy.Passes(c.HostKey) {
			w.report.drop(c.HostKey)
		} else if err := c.Check(now); err != nil {
			w.report.refuse(c, err.Error())
		} else if w.batch.put(c) {
			w.report.duplicates++
		}
	}
	w.envelope.Cookies = nil // they are in the batch
}

// keep makes the cookies the pairing's. Those of a complete envelope are all that it
// has; others come to those that it had.
func (w *push) keep() error {
	p := w.pairing
	p.session.push++
	w.number = p.session.push
	now := time.Now()
	return w.rewrite(func(old seal.Cookie) bool {
		if old.Check(now) != nil {
			return false // it has expired
		}
		if w.envelope.Complete {
			w.removed++
		}
		return !w.envelope.Complete && w.policy.Passes(old.HostKey)
	})
}

// set writes the batch into Chromium. What that refuses isn't kept.
func (w *push) set(ctx context.Context) error {
	if len(w.batch.cookies) == 0 {
		return nil
	}
	refused, err := w.sink.o.Chromium.SetCookies(ctx, w.pairing.session.id, w.batch.cookies)
	if err != nil {
		return err
	}
	w.report.written = len(w.batch.cookies) - len(refused)
	if len(refused) == 0 {
		return nil
	}
	var took batch
	out := map[seal.CookieID]bool{}
	for i, c := range w.batch.cookies {
		if why, is := refused[i]; is {
			w.report.refuse(c, why)
			out[c.ID()] = true
		} else {
			took.put(c)
		}
	}
	w.batch = took
	return w.rewrite(func(old seal.Cookie) bool { return !out[old.ID()] })
}

// rewrite changes the pairing's set to have the batch.
func (w *push) rewrite(stays func(seal.Cookie) bool) error {
	sum, gone, err := w.pairing.kept.rewrite(w.batch, w.number, stays)
	if err != nil {
		return err
	}
	w.gone = append(w.gone, gone...)
	w.sink.mu.Lock()
	w.pairing.sum = sum
	w.sink.mu.Unlock()
	return nil
}

// note tells of the push: people, the audit log, and the log.
func (w *push) note(err error) {
	s, p := w.sink, w.pairing
	w.report.removed = w.removed
	defer giveWay()
	last := op.SyncPush{
		At: time.Now().UnixMilli(), Hostname: w.envelope.SourceHostname, Sequence: w.envelope.Sequence,
		Written: w.report.written, Dropped: w.report.dropped, Refused: w.report.refused,
	}
	s.mu.Lock()
	p.last = &last
	s.mu.Unlock()
	if err := p.saveLast(last); err != nil {
		s.o.Log.Warn("what came of a push won't outlive the agent", "pairing", p.ID, "err", err)
	}
	s.o.Metrics.pushed(&w.report)
	if s.o.Audit != nil {
		record := audit.Sync{
			Session: p.session.id, Pairing: p.ID, User: p.User, Hostname: last.Hostname, Sequence: last.Sequence,
			Written: last.Written, Dropped: last.Dropped, Refused: last.Refused, Removed: w.removed,
		}
		if err != nil {
			record.Error = protocol.KindOf(err).Name()
		}
		s.o.Audit.Sync(record)
	}
	s.o.Log.Info("cookies taken", "session", p.session.id, "pairing", p.ID, "hostname", last.Hostname, "sequence", last.Sequence,
		"written", last.Written, "dropped", last.Dropped, "dropped_hosts", w.report.hostsForLog(), "refused", last.Refused, "removed", w.removed,
		"failed", err != nil)
}

// retract takes cookies out of Chromium that a pairing no longer has. Where another one
// has them, its are put back. The session's turn is held.
func (s *Sink) retract(ctx context.Context, session protocol.SessionID, policy *seal.Policy, gone []seal.CookieID) error {
	if len(gone) == 0 {
		return nil
	}
	lost := make(map[seal.CookieID]bool, len(gone))
	for _, id := range gone {
		lost[id] = true
	}
	others, err := s.newest(session, func(id seal.CookieID) bool { return lost[id] })
	errs := []error{err}
	now := time.Now()
	var back []seal.Cookie
	for id, k := range others {
		if policy.Passes(id.HostKey) && k.Cookie.Check(now) == nil {
			back = append(back, k.Cookie)
			delete(lost, id)
		}
	}
	if len(back) > 0 {
		refused, err := s.o.Chromium.SetCookies(ctx, session, back)
		errs = append(errs, err)
		for i := range refused {
			lost[back[i].ID()] = true // it would stay as the pairing had it
		}
	}
	if len(lost) > 0 {
		out := make([]seal.CookieID, 0, len(lost))
		for id := range lost {
			out = append(out, id)
		}
		errs = append(errs, s.o.Chromium.RemoveCookies(ctx, session, out))
	}
	return errors.Join(errs...)
}

// giveWay lets others have the processor before the next piece of work. A sandbox
// often has one: what waits for the disk there keeps it, as Go sees only after up to
// 10 ms that a system call takes long, and a terminal's echo passes through half a
// dozen goroutines. Many that push at once can wait, somebody who types can't.
func giveWay() { time.Sleep(way) }
