// Package webhook delivers signed notices to one URL: it tries again for some
// minutes, keeps a bounded number of them, and blocks nobody who has one.
package webhook

import (
	"bytes"
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"sync"
	"time"

	"github.com/fairlead/fairlead/deploy/program/seldom"
)

// The headers of a notice. The signature is "v1=" and the HMAC-SHA256, in
// hexadecimal digits, of the timestamp, a dot, and the body.
const (
	TimestampHeader = "Fairlead-Webhook-Timestamp" // Unix seconds, of this try
	SignatureHeader = "Fairlead-Webhook-Signature"
)

const (
	// MaxQueue bounds the notices that wait or are under way; beyond it the
	// oldest that waits is dropped.
	MaxQueue = 1000
	// MinSecretBytes is the shortest secret that signs.
	MinSecretBytes = 16

	tryTimeout = 10 * time.Second
	maxAge     = 5 * time.Minute // of a notice that is still tried
	firstPause = time.Second
	maxPause   = time.Minute
	senders    = 4        // tries at a time
	maxAnswer  = 64 << 10 // bytes read of an answer, so that its connection serves again
)

// A Reason says why a notice was not delivered.
type Reason string

const (
	Overflow Reason = "overflow" // MaxQueue notices came after it
	Refused  Reason = "refused"  // the receiver's answer says not to try again
	TooOld   Reason = "too_old"  // no try succeeded for 5 minutes
	Shutdown Reason = "shutdown" // it waited when the sender ended
)

// A Config says where notices go.
type Config struct {
	URL    string // https, or http on loopback
	Secret string // of at least MinSecretBytes
	Logger *slog.Logger
	Via    http.RoundTripper // nil: the network, by the proxy of the environment
}

// Counts says what became of notices.
type Counts struct {
	Delivered uint64
	Tries     uint64
	Dropped   map[Reason]uint64
	Waiting   int // at the moment, those under way too
}

// A Sender delivers notices. What it has not delivered is gone with it.
type Sender struct {
	// Static after construction.
	url    string
	secret []byte
	client *http.Client
	logger *slog.Logger

	wake chan struct{} // one element for each sender that may find something to do

	logged seldom.Limit[struct{}] // about what was dropped

	mu sync.Mutex
	// Guarded by mu.
	queue    []*notice // in no order
	sending  int
	sequence uint64
	counts   Counts
}

// A notice is one body on its way.
type notice struct {
	// Static after construction.
	sequence uint64
	id       string
	body     []byte
	since    time.Time

	// Owned by the queue, or by the goroutine that has taken it from there.
	due   time.Time
	tries int
}

// New returns a sender, which sends nothing before [Sender.Run]. Its errors
// quote neither the secret nor the URL, which may hold one.
func New(cfg Config) (*Sender, error) {
	if err := checkURL(cfg.URL); err != nil {
		return nil, err
	}
	if len(cfg.Secret) < MinSecretBytes {
		return nil, fmt.Errorf("the secret is shorter than %d bytes", MinSecretBytes)
	}
	via := cfg.Via
	if via == nil {
		via = &http.Transport{
			Proxy:               http.ProxyFromEnvironment,
			DialContext:         (&net.Dialer{Timeout: tryTimeout}).DialContext,
			TLSHandshakeTimeout: tryTimeout,
			MaxIdleConnsPerHost: senders,
			IdleConnTimeout:     maxPause,
		}
	}
	return &Sender{
		url: cfg.URL, secret: []byte(cfg.Secret), logger: cfg.Logger, wake: make(chan struct{}, senders),
		client: &http.Client{
			Transport:     via,
			CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		},
		counts: Counts{Dropped: make(map[Reason]uint64)},
	}, nil
}

func checkURL(text string) error {
	u, err := url.Parse(text)
	if err != nil || u.Host == "" || u.Hostname() == "" || u.Opaque != "" || u.Fragment != "" {
		return errors.New("not a URL of the form https://host/path")
	}
	if u.User != nil {
		return errors.New("the URL holds a user or password: notices are signed instead")
	}
	ip := net.ParseIP(u.Hostname())
	loopback := u.Hostname() == "localhost" || ip != nil && ip.IsLoopback()
	if u.Scheme != "https" && (u.Scheme != "http" || !loopback) {
		return errors.New("the URL must be https, or http on loopback")
	}
	return nil
}

// Send queues body under an id for the log. It never blocks.
func (s *Sender) Send(id string, body []byte) {
	now := time.Now()
	s.mu.Lock()
	if len(s.queue)+s.sending >= MaxQueue {
		oldest := 0
		for i, n := range s.queue {
			if n.sequence < s.queue[oldest].sequence {
				oldest = i
			}
		}
		s.drop(s.take(oldest), Overflow, nil)
	}
	s.sequence++
	s.queue = append(s.queue, &notice{sequence: s.sequence, id: id, body: body, since: now, due: now})
	s.mu.Unlock()
	s.rouse()
}

// rouse lets one sender look into the queue.
func (s *Sender) rouse() {
	select {
	case s.wake <- struct{}{}:
	default: // all of them will
	}
}

// take removes a notice from the queue. s.mu is held.
func (s *Sender) take(i int) *notice {
	n := s.queue[i]
	last := len(s.queue) - 1
	s.queue[i], s.queue[last] = s.queue[last], nil
	s.queue = s.queue[:last]
	return n
}

