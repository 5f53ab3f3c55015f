package source

import (
	"cmp"
	"errors"
	"net/http"

	"github.com/fairlead/fairlead/deploy/program"
	"github.com/fairlead/fairlead/deploy/source/internal/config"
	"github.com/fairlead/fairlead/deploy/source/internal/sending"
	"github.com/fairlead/fairlead/protocol"
)

var (
	errTold        = errors.New("a check failed") // and everything is said of it already
	errInterrupted = errors.New("interrupted")
)

// An answered error is one that the other side has told.
type answered struct {
	status        int
	message, name string
}

func (a *answered) Error() string {
	if a.status == http.StatusUnauthorized {
		return "your token isn't valid (any more): " + a.message
	}
	return a.message
}

// misused is an error of the command line.
func misused(text string) error {
	return program.WithStatus(&protocol.Error{Kind: protocol.KindInvalid, Message: text}, statusUsage)
}

// body is an error as DESIGN has them: what the other side has named keeps its name.
func body(err error) protocol.ErrorBody {
	name := protocol.AsError(err).Kind.Name()
	said, told := errors.AsType[*answered](err)
	refusal, refused := errors.AsType[*sending.Refusal](err)
	switch {
	case told:
		name = cmp.Or(said.name, protocol.KindByStatus(said.status).Name())
	case refused:
		name = cmp.Or(refusal.Name, protocol.KindByStatus(refusal.Status).Name())
	case errors.Is(err, config.ErrNotLoggedIn):
		name = protocol.KindUnauthenticated.Name()
	case errors.Is(err, config.ErrNotPaired):
		name = protocol.KindNotFound.Name()
	}
	return protocol.ErrorBody{Message: err.Error(), Name: name}
}
