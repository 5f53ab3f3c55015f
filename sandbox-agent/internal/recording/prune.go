package recording

import (
	"cmp"
	"errors"
	"io/fs"
	"os"
	"slices"

	"github.com/fairlead/fairlead/protocol"
)

// prune removes ended recordings, the oldest first, until all together are
// within the bound. Running ones count, and stay.
func (s *Store) prune() {
	type ended struct {
		session protocol.SessionID
		protocol.RecordingInfo
	}
	var total int64
	var candidates []ended
	sessions, err := os.ReadDir(s.dir)
	if err != nil {
		s.log.Warn("recordings can't be listed", "err", err)
		return
	}
	for _, e := range sessions {
		session := protocol.SessionID(e.Name())
		for _, info := range s.List(session) {
			total += info.Bytes
			if info.EndedAt != 0 {
				candidates = append(candidates, ended{session, info})
			}
		}
	}
	slices.SortFunc(candidates, func(a, b ended) int { return cmp.Compare(a.EndedAt, b.EndedAt) })
	for _, old := range candidates {
		if total <= s.maxTotal {
			return
		}
		if err := s.remove(old.session, old.ID); err != nil {
			s.log.Warn("a recording can't be removed", "session", old.session, "recording", old.ID, "err", err)
			continue
		}
		total -= old.Bytes
		s.log.Info("the oldest recording was removed to make room", "session", old.session, "recording", old.ID, "bytes", old.Bytes)
	}
}

// remove deletes an ended recording, first the file that lists it.
func (s *Store) remove(session protocol.SessionID, id string) error {
	for _, suffix := range []string{infoSuffix, castSuffix} {
		if err := os.Remove(s.path(session, id, suffix)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.masking.masked, id)
	return nil
}
