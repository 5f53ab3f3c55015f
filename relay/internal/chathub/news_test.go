package chathub

import (
	"encoding/json"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fairlead/fairlead/protocol"
)

// TestNewsTogether: what is new after a while is told at once; what follows is
// told together, of one conversation the last.
func TestNewsTogether(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, socket := still(t)
		n := &newsroom{set: h.set, came: make(chan protocol.ChatNews, maxGathered), sockets: map[*Socket]struct{}{socket: {}}}
		come := func(c protocol.ConversationID, text string) {
			n.came <- protocol.ChatNews{ConversationID: c, Message: json.RawMessage(text)}
		}
		told := func() (texts string) {
			for {
				it, ok := socket.queue.pop()
				if !ok {
					return texts
				}
				texts += string(it.frame[2:]) + " "
			}
		}
		go n.spread(t.Context()) // ends with the test
		for round := range 2 {
			come(convA, "first")
			synctest.Wait()
			if got := told(); got != "first " {
				t.Errorf("%d: %q", round, got)
			}
			for i := range 10 {
				come(convA, fmt.Sprint("a", i))
				come("", fmt.Sprint(i))
			}
			come(convB, "b")
			time.Sleep(newsEvery - 1)
			if got := told(); got != "" {
				t.Errorf("%d: %q", round, got)
			}
			time.Sleep(1)
			synctest.Wait()
			if got := told(); got != "0 1 2 3 4 5 6 7 8 a9 9 b " {
				t.Errorf("%d: %q", round, got)
			}
			time.Sleep(newsEvery)
		}
	})
}
