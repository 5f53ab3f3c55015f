package main

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/fairlead/fairlead/deploy/controlplane/internal/store"
	"github.com/fairlead/fairlead/deploy/program"
	"github.com/fairlead/fairlead/protocol"
)

// A finder replaces a name that somebody typed by an id. It fails when
// nothing ever had that name or id: an empty list would hide a typing error.
type finder func(ctx context.Context, st *store.Store) error

// find has all finders look, in their order.
func find(ctx context.Context, st *store.Store, finders ...finder) error {
	for _, f := range finders {
		if err := f(ctx, st); err != nil {
			return err
		}
	}
	return nil
}

// aUser finds a user by their id, their e-mail address or, where it is theirs
// alone, their name. Empty stays empty.
func aUser[T ~string](of *T) finder {
	return func(ctx context.Context, st *store.Store) error {
		if *of == "" {
			return nil
		}
		err := st.People.KnownUser(ctx, protocol.UserID(*of))
		if protocol.KindOf(err) != protocol.KindNotFound {
			return err
		}
		users, failed := st.People.UsersNamed(ctx, string(*of))
		if failed != nil || len(users) == 0 {
			return errors.Join(failed, err)
		}
		var ids []string
		for _, u := range users {
			ids = append(ids, string(u.ID))
		}
		return only(of, "user", ids)
	}
}

// aDashboard finds a dashboard by its id or, where it is its alone, its name.
func aDashboard(of *string) finder {
	return func(ctx context.Context, st *store.Store) error {
		if *of == "" {
			return nil
		}
		err := st.Boards.KnownDashboard(ctx, *of)
		if protocol.KindOf(err) != protocol.KindNotFound {
			return err
		}
		ids, failed := st.Boards.DashboardsNamed(ctx, *of)
		if failed != nil || len(ids) == 0 {
			return errors.Join(failed, err)
		}
		return only(of, "dashboard", ids)
	}
}

// aSession finds a session by its id, or by the dashboard whose only open one it
// is.
func aSession[T ~string](of *T) finder {
	return func(ctx context.Context, st *store.Store) error {
		if *of == "" {
			return nil
		}
		err := st.Sessions.KnownSession(ctx, protocol.SessionID(*of))
		if protocol.KindOf(err) != protocol.KindNotFound {
			return err
		}
		dashboard := string(*of)
		if failed := aDashboard(&dashboard)(ctx, st); failed != nil {
			if protocol.KindOf(failed) == protocol.KindNotFound {
				return err
			}
			return failed
		}
		sessions, failed := st.Sessions.SessionsOf(ctx, dashboard)
		if failed != nil {
			return failed
		}
		var open []string
		for _, s := range sessions {
			if s.State != store.StateEnded {
				open = append(open, string(s.ID))
			}
		}
		if len(open) == 0 {
			return fmt.Errorf("no session is open in dashboard %s", dashboard)
		}
		return only(of, "session", open)
	}
}

// only replaces a name by the one id that was found.
func only[T ~string](of *T, what string, ids []string) error {
	if len(ids) > 1 {
		return program.Hint(fmt.Errorf("%q is the name of more than one %s", *of, what), "say which: "+strings.Join(ids, ", "))
	}
	*of = T(ids[0])
	return nil
}
