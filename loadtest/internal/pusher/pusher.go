// Package pusher plays laptops that push their browsers' cookies to one session,
// sealed (seed 004).
package pusher

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/fairlead/fairlead/deploy/client"
	"github.com/fairlead/fairlead/deploy/program/pause"
	"github.com/fairlead/fairlead/loadtest/internal/measure"
	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/protocol/op"
	"github.com/fairlead/fairlead/protocol/seal"
)

const (
	// MaxPairings bounds them: those that a session may have.
	MaxPairings = 64
	// MaxCookies bounds those of one pairing, in a test.
	MaxCookies = 10_000
	// pace is the time between two pushes of a laptop: relays take one a second of
	// each address.
	pace = time.Second
	// maxAnswer bounds the answer to a push, in bytes.
	maxAnswer = 64 << 10
	// life is how long the cookies would live.
	life = time.Hour
)

// Options say what pushes.
type Options struct {
	User     *client.User
	Pairings int
	Cookies  int // of each
	// Name is that of the latency that a push is recorded to, from its first byte
	// to the answer.
	Name string
}

// Pushers are laptops that are paired with a session.
type Pushers struct {
	// Static after construction.
	opts    Options
	rec     *measure.Recorder
	push    *measure.Latency
	lost    *measure.Counter
	failed  *measure.Counter
	http    *http.Client
	laptops []*laptop
}

// A laptop is one of them. One goroutine pushes at a time.
type laptop struct {
	pairing  protocol.PairingID
	url      string
	key      *seal.Key
	cookies  []seal.Cookie
	sequence int64
	body     []byte        // of the next push, sealed; nil: it isn't yet
	sealing  time.Duration // when it is, after a push began: laptops don't share a processor
}

// Pair pairs laptops, by a shared secret each. Those that are paired when it fails
// are unpaired by [Pushers.Close] all the same.
func Pair(ctx context.Context, opts Options, rec *measure.Recorder) (*Pushers, error) {
	p := &Pushers{
		opts: opts, rec: rec, push: rec.Latency(opts.Name), lost: rec.Counter("lost_cookies"), failed: rec.Counter("failed_calls"),
		http: &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: opts.Pairings}},
	}
	for i := range opts.Pairings {
		l, err := p.pair(ctx, i)
		if err != nil {
			return p, fmt.Errorf("pairing %d: %w", i+1, err)
		}
		l.sealing = pace/2 + pace/3*time.Duration(i)/time.Duration(opts.Pairings)
		p.laptops = append(p.laptops, l)
	}
	return p, nil
}

func (p *Pushers) pair(ctx context.Context, i int) (*laptop, error) {
	name := "loadtest-" + strconv.Itoa(i)
	secret := strings.Repeat(string(protocol.NewPairingID()), 2) // of 130 random bits
	key, err := seal.SharedKey(secret)
	if err != nil {
		return nil, err
	}
	var answer struct {
		Status string               `json:"status"`
		Result *protocol.SyncResult `json:"result"`
		Error  *protocol.ErrorBody  `json:"error"`
	}
	err = p.opts.User.Command(ctx, map[string]any{"sessionId": p.opts.User.Session()},
		op.Op{Kind: op.KindSyncPair, Body: &op.SyncPair{Step: op.SyncSecret, Name: name, SharedSecret: secret}}, &answer)
	switch {
	case err != nil:
		return nil, err
	case answer.Error != nil:
		return nil, errors.New(answer.Error.Message)
	case answer.Result == nil || answer.Result.URL == "":
		return nil, fmt.Errorf("the command is %q and has no address as result", answer.Status)
	}
	l := &laptop{pairing: answer.Result.Pairing, url: answer.Result.URL, key: key}
	for n := range p.opts.Cookies {
		l.cookies = append(l.cookies, seal.Cookie{
			HostKey: fmt.Sprintf(".s%d.laptop%d.example", n%200, i), Name: "c" + strconv.Itoa(n), Path: "/", Expires: seal.ToMicros(time.Now().Add(life)),
			Secure: 1, HTTPOnly: 1, HasExpires: 1, Persistent: 1, Priority: 1, SameSite: 1, SourceScheme: 2, SourcePort: 443,
		})
	}
	return l, nil
}

// Run has all laptops push at once, and again each second until d is over: at
// least once.
func (p *Pushers) Run(ctx context.Context, d time.Duration) {
	for _, l := range p.laptops {
		p.note(ctx, l.seal())
	}
	until := time.Now().Add(d)
	var all sync.WaitGroup
	for _, l := range p.laptops {
		all.Go(func() {
			for {
				began := time.Now()
				p.note(ctx, p.once(ctx, l))
				next := began.Add(pace)
				if next.After(until) || pause.For(ctx, time.Until(began.Add(l.sealing))) != nil {
					return
				}
				p.note(ctx, l.seal())
				if pause.For(ctx, time.Until(next)) != nil {
					return
				}
			}
		})
	}
	all.Wait()
}

// note counts a failure, unless ctx has ended.
func (p *Pushers) note(ctx context.Context, err error) {
	if err != nil && ctx.Err() == nil {
		p.failed.Add(1)
		p.rec.Fail("push", err)
	}
}

// seal seals a laptop's cookies for the next push, each with another value than before.
func (l *laptop) seal() error {
	if l.body != nil {
		return nil
	}
	l.sequence++
	for i := range l.cookies {
		l.cookies[i].Value = fmt.Sprintf("%032d", l.sequence)
	}
	plain, err := seal.Envelope{Version: seal.Version, SourceHostname: "loadtest", Sequence: l.sequence, Cookies: l.cookies}.Encode()
	if err == nil {
		l.body = l.key.Seal(plain)
	}
	return err
}

// once pushes what is sealed.
func (p *Pushers) once(ctx context.Context, l *laptop) error {
	body := l.body
	l.body = nil
	if body == nil {
		return errors.New("nothing is sealed")
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, l.url, bytes.NewReader(body))
	if err != nil {
		return errors.New("the sandbox's address isn't one")
	}
	request.Header.Set("Content-Type", "application/octet-stream")
	began := time.Now()
	response, err := p.http.Do(request)
	if err != nil {
		return errors.New("no answer") // the error has the address, which is a secret
	}
	defer response.Body.Close()
	text, err := io.ReadAll(io.LimitReader(response.Body, maxAnswer))
	if err != nil {
		return errors.New("half an answer")
	}
	if response.StatusCode != http.StatusOK {
		return fmt.Errorf("status %d", response.StatusCode)
	}
	p.push.Record(began, time.Now())
	var answer op.SyncAnswer
	if err := json.Unmarshal(text, &answer); err != nil {
		return err
	}
	p.lost.Add(int64(len(l.cookies) - answer.Written))
	return nil
}

// Close unpairs all laptops.
func (p *Pushers) Close(ctx context.Context) error {
	var errs []error
	for _, l := range p.laptops {
		var answer struct {
			Error *protocol.ErrorBody `json:"error"`
		}
		err := p.opts.User.Command(ctx, map[string]any{"sessionId": p.opts.User.Session()},
			op.Op{Kind: op.KindSyncUnpair, Body: &op.SyncUnpair{Pairing: l.pairing}}, &answer)
		if err == nil && answer.Error != nil {
			err = errors.New(answer.Error.Message)
		}
		errs = append(errs, err)
	}
	p.http.CloseIdleConnections()
	return errors.Join(errs...)
}
