package history

import (
	"context"
	"errors"
	"io/fs"
	"path"
	"strings"
	"time"

	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/sandbox-agent/internal/feature"
)

// FurnishHome implements [feature.Furnisher]: it watches the home of a terminal
// from its start on. It writes nothing, but the transcripts that a program in the
// home of conversations is about to go on with.
func (h *History) FurnishHome(of feature.Home) error {
	switch {
	case of.Root.Name() == h.o.ChatHomes.ChatHome(of.Session):
		h.open(of.Session, chatHome, of.Root.Name())
		return h.bringAll(of.Session)
	case of.Agent == "" && of.PTY != "":
		h.open(of.Session, of.PTY, of.Root.Name())
	}
	return nil
}

// Bring has the transcript of a conversation lie where its program goes on with
// it. That of one that was begun in a terminal is copied into the home of
// conversations; if that isn't there yet, as soon as it is. A database isn't: it
// fails with KindUnsupported.
func (h *History) Bring(session protocol.SessionID, id protocol.ConversationID) error {
	info, err := h.o.Conversations.Get(session, id)
	if err != nil {
		return err
	}
	t := h.transcriptOf(info)
	if t == nil {
		return nil
	}
	if t.home.pty == chatHome {
		return h.setApart(t, time.Now())
	}
	if _, ok := t.layout.(stored); ok {
		return protocol.Errorf(protocol.KindUnsupported,
			"%s keeps this session in a database of the terminal where it was begun: it can go on only there", t.native.provider)
	}
	h.mu.Lock()
	s := h.shelf(info.Session)
	to := s.homes[chatHome]
	if to == nil {
		s.awaiting = append(s.awaiting, t)
	}
	h.mu.Unlock()
	if to == nil {
		return nil
	}
	return h.copy(t, to)
}

// bringAll copies what waits for the home of conversations.
func (h *History) bringAll(session protocol.SessionID) error {
	h.mu.Lock()
	s := h.shelf(session)
	all, to := s.awaiting, s.homes[chatHome]
	s.awaiting = nil
	h.mu.Unlock()
	var errs []error
	for _, t := range all {
		if to != nil {
			errs = append(errs, h.copy(t, to))
		}
	}
	return errors.Join(errs...)
}

// copy copies a transcript to another home, unless that has it.
func (h *History) copy(t *transcript, to *home) error {
	f, err := t.home.files.Open(t.name)
	if err != nil {
		return protocol.Fault(protocol.KindUnavailable, err)
	}
	defer f.Close()
	err = to.files.Write(t.name, f)
	if err != nil && !errors.Is(err, fs.ErrExist) {
		return protocol.Fault(protocol.KindUnavailable, err)
	}
	h.examine(context.Background(), place{to, t.name})
	return nil
}

// geminiName is how gemini calls a transcript: by the minute in which it began it,
// and the beginning of the session's id.
const geminiName = "session-2006-01-02T15-04-"

// setApart gives a transcript of gemini's that was begun in this minute the name
// of an earlier one: gemini would begin another one for the session that it goes
// on with, by the same name, and so write over what it wants to read.
func (h *History) setApart(t *transcript, now time.Time) error {
	dir, base := path.Split(t.name)
	now = now.UTC()
	rest, this := strings.CutPrefix(base, now.Format(geminiName))
	if _, ok := t.layout.(gemini); !ok || !this {
		return nil
	}
	for minutes := range 60 {
		name := dir + now.Add(-time.Duration(minutes+1)*time.Minute).Format(geminiName) + rest
		err := t.home.files.Rename(t.name, name)
		if errors.Is(err, fs.ErrExist) {
			continue
		}
		if err != nil {
			return protocol.Fault(protocol.KindUnavailable, err)
		}
		h.lost(t.place)
		h.examine(context.Background(), place{t.home, name})
		return nil
	}
	return protocol.Errorf(protocol.KindUnavailable, "gemini has too many transcripts of one session")
}
