package bridge

import (
	"context"
	"errors"
	"net/http"
	"time"
)

// listen passes on what the server says on its own in s, until s is lost.
func (b *bridge) listen(ctx context.Context, s *session) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer s.listening.happen()
	b.running.Go(func() {
		defer cancel()
		select {
		case <-s.lost.c:
		case <-ctx.Done():
		}
	})
	l := listener{bridge: b, session: s, stale: s.replaces, pause: b.newPause()}
	for ctx.Err() == nil {
		r, err := b.try(ctx, http.MethodGet, s, nil, l.at.id)
		switch {
		case errors.Is(err, errUnknown):
			b.lose(s)
			return
		case err != nil: // it may come back
			l.pause.heed(err)
		case r.StatusCode == http.StatusOK:
			l.hear(ctx, r)
		case !l.refused(refusal(r)):
			<-ctx.Done() // this server says nothing on its own
		}
		l.pause.wait(ctx)
	}
}

// A listener is where a session's stream stands.
type listener struct {
	bridge  *bridge
	session *session
	pause   *pause
	at      cursor
	stale   bool // the program's lists may be others than the server's
}

// fresh tells the program of changes that it may have missed.
func (l *listener) fresh() {
	l.session.listening.happen()
	if !l.stale {
		return
	}
	l.stale = false
	for _, kind := range l.session.lists {
		l.bridge.write(notification("notifications/"+kind+"/list_changed", nil))
	}
}

// hear passes on what one stream brings.
func (l *listener) hear(ctx context.Context, r *http.Response) {
	l.fresh()
	began := time.Now()
	err := l.bridge.messages(r, &l.at, func() {}, func(m *message) bool {
		l.bridge.hear(ctx, l.session, m)
		return false
	})
	if errors.Is(err, errEventTooLong) {
		l.at = cursor{} // behind it, or it comes again
	}
	l.stale = l.at.id == "" // what is said until the next one is lost
	l.pause.after(l.at.retry, time.Since(began))
}

// refused reports whether it makes sense to ask again.
func (l *listener) refused(e *refused) bool {
	switch {
	case e.status == http.StatusBadRequest && l.at.id != "":
		l.at, l.stale = cursor{}, true // it can't be resumed there
		return true
	case e.status == http.StatusMethodNotAllowed || e.status == http.StatusBadRequest:
		l.fresh()
		return false
	}
	return true
}
