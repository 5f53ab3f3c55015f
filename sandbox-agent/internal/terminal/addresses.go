package terminal

import (
	"sync"
	"time"

	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/sandbox-agent/internal/arbiter"
	"github.com/fairlead/fairlead/sandbox-agent/internal/linkfinder"
	"github.com/fairlead/fairlead/sandbox-agent/internal/transcript"
)

const (
	// searchBytes is how much output is searched at once.
	searchBytes = 64 << 10
	// maxUnsearched is how far the search may be behind. Of more than that in a
	// moment nobody opens an address, so it goes on at the end.
	maxUnsearched = 1 << 20
)

// An addressSearch finds the addresses in what a shell prints, whoever watches. It reads
// the log, where secrets are masked, and holds nothing back.
type addressSearch struct {
	printed chan struct{}  // closed when there is no more to come
	running sync.WaitGroup // run
}

// begin starts the search of a log that has no bytes yet. note is told of what is
// found.
func (s *addressSearch) begin(log *transcript.Transcript, note func(protocol.Address)) {
	s.printed = make(chan struct{})
	follower := log.Follow(log.End())
	s.running.Go(func() { s.run(log, follower, note) })
}

// end returns when everything was searched, so that nothing is found behind the
// terminal's end. Without a search it does nothing.
func (s *addressSearch) end() {
	if s.printed != nil {
		close(s.printed)
		s.running.Wait()
	}
}

// run searches until there is no more to come.
func (s *addressSearch) run(log *transcript.Transcript, follower *transcript.Follower, note func(protocol.Address)) {
	defer follower.Close()
	var finder linkfinder.Finder
	tell := func(found []linkfinder.Link) {
		for _, l := range found {
			note(protocol.Address{URL: l.URL, AutoOpen: l.AutoOpen})
		}
	}
	timer := time.NewTimer(arbiter.NoDeadline)
	defer timer.Stop()
	epoch, printed, over := log.Epoch(), s.printed, false
	for {
		item, ok, err := follower.Next(searchBytes)
		if err != nil || log.Head() > item.Offset+maxUnsearched && ok {
			follower.Move(log.Newcomer())
			finder.Reset()
			continue
		}
		now := time.Now()
		if ok {
			if item.Epoch != epoch {
				epoch = item.Epoch
				finder.Reset()
			}
			finder.Write(item.Bytes, now)
			tell(finder.Take(now))
			continue
		}
		if over {
			tell(finder.Flush(now))
			return
		}
		if due, waits := finder.Due(); waits {
			timer.Reset(due.Sub(now))
		}
		select {
		case <-follower.Wake:
		case <-timer.C:
			tell(finder.Take(time.Now()))
		case <-printed:
			printed, over = nil, true
		}
	}
}
