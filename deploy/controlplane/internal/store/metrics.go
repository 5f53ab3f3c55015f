package store

import "database/sql"

// Stats returns how the connections for reading, and those for writing, are
// used.
func (s *Store) Stats() (read, write sql.DBStats) { return s.read.Stats(), s.write.Stats() }