// Counts returns what became of notices so far.
func (s *Sender) Counts() Counts {
	s.mu.Lock()
	defer s.mu.Unlock()
	c := s.counts
	c.Waiting = len(s.queue) + s.sending
	c.Dropped = make(map[Reason]uint64, len(s.counts.Dropped))
	for reason, n := range s.counts.Dropped {
		c.Dropped[reason] = n
	}
	return c
}

// Run delivers what is sent until ctx ends, then drops the rest.
func (s *Sender) Run(ctx context.Context) {
	var work sync.WaitGroup
	for range senders {
		work.Go(func() { s.work(ctx) })
	}
	work.Wait()
	s.client.CloseIdleConnections()

	s.mu.Lock()
	defer s.mu.Unlock()
	for len(s.queue) > 0 {
		s.drop(s.take(0), Shutdown, nil)
	}
	s.logger.Info("webhook ended", "delivered", s.counts.Delivered, "tries", s.counts.Tries,
		"overflow", s.counts.Dropped[Overflow], "refused", s.counts.Dropped[Refused],
		"too_old", s.counts.Dropped[TooOld], "shutdown", s.counts.Dropped[Shutdown])
}

// work is one of the senders.
func (s *Sender) work(ctx context.Context) {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for ctx.Err() == nil {
		n, wait := s.next(time.Now())
		if n != nil {
			s.deliver(ctx, n)
			continue
		}
		timer.Reset(wait)
		select {
		case <-ctx.Done():
		case <-s.wake:
		case <-timer.C:
		}
	}
}

// next takes the notice that has been due longest, or returns how long to wait.
func (s *Sender) next(now time.Time) (*notice, time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	first := -1
	for i, n := range s.queue {
		if first < 0 || n.due.Before(s.queue[first].due) ||
			n.due.Equal(s.queue[first].due) && n.sequence < s.queue[first].sequence {
			first = i
		}
	}
	if first < 0 {
		return nil, maxAge
	}
	if wait := s.queue[first].due.Sub(now); wait > 0 {
		return nil, wait
	}
	s.sending++
	return s.take(first), 0
}

// deliver tries once, and puts the notice back if it is worth another try.
func (s *Sender) deliver(ctx context.Context, n *notice) {
	n.tries++
	final, err := s.post(ctx, n)
	pause := firstPause << min(n.tries-1, 10)
	pause = min(pause, maxPause)
	pause = pause/2 + rand.N(pause/2+1)
	now := time.Now()

	s.mu.Lock()
	defer s.mu.Unlock()
	s.sending--
	s.counts.Tries++
	switch {
	case err == nil:
		s.counts.Delivered++
	case ctx.Err() != nil:
		s.drop(n, Shutdown, err)
	case final:
		s.drop(n, Refused, err)
	case now.Add(pause).Sub(n.since) > maxAge:
		s.drop(n, TooOld, err)
	default:
		s.logger.Debug("webhook failed", "id", n.id, "try", n.tries, "error", err)
		n.due = now.Add(pause)
		s.queue = append(s.queue, n)
		s.rouse()
	}
}

// drop counts what is not delivered, with a line about it now and then. s.mu is
// held.
func (s *Sender) drop(n *notice, reason Reason, err error) {
	s.counts.Dropped[reason]++
	if count := s.logged.Happened(struct{}{}, time.Now()); count > 0 {
		s.logger.Warn("webhook notices dropped", "count", count, "reason", string(reason), "id", n.id, "tries", n.tries, "error", err)
	}
}

// post sends a notice. An error is final if another try would end like this one.
func (s *Sender) post(ctx context.Context, n *notice) (final bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, tryTimeout)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, s.url, bytes.NewReader(n.body))
	if err != nil {
		return true, withoutURL(err)
	}
	timestamp := strconv.FormatInt(time.Now().Unix(), 10)
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("User-Agent", "fairlead-webhook")
	req.Header.Set(TimestampHeader, timestamp)
	req.Header.Set(SignatureHeader, Sign(s.secret, timestamp, n.body))
	res, err := s.client.Do(req)
	if err != nil {
		return false, withoutURL(err)
	}
	_, _ = io.CopyN(io.Discard, res.Body, maxAnswer) // the status is all that counts
	if err := res.Body.Close(); err != nil {
		s.logger.Debug("webhook", "id", n.id, "error", err)
	}
	status := res.StatusCode
	if status/100 == 2 {
		return false, nil
	}
	switch status {
	case http.StatusRequestTimeout, http.StatusTooEarly, http.StatusTooManyRequests:
	default:
		final = status < http.StatusInternalServerError
	}
	return final, fmt.Errorf("the receiver answered %d", status)
}

// withoutURL takes the URL, which may hold a secret, out of an error of net/http.
func withoutURL(err error) error {
	if e, ok := errors.AsType[*url.Error](err); ok {
		return e.Err
	}
	return err
}

// Sign returns the value of SignatureHeader.
func Sign(secret []byte, timestamp string, body []byte) string {
	mac := hmac.New(sha256.New, secret)
	mac.Write([]byte(timestamp + "."))
	mac.Write(body)
	return "v1=" + hex.EncodeToString(mac.Sum(nil))
}
