package history

import (
	"cmp"
	"slices"
	"time"

	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/sandbox-agent/internal/chat"
	"github.com/fairlead/fairlead/sandbox-agent/internal/chatlog"
	"github.com/fairlead/fairlead/sandbox-agent/internal/history/rows"
)

// joinWithin is how far apart a message's event and its row may be: a program
// takes its time to start.
const joinWithin = 2 * time.Minute

// A joiner gives rows of persons' messages the ids of their events, where the
// provider's program gives them ids of its own, and says who has sent them, under
// which name: no transcript does.
type joiner struct {
	h    api
	info chat.ConversationInfo

	loaded bool
	said   []chatlog.Saying          // of which no row is known
	window int64                     // of the model's context, 0: not known
	sent   map[string]chatlog.Saying // by ids of events
	ids    map[string]string         // of rows of a document, by the program's
}

// joiner returns one for what a conversation's transcript says.
func (h api) joiner(info chat.ConversationInfo, said *content) *joiner {
	j := &joiner{h: h, info: info}
	if all, ok := said.pages.(loaded); ok {
		j.document(all)
	}
	return j
}

// document joins all rows of a document: from the end, for the log may not have
// what was said first.
func (j *joiner) document(list []rows.Row) {
	j.ids = make(map[string]string)
	for _, r := range slices.Backward(list) {
		if !isSaid(&r) {
			continue
		}
		if id := j.find(j.h.o.Masker.Row(r)); id != "" {
			j.ids[r.ID] = id
		}
	}
}

// row returns a row, masked, with the id and the sender of its event. Of claude's
// own commands alone the rows have other ids than we have given.
func (j *joiner) row(r rows.Row) rows.Row {
	r = j.h.o.Masker.Row(r)
	switch {
	case j.ids != nil:
		if id := j.ids[r.ID]; id != "" {
			r.ID = id
		}
	case j.info.Provider == "claude" && isSaid(&r) && chatlog.IsCommand(*r.Content):
		if id := j.find(r); id != "" {
			r.ID = id
		}
	}
	if isSaid(&r) {
		j.load()
		sent := j.sent[r.ID]
		r.From, r.ClientMessageID = sent.From, sent.Own
		if len(r.Images) == 0 { // most programs keep but the path that the image had
			r.Images = sent.Images
		}
	}
	return r
}

// load reads what the conversation's log has of what persons have said.
func (j *joiner) load() {
	if j.loaded {
		return
	}
	j.loaded = true
	known, err := j.h.o.Runs.Said(j.info.Session, j.info.ID)
	if err != nil {
		j.h.log.Debug("rows keep the ids of their program", "conversation", j.info.ID, "err", err)
	}
	j.said, j.window = known.Sayings, known.Window
	j.sent = make(map[string]chatlog.Saying, len(j.said))
	for _, s := range j.said {
		j.sent[s.ID] = s
	}
}

// find returns the id of the event of a masked row, "" if there is none.
func (j *joiner) find(r rows.Row) string {
	j.load()
	at, err := time.Parse(rows.Stamp, r.Timestamp)
	timeless := err != nil || at.Unix() == 0
	text := chatlog.DigestOf(*r.Content)
	best, apart := -1, joinWithin
	for i, s := range slices.Backward(j.said) {
		if s.ID == r.ID {
			best = i
			break
		}
		renamed := r.IsLocalCommand && s.Command // commands have other names, too
		if s.Text != text && !renamed {
			continue
		}
		if timeless {
			best = i
			break
		}
		if d := at.Sub(s.At).Abs(); d < apart {
			best, apart = i, d
		}
	}
	if best < 0 {
		return ""
	}
	id := j.said[best].ID
	j.said = slices.Delete(j.said, best, best+1)
	return id
}

// isSaid reports whether a row is what a person has said.
func isSaid(r *rows.Row) bool {
	return r.Kind == protocol.ChatText && r.Role == "user" && r.Content != nil
}

// used returns what a transcript says of the use of the model's context. How large
// that is claude's doesn't say: it is what somebody has set, or else what its
// program has said last.
func (j *joiner) used(used *protocol.TokenBudget) *protocol.TokenBudget {
	if used == nil || j.info.Provider != "claude" {
		return used
	}
	j.load()
	of := *used
	of.Total = cmp.Or(j.h.o.ContextWindow, j.window, of.Total)
	return &of
}
