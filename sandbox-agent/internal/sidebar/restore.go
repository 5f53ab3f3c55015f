package sidebar

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/sandbox-agent/internal/sidebar/places"
	"github.com/fairlead/fairlead/sandbox-agent/internal/sidebar/ring"
)

// restore takes up what an earlier agent has left, however it ended. Entries have the
// numbers that they had, and what nobody was told of comes behind them: a panel that
// asks for what it missed gets that, once. It is called once, before anything else.
func (p *Panel) restore() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return
	}
	f, there, err := load(p.file)
	if err != nil {
		p.o.Log.Error("a side panel can't be read and begins anew", "session", p.session, "err", err)
	}
	next := firstNumber(f.Next, time.Now())
	placed, held, err := places.Open(placesOf(p.file))
	if err != nil {
		p.o.Log.Error("a side panel's entries won't outlive the agent", "session", p.session, "err", err)
	} else {
		p.places = placed
	}
	if n := len(held); n > 0 {
		next = max(next, held[n-1].Number+1)
	}
	p.entries = ring.New[Entry](next, maxEntries, maxEntryBytes)
	if there {
		p.active, p.now, p.past = cmp.Or(f.Active, firstTab), f.Now, f.Past
		p.returns(f.Tabs, held)
	}
	p.place()
	p.save()
}

// returns takes up tabs, whose entries had these places. The caller holds mu.
func (p *Panel) returns(tabs []storedTab, held []places.Place) {
	var all []*returning
	var entries []Entry
	for _, stored := range tabs {
		r := &returning{
			tab: &tab{board: &p.board, id: stored.ID, conversation: stored.Conversation}, stored: stored, of: map[uint64][]places.Place{},
		}
		for _, place := range held {
			if place.Tab == int64(stored.ID) {
				r.places = append(r.places, place)
			}
		}
		p.tabs = append(p.tabs, r.tab)
		r.replay()
		entries = append(entries, r.entries...)
		all = append(all, r)
	}
	slices.SortFunc(entries, func(a, b Entry) int { return cmp.Compare(a.ID, b.ID) })
	for _, e := range entries {
		p.entries.Put(e.ID, e.size(), e)
	}
	for _, r := range all {
		r.goOn()
	}
}

// atOnce waits for nothing.
var atOnce = func() until {
	over := make(chan struct{})
	close(over)
	return over
}()

// A returning is a tab that an earlier agent has left. Its methods are called with
// board.mu held.
type returning struct {
	*tab
	stored    storedTab
	places    []places.Place
	of        map[uint64][]places.Place // by their events
	entries   []Entry                   // that it had, in any order
	listening Listening                 // nil: there is nothing to hear
	state     protocol.ChatState
	next      *protocol.ChatEvent // the first one that the panel wasn't told of; nil: there is none yet
	fromNow   bool                // nothing of the conversation was told before
}

// replay reads what the tab's entries are about from its conversation.
func (r *returning) replay() {
	for _, place := range r.places {
		r.told = max(r.told, place.Seq)
		r.of[place.Seq] = append(r.of[place.Seq], place)
		if e, own := ownEntry(place); own {
			r.add(e, place)
		}
	}
	r.told = max(r.told, r.stored.Told)
	r.listen()
	for r.listening != nil && r.next == nil {
		e, err := r.listening.Next(atOnce)
		switch {
		case errors.Is(err, context.Canceled):
			return
		case err != nil:
			r.board.o.Log.Warn("a side panel's conversation can't be read", "conversation", r.conversation, "err", err)
			return
		case e.Seq > r.told:
			r.next = &e
			r.shown = r.message(e)
		default:
			r.again(e)
		}
	}
}

// listen begins to hear the conversation where the oldest entry has its place.
func (r *returning) listen() {
	if r.conversation == "" {
		return
	}
	after := r.told
	for _, place := range r.places {
		if place.Seq > 0 {
			after = min(after, place.Seq-1)
		}
	}
	if r.told == 0 && !r.stored.Works {
		after, r.fromNow = fromNow, true
	}
	var err error
	r.listening, r.state, err = r.board.o.Conversations.Listen(r.board.session, r.conversation, after)
	if err == nil {
		return
	}
	r.listening = nil
	if protocol.KindOf(err) == protocol.KindNotFound { // somebody has removed it
		r.conversation = ""
		return
	}
	r.board.o.Log.Warn("a side panel's conversation can't be heard", "conversation", r.conversation, "err", err)
}

