package owntabs

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/fairlead/fairlead/deploy/client"
	"github.com/fairlead/fairlead/loadtest/internal/measure"
	"github.com/fairlead/fairlead/loadtest/internal/openloop"
	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/protocol/op"
)

const (
	// MaxTabs bounds the tabs of a browser.
	MaxTabs = 20
	// MaxBurst is how many commands an extension takes at once.
	MaxBurst = 256
	// callTimeout bounds one command, which the control plane ends sooner.
	callTimeout = 30 * time.Second
)

// A Caller has commands run in a browser's tabs, times them, and compares what ran
// with what was sent.
type Caller struct {
	// Static after construction.
	browser *Browser
	user    *client.User
	origin  string // of a relay
	rec     *measure.Recorder

	sent int // commands so far: each has a number of its own
}

// NewCaller returns one that posts commands of user, whose tabs those of b are.
func NewCaller(b *Browser, user *client.User, origin string, rec *measure.Recorder) *Caller {
	for _, name := range []string{"failed_calls", "lost_commands", "doubled_commands", "disordered_commands"} {
		rec.Counter(name)
	}
	return &Caller{browser: b, user: user, origin: origin, rec: rec}
}

// Await waits until the session's members see all tabs.
func (c *Caller) Await(ctx context.Context) error {
	ctx, stop := context.WithTimeout(ctx, callTimeout)
	defer stop()
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for {
		var list struct{ Tabs []struct{ BrowserID string } }
		if err := c.user.Call(ctx, http.MethodGet, "/tabs", nil, nil, &list); err != nil {
			return err
		}
		shared := 0
		for _, tab := range list.Tabs {
			if tab.BrowserID == c.browser.id {
				shared++
			}
		}
		if shared == len(c.browser.shared) {
			return nil
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return fmt.Errorf("%d of %d tabs are shared: %w", shared, len(c.browser.shared), ctx.Err())
		}
	}
}

// Direct has the extension do alone, and as often, what commands have it do.
func (c *Caller) Direct(figure string, rate float64, lasts time.Duration) error {
	took, err := c.browser.Direct(0, max(1, int(rate*lasts.Seconds())), time.Duration(float64(time.Second)/rate), "1+1")
	now := time.Now()
	for _, t := range took {
		c.rec.Latency(figure).RecordDuration(now, t)
	}
	return err
}

// Watched is Paced while the console lists what ran.
func (c *Caller) Watched(ctx context.Context, figure string, rate float64, lasts time.Duration) error {
	if err := c.browser.Watch(true); err != nil {
		return err
	}
	err := c.Paced(ctx, figure, rate, lasts)
	return errors.Join(err, c.browser.Watch(false))
}

// Paced posts commands when they are due, to all tabs in turn.
func (c *Caller) Paced(ctx context.Context, figure string, rate float64, lasts time.Duration) error {
	sent := make([][]int, len(c.browser.shared))
	var calls sync.WaitGroup
	_, err := openloop.Each(ctx, rate, lasts, func(n int, due time.Time) error {
		c.rec.Latency(measure.LagName).Record(due, time.Now())
		tab := n % len(c.browser.shared)
		number := c.number()
		sent[tab] = append(sent[tab], number)
		calls.Go(func() { // at most rate times callTimeout of them
			if c.push(ctx, tab, number) {
				c.rec.Latency(figure).Record(due, time.Now())
			}
		})
		return nil
	})
	calls.Wait()
	if err != nil {
		return err
	}
	return c.judge(sent)
}

// Asleep posts commands, each at a worker that has ended.
func (c *Caller) Asleep(ctx context.Context, figure string, n int) error {
	sent := make([][]int, len(c.browser.shared))
	for i := range n {
		if err := c.browser.Sleep(); err != nil {
			return err
		}
		tab, number, began := i%len(c.browser.shared), c.number(), time.Now()
		sent[tab] = append(sent[tab], number)
		if c.push(ctx, tab, number) {
			c.rec.Latency(figure).Record(began, time.Now())
		}
	}
	return c.judge(sent)
}

// Burst posts n commands at once, and compares with the order in which the relay
// carried them. It returns how long it took until the last one's outcome.
func (c *Caller) Burst(ctx context.Context, n int) (time.Duration, error) {
	grant, err := c.user.Grant(ctx, c.origin)
	if err != nil {
		return 0, err
	}
	carried, err := Listen(ctx, c.origin, grant, c.browser.id)
	if err != nil {
		return 0, err
	}
	var calls sync.WaitGroup
	sent := make([][]int, len(c.browser.shared))
	began := time.Now()
	for i := range n {
		tab, number := i%len(sent), c.number()
		sent[tab] = append(sent[tab], number)
		calls.Go(func() { c.push(ctx, tab, number) })
	}
	calls.Wait()
	took := time.Since(began)
	came := carried.Close()
	for tab, id := range c.browser.shared {
		order := came[id]
		for _, number := range sent[tab] { // what the relay refused is lost, if it doesn't run
			if !slices.Contains(order, number) {
				order = append(order, number)
			}
		}
		sent[tab] = order
	}
	return took, c.judge(sent)
}

func (c *Caller) number() int {
	c.sent++
	return c.sent
}

// push has a command push a number, and reports whether its outcome is ok.
func (c *Caller) push(ctx context.Context, tab, number int) bool {
	limited, stop := context.WithTimeout(ctx, callTimeout)
	defer stop()
	var outcome struct {
		Status string
		Result struct {
			Response struct{ Result struct{ Value any } }
		}
		Error *protocol.ErrorBody
	}
	target := protocol.CommandTarget{SessionID: c.browser.session, ExtensionID: c.browser.ext, BrowserID: c.browser.id, TabID: c.browser.shared[tab]}
	err := c.user.Command(limited, target, map[string]any{
		"kind": op.KindCDPSend, "method": "Runtime.evaluate", "params": map[string]any{"expression": Push(number), "returnByValue": true},
	}, &outcome)
	switch {
	case err != nil:
	case outcome.Status != protocol.StatusOK:
		err = fmt.Errorf("outcome %s: %+v", outcome.Status, outcome.Error)
	case outcome.Result.Response.Result.Value != 2.0:
		err = fmt.Errorf("1+1 is %v", outcome.Result.Response.Result.Value)
	default:
		return true
	}
	if ctx.Err() == nil {
		c.rec.Counter("failed_calls").Add(1)
		c.rec.Fail("page_command", err)
	}
	return false
}

// judge compares what ran in the tabs with what was sent to them.
func (c *Caller) judge(sent [][]int) error {
	var all Verdict
	for tab, want := range sent {
		ran, err := c.browser.Ran(tab)
		if err != nil {
			return err
		}
		v := Judge(want, ran)
		all.Lost, all.Doubled, all.Disordered = all.Lost+v.Lost, all.Doubled+v.Doubled, all.Disordered+v.Disordered
	}
	c.rec.Counter("lost_commands").Add(int64(all.Lost))
	c.rec.Counter("doubled_commands").Add(int64(all.Doubled))
	c.rec.Counter("disordered_commands").Add(int64(all.Disordered))
	return nil
}
