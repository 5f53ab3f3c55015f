package owntabs

import (
	"context"
	"fmt"
	"time"

	"github.com/chromedp/cdproto/cdp"
	cdppage "github.com/chromedp/cdproto/page"
	"github.com/chromedp/chromedp"
)

const (
	// stepTimeout bounds one thing that is done in a page, or waited for there.
	stepTimeout = 30 * time.Second
	// lookEvery is how often a page is asked for what is waited for.
	lookEvery = 20 * time.Millisecond
)

// A page is one of the browser's.
type page struct {
	ctx context.Context // chromedp's, which ends with the browser
	run context.Context // whose end ends what is under way
}

// within is for one thing that is done in the page.
func (p page) within(limit time.Duration) (context.Context, context.CancelFunc) {
	ctx, stop := context.WithTimeout(p.ctx, limit)
	release := context.AfterFunc(p.run, stop)
	return ctx, func() {
		release()
		stop()
	}
}

// open goes to an address. The first step of a page makes its tab, which lives
// as long as the context of that step: there is no shorter one.
func (p page) open(url string) error {
	if err := chromedp.Do(p.ctx); err != nil {
		return err
	}
	ctx, stop := p.within(stepTimeout)
	defer stop()
	return chromedp.Do(ctx, chromedp.Navigate(url))
}

// front brings the page to the front, where it is drawn.
func (p page) front() error { return p.command(cdppage.BringToFront) }

// command has one command of the protocol carried out.
func (p page) command(cmd cdp.Command[cdp.Empty, cdp.Empty]) error {
	ctx, stop := p.within(stepTimeout)
	defer stop()
	return chromedp.Do(ctx, chromedp.Func(func(ctx context.Context, t *chromedp.Target) error {
		_, err := cdp.Call(ctx, t, cmd, cdp.Empty{})
		return err
	}))
}

// evaluate returns what an expression is, or what its promise brings.
func evaluate[T any](p page, expression string) (T, error) {
	return evaluateWithin[T](p, stepTimeout, expression)
}

func evaluateWithin[T any](p page, limit time.Duration, expression string) (T, error) {
	ctx, stop := p.within(limit)
	defer stop()
	return chromedp.Run(ctx, chromedp.Evaluate[T](expression, chromedp.EvalAwaitPromise))
}

// until waits for an expression to become true.
func (p page) until(what string) error {
	ctx, stop := p.within(stepTimeout)
	defer stop()
	tick := time.NewTicker(lookEvery)
	defer tick.Stop()
	for {
		shown, err := chromedp.Run(ctx, chromedp.Evaluate[bool]("Boolean("+what+")"))
		if shown && err == nil {
			return nil
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return fmt.Errorf("its page never shows %s: %w", what, ctx.Err())
		}
	}
}
