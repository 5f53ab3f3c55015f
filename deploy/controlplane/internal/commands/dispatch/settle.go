package dispatch

import (
	"context"
	"encoding/base64"
	"log/slog"
	"net/http"
	"sync"
	"time"

	"github.com/fairlead/fairlead/deploy/controlplane/internal/clock"
	"github.com/fairlead/fairlead/deploy/controlplane/internal/keyring"
	"github.com/fairlead/fairlead/deploy/controlplane/internal/metrics"
	"github.com/fairlead/fairlead/deploy/controlplane/internal/relays"
	"github.com/fairlead/fairlead/deploy/controlplane/internal/store"
	"github.com/fairlead/fairlead/deploy/program/pause"
	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/protocol/jws"
)

const (
	settleWorkers = 16   // commands that relays are told of at a time
	maxSettled    = 4096 // that wait for it, at most; further ones are dropped
	settleTimeout = 2 * time.Second
)

// settlePauses are the waits between tries to tell a relay. One that doesn't
// know the command yet may have its offer under way.
var settlePauses = []time.Duration{50 * time.Millisecond, 250 * time.Millisecond, time.Second}

// Settlements tell all relays the answer to a command for pages, which were all
// offered it: those that don't know would go on giving it to pages until its
// time is over, and have no room for others.
type Settlements struct {
	// Static after construction.
	settler settler
	ctx     context.Context
	counts  *metrics.Metrics

	wg sync.WaitGroup // workers

	mu sync.Mutex
	// Guarded by mu.
	closed  bool
	waiting []store.Command
	workers int
}

// A settler tells all relays of one command.
type settler interface {
	settle(ctx context.Context, cmd store.Command)
}

// NewSettlements returns a queue that tells the relays in all. What is under way
// ends with ctx. The tokens that it tells them with are verified by keys.
func NewSettlements(ctx context.Context, all *relays.Directory, keys *keyring.Ring, clk clock.Clock, counts *metrics.Metrics, logger *slog.Logger) *Settlements {
	return &Settlements{settler: &teller{all, keys, clk, counts, logger}, ctx: ctx, counts: counts}
}

// A teller asks each relay to forget a command.
type teller struct {
	// Static after construction.
	relays *relays.Directory
	keys   *keyring.Ring
	clock  clock.Clock
	counts *metrics.Metrics
	logger *slog.Logger
}

// Add has the relays told of cmd, soon.
func (q *Settlements) Add(cmd store.Command) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.closed || len(q.waiting) >= maxSettled {
		q.counts.Settled.WithLabelValues(metrics.SettledDropped).Inc()
		return
	}
	q.waiting = append(q.waiting, cmd)
	if q.workers < settleWorkers {
		q.workers++
		q.wg.Go(q.work) // Close waits for it
	}
}

// work tells what waits until nothing does.
func (q *Settlements) work() {
	for {
		q.mu.Lock()
		if len(q.waiting) == 0 {
			q.workers--
			q.mu.Unlock()
			return
		}
		cmd := q.waiting[0]
		q.waiting = q.waiting[1:]
		q.mu.Unlock()
		q.settler.settle(q.ctx, cmd)
	}
}

// Close takes nothing more, and waits for what there is. That ends with ctx.
func (q *Settlements) Close() {
	if q == nil {
		return
	}
	q.mu.Lock()
	q.closed = true
	q.mu.Unlock()
	q.wg.Wait()
}

// settle tells every relay how a command for pages was answered.
func (s *teller) settle(ctx context.Context, cmd store.Command) {
	log := s.logger.With("command", cmd.Envelope.CommandID)
	command, err := s.keys.Keys().Command(ctx, cmd.Envelope.JWS, jws.AudienceExtension)
	if command == nil || command.Reply == nil {
		log.Warn("no token to tell relays of the answer with", "error", err)
		return
	}
	all, err := s.relays.Registered(ctx)
	if err != nil {
		log.Warn("relays aren't told of the answer", "error", err)
		return
	}
	var telling sync.WaitGroup
	defer telling.Wait()
	for _, relay := range all {
		telling.Go(func() {
			outcome := s.tellSettled(ctx, relay, command, cmd.Outcome)
			s.counts.Settled.WithLabelValues(outcome).Inc()
			log.Debug("relay told of the answer", "relay", relay.ID, "outcome", outcome)
		})
	}
}

// tellSettled tells one relay, and returns what became of that. Once the command
// is over there is nothing to tell.
func (s *teller) tellSettled(ctx context.Context, relay store.Relay, command *jws.Command, outcome store.Outcome) string {
	for try := 0; ; try++ {
		status := s.postSettled(ctx, relay, command.Reply.CallbackToken, outcome)
		switch {
		case status == http.StatusNoContent:
			return metrics.SettledTold
		case try < len(settlePauses) && s.clock.Now().Before(command.Deadline()) && pause.For(ctx, settlePauses[try]) == nil:
		case status == http.StatusNotFound:
			return metrics.SettledUnknown
		default:
			return metrics.SettledFailed
		}
	}
}

// postSettled returns the status of a relay's answer, 0 if there is none.
func (s *teller) postSettled(ctx context.Context, relay store.Relay, token string, outcome store.Outcome) int {
	ctx, cancel := context.WithTimeout(ctx, settleTimeout)
	defer cancel()
	req, err := relays.Post(ctx, relay, "/control/settled", "application/json", outcome.Callback)
	if err != nil {
		return 0
	}
	req.Header.Set("Authorization", "Bearer "+token)
	if len(outcome.Signature) > 0 {
		req.Header.Set(protocol.SignatureHeader, base64.StdEncoding.EncodeToString(outcome.Signature))
	}
	res, err := s.relays.Do(req)
	if err != nil {
		return 0
	}
	res.Body.Close()
	return res.StatusCode
}
