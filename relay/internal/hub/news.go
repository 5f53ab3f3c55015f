package hub

import (
	"time"

	"github.com/fairlead/fairlead/protocol"
)

// newsInterval is the least time between two words about the session's list of
// terminals: each may have every viewer ask for it.
const newsInterval = time.Second

// news is that the session has other terminals than before, and when viewers were
// told last. Owned by run.
type news struct {
	latest int64     // as the agent said it; 0: nobody waits for any
	sent   time.Time // the last broadcast
}

// dueIn returns how long after now the next broadcast is, if one is needed.
func (n *news) dueIn(now time.Time) (wait time.Duration, needed bool) {
	return newsInterval - now.Sub(n.sent), n.latest != 0
}

// tellNews tells everybody, at once unless they were told a moment ago.
func (h *Hub) tellNews(now time.Time) {
	if wait, needed := h.news.dueIn(now); needed && wait <= 0 {
		h.broadcast(protocol.ListChanged{Timestamp: h.news.latest})
		h.news = news{sent: now}
	}
}