// again takes an event that the panel was told of.
func (r *returning) again(e protocol.ChatEvent) {
	if begins(e) {
		r.message(e)
		r.runs = telling{command: e.CommandID}
		return
	}
	if e.Kind == protocol.ChatComplete && e.CommandID != cmp.Or(r.runs.command, e.CommandID) {
		return
	}
	told, whole := r.runs.tell(e)
	if whole {
		r.entries = slices.DeleteFunc(r.entries, func(e Entry) bool { return e.Type == typeDelta })
	}
	for _, entry := range told {
		entry.Role, entry.seq = roleAgent, e.Seq
		for _, place := range r.of[e.Seq] {
			if place.Type == entry.Type && place.Question == entry.RequestID {
				r.add(entry, place)
			}
		}
	}
}

// message takes what somebody has said, and returns its command if there was an entry
// about it.
func (r *returning) message(e protocol.ChatEvent) protocol.CommandID {
	i := slices.IndexFunc(r.places, func(place places.Place) bool {
		return place.Type == roleUser && place.Command == e.CommandID
	})
	if !begins(e) || i < 0 {
		return ""
	}
	r.add(Entry{Role: roleUser, Message: cut(*e.Content, maxText)}, r.places[i])
	return e.CommandID
}

// add adds an entry that had a place.
func (r *returning) add(e Entry, place places.Place) {
	e.ID, e.TabID, e.at, e.seq, e.command = place.Number, r.id, place.Time, place.Seq, place.Command
	e.Time = stamp(time.UnixMilli(place.Time))
	r.entries = append(r.entries, e)
}

// goOn tells of what has happened since, and hears what will.
func (r *returning) goOn() {
	open := r.runs.command != "" && !r.endedByPanel() && !r.runs.ended
	if !open {
		r.runs.ended = true
	}
	switch running := r.state.Run != protocol.RunIdle && r.listening != nil; {
	case running && r.fromNow:
		r.foreign(r.state.CommandID, 0)
	case running:
		r.board.lineup.Taken(r.id, time.Now())
		if r.runs.command == "" { // its beginning was forgotten
			r.runs = telling{command: r.state.CommandID}
		}
	}
	r.catchUp(open)
	if r.listening != nil {
		r.hears(r.listening)
	}
}

// catchUp tells of what has happened. open: a run was under way.
func (r *returning) catchUp(open bool) {
	lost, was := r.lost(), r.runs.command
	for r.listening != nil {
		if r.next == nil {
			e, err := r.listening.Next(atOnce)
			if err != nil {
				break // there is none, or whoever hears it finds out why
			}
			r.next = &e
		}
		if lost != "" && r.cutOff(*r.next) {
			r.end(lost)
			lost = ""
		}
		r.take(*r.next)
		r.next = nil
	}
	if (open || r.endedByPanel()) && r.runs.command == was && r.runs.ended && r.stored.Waiting == 0 {
		return // it had its end
	}
	if lost != "" {
		r.board.add(r.id, Entry{Role: roleAgent, Type: typeError, Error: lost})
		r.runs.ended = r.runs.ended || r.runs.command == was
	}
}

// cutOff reports whether an event ends a run that the end of an agent has cut off:
// nobody knows more.
func (r *returning) cutOff(e protocol.ChatEvent) bool {
	return e.Kind == protocol.ChatComplete && e.CommandID == r.runs.command && !r.runs.ended && r.runs.failed == "" &&
		(e.Success == nil || !*e.Success) && (e.Aborted == nil || !*e.Aborted)
}

// endedByPanel reports whether the panel itself has said that the latest run is over.
func (r *returning) endedByPanel() bool {
	for _, place := range slices.Backward(r.places) {
		switch {
		case place.Type == typeStart, place.Type == roleUser:
			return false
		case place.Type == typeError && place.Seq == 0:
			return true
		}
	}
	return false
}

// lost says what the end of the earlier agent has ended, "" for nothing.
func (r *returning) lost() string {
	if !r.stored.Works && r.stored.Waiting == 0 {
		return ""
	}
	r.board.counts.message(messageLost, r.stored.Waiting)
	text := "The sandbox's agent was restarted."
	if r.stored.Waiting > 0 {
		text += fmt.Sprintf(" %d waiting messages were not sent.", r.stored.Waiting)
	}
	return text
}

// placesOf is where a panel's places are, whose file this is.
func placesOf(file string) string { return file[:len(file)-len(fileEnd)] + ".places" }
