package dbread

import (
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
	"io"

	"github.com/fairlead/fairlead/sandbox-agent/internal/history/rows"
	"github.com/fairlead/fairlead/sandbox-agent/internal/process/helper"
)

// Serve does what one request on in asks for, in the folder where the process
// works, and prints the answer. It is for a process that does nothing else, and
// bounds what that may use.
func Serve(ctx context.Context, in io.Reader, out io.Writer) error {
	var q request
	if err := json.NewDecoder(in).Decode(&q); err != nil {
		return err
	}
	if err := (helper.Limits{Patience: q.Patience, MaxMemory: maxMemory / 2}).Set(); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, q.Patience) // who asks may be gone
	defer cancel()
	a, err := serve(ctx, q)
	if err != nil {
		a = answer{Error: err.Error()[:min(len(err.Error()), maxWhy)]}
	}
	return json.NewEncoder(out).Encode(a)
}

func serve(ctx context.Context, q request) (a answer, err error) {
	f, known := formats[q.Format]
	if !known {
		return a, fmt.Errorf("no format %q", q.Format)
	}
	db, err := open(q.Name, q.Do != doDelete)
	if err != nil {
		return a, err
	}
	defer db.Close()
	switch q.Do {
	case doList:
		a.Sessions, err = f.sessions(ctx, db, q.Content)
	case doRead:
		a.Messages, err = f.messages(ctx, db, q.Session, q.Content)
	case doDelete:
		err = f.remove(ctx, db, q.Session)
	default:
		err = fmt.Errorf("can't do %q", q.Do)
	}
	return a, err
}

// A format reads one of the formats.
type format interface {
	sessions(ctx context.Context, db *sql.DB, most budget) ([]Session, error)
	messages(ctx context.Context, db *sql.DB, session string, most budget) ([]rows.Stored, error)
	remove(ctx context.Context, db *sql.DB, session string) error
}

var formats = map[Format]format{Opencode: opencode{}, Cursor: cursor{}}
