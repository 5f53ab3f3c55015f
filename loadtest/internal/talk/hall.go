package talk

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/fairlead/fairlead/deploy/client"
	"github.com/fairlead/fairlead/deploy/program/pause"
	"github.com/fairlead/fairlead/loadtest/internal/measure"
)

const (
	// dialling is how many sockets are opened at once.
	dialling = 16
	// joinWait bounds the time until a thousand sockets follow.
	joinWait = 60 * time.Second
	// startEach is how long after one program the next one starts.
	startEach = 50 * time.Millisecond
	// startLast is how long after the last program the first word comes.
	startLast = 2 * time.Second
	// beginWithin is the time within which all conversations begin, and end.
	beginWithin = time.Second
	// settle is the time between two kills.
	settle = time.Second
)

// A Hall is conversations of one owner with sockets that follow them. The caller
// closes it, also after an error.
type Hall struct {
	// Static after construction.
	rec   *measure.Recorder
	owner *client.User

	// Owned by its caller.
	Conversations []*Conversation
	Ears          []*Follower
	users         []*client.User
}

// A Follower is one socket that follows one conversation.
type Follower struct {
	*Ear
	chat *client.Chat
}

// NewHall opens so many conversations.
func NewHall(ctx context.Context, owner *client.User, rec *measure.Recorder, conversations int) (*Hall, error) {
	h := &Hall{rec: rec, owner: owner}
	for range conversations {
		c, err := Open(ctx, owner, rec, "", "")
		if c != nil {
			h.Conversations = append(h.Conversations, c)
		}
		if err != nil {
			return h, err
		}
	}
	return h, nil
}

// Close ends all sockets.
func (h *Hall) Close() {
	var closing sync.WaitGroup
	for _, f := range h.Ears {
		closing.Go(f.chat.Close)
	}
	for _, c := range h.Conversations {
		closing.Go(c.Close)
	}
	closing.Wait()
	for _, u := range h.users {
		u.Close()
	}
	h.owner.Close()
}

// Gather opens so many sockets for each conversation, in turn for each of people,
// which measure each word under the name line.
func (h *Hall) Gather(ctx context.Context, people []client.UserOptions, each int, line string) error {
	var users []*client.User
	for _, p := range people {
		users = append(users, client.NewUser(p))
	}
	h.users = append(h.users, users...)
	slots := make(chan struct{}, dialling)
	before := len(h.Ears)
	for i := range len(h.Conversations) * each {
		f := &Follower{Ear: NewEar(h.rec, "", line)}
		f.chat = client.OpenChat(context.WithoutCancel(ctx), users[i%len(users)], client.ChatOptions{Dialing: slots}, f.Ear)
		h.Ears = append(h.Ears, f)
		if err := f.chat.Follow(ctx, h.Conversations[i/each].ID, 0); err != nil {
			return err
		}
	}
	for _, f := range h.Ears[before:] {
		if err := f.Subscribed(ctx, joinWait); err != nil {
			return err
		}
	}
	return nil
}

// Work has all conversations at work at once, for so many words at a rate a
// second, and returns how many words were lost, doubled or out of order. All
// programs are there before the first word, and don't write in step: one after the
// other begins within a second.
func (h *Hall) Work(ctx context.Context, words int, rate float64) (lost int, err error) {
	n := time.Duration(len(h.Conversations))
	starting := 2*n*startEach + startLast                                // to begin one takes time, too
	step := (beginWithin + time.Duration(float64(time.Second)/rate)) / n // even within the time between two words, too
	began := time.Now()
	for i, c := range h.Conversations {
		wait := max(0, starting-time.Since(began)) + time.Duration(i)*step
		if err := c.Begin(ctx, fmt.Sprintf("sleep:%v\ndeltas:%d@%g", wait, words, rate)); err != nil {
			return 0, err
		}
		if err := pause.For(ctx, startEach); err != nil {
			return 0, err
		}
	}
	within := starting + time.Duration(float64(words)/rate*float64(time.Second)) + Wait
	for _, f := range h.Ears {
		err = errors.Join(err, f.Runs(ctx, within, 1))
		heard, faults, _ := f.Heard()
		lost += max(0, words-heard) + faults
	}
	return lost, err
}

// A Killer kills relays of a deployment, as a stack's Kill says.
type Killer interface {
	Kill(relay int) (at time.Time, back func(context.Context) error, err error)
}

// Outlive kills the first relay in the middle of a run, so many times, and
// records under a name how long each socket was without anything.
func (h *Hall) Outlive(ctx context.Context, relays Killer, times int, name string) error {
	c := h.Conversations[0]
	if err := c.Begin(ctx, "deltas:1000000@50"); err != nil {
		return err
	}
	for range times {
		for _, f := range h.Ears {
			if err := f.Word(ctx, Wait); err != nil {
				return err
			}
		}
		at, back, err := relays.Kill(0)
		if err != nil {
			return err
		}
		for _, f := range h.Ears {
			next, err := f.Resumed(ctx, Wait)
			if err != nil {
				return err
			}
			h.rec.Latency(name).Record(at, next)
		}
		if err := errors.Join(back(ctx), pause.For(ctx, settle)); err != nil {
			return err
		}
	}
	return c.Abort(ctx)
}

// Replay has the first conversation say so many words, and then new sockets of the
// owner's read them again, so many times. It returns how long each took, and how
// many words were lost.
func (h *Hall) Replay(ctx context.Context, words, times int) (took []time.Duration, lost int, err error) {
	c := h.Conversations[0]
	if err := c.Say(ctx, fmt.Sprintf("deltas:%d", words)); err != nil {
		return nil, 0, err
	}
	for range times {
		e := NewEar(h.rec, "", "")
		t, err := h.replay(ctx, c, e)
		heard, faults, _ := e.Heard()
		took, lost = append(took, t), lost+max(0, words-heard)+faults
		if err != nil {
			return took, lost, err
		}
	}
	return took, lost, nil
}

func (h *Hall) replay(ctx context.Context, c *Conversation, e *Ear) (time.Duration, error) {
	chat := client.OpenChat(ctx, h.owner, client.ChatOptions{}, e)
	defer chat.Close()
	if err := chat.Say(ctx, map[string]any{"type": "chat.subscribe", "sessions": []any{}}); err != nil {
		return 0, err // the socket is open now
	}
	began := time.Now()
	if err := chat.Follow(ctx, c.ID, 1); err != nil {
		return 0, err
	}
	err := e.Runs(ctx, Wait, 1)
	_, _, last := e.Heard()
	return last.Sub(began), err
}
