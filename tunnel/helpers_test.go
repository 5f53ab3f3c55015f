package tunnel_test

import (
	"context"
	"errors"
	"log/slog"

	"github.com/fairlead/fairlead/tunnel"
)

func discard() *slog.Logger { return slog.New(slog.DiscardHandler) }

// dialling is a keeper that dials "a" and gets no tunnel.
type dialling struct {
	fatal error
	dial  func(ctx context.Context, addr string) (*tunnel.Session, error)
}

func (dialling) Next(context.Context) (string, error) { return "a", nil }

func (d dialling) Dial(ctx context.Context, addr string) (*tunnel.Session, error) {
	return d.dial(ctx, addr)
}

func (dialling) Serve(context.Context, string, *tunnel.Session) error { panic("there is no tunnel") }

func (d dialling) Fatal(err error) bool { return errors.Is(err, d.fatal) }
