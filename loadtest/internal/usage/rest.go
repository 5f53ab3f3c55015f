package usage

import (
	"context"
	"time"

	"github.com/fairlead/fairlead/deploy/program/pause"
	"github.com/fairlead/fairlead/loadtest/internal/measure"
)

// settle is how long a process gets to come to rest.
const settle = 2 * time.Second

// AtRest returns the resident bytes of a process after a while in which nothing
// new is asked of it.
func AtRest(ctx context.Context, pid int) (bytes int64, err error) {
	if err := pause.For(ctx, settle); err != nil {
		return 0, err
	}
	r, err := measure.ReadProcess(pid)
	return r.RSSBytes, err
}
