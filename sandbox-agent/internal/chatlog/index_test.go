package chatlog

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/fairlead/fairlead/protocol"
)

// TestIndex: an index that is extended knows what one does that reads the whole
// log, whatever is appended, noted or not, masked, dropped and asked in between.
func TestIndex(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 0))
	store, err := Open(Options{Dir: t.TempDir(), Bytes: 9 << 20})
	must(t, err)
	defer func() { must(t, store.Close()) }()
	log, err := store.Log("c-1")
	must(t, err)
	log.Live(true)
	var kept Indexes
	long := strings.Repeat("x", 600_000)
	said, dropped := 0, false
	event := func() *protocol.ChatEvent {
		said++
		e := &protocol.ChatEvent{ID: fmt.Sprint("e", said), Timestamp: time.UnixMilli(int64(said)).UTC().Format(time.RFC3339Nano), Content: new(fmt.Sprint("/text ", said))}
		switch random.IntN(8) {
		case 0:
			e.Kind, e.Text, e.TokenBudget = protocol.ChatStatus, "token_budget", &protocol.TokenBudget{Total: int64(said)}
		case 1:
			e.Kind, e.Role = protocol.ChatText, "assistant"
		case 2, 3:
			e.Kind, e.Content = protocol.ChatToolResult, &long
		default:
			e.Images = []protocol.ChatImage{{Name: "a", Data: "/api/assets/1"}, {Name: "b", Data: long[:maxURL+1]}}
			e.Kind, e.Role, e.From = protocol.ChatText, "user", &protocol.ChatFrom{UserID: "usr_alice", GrantID: protocol.GrantID(fmt.Sprint("gr_", said/7))}
		}
		return e
	}
	for range 14 { // nearly as much as the log holds
		must(t, log.Append(false, event(), &protocol.ChatEvent{Kind: protocol.ChatToolResult, Content: &long}))
	}
	for range 100 {
		switch random.IntN(16) {
		case 0:
			_, err := log.Rewrite(func(event []byte) []byte {
				return bytes.ReplaceAll(event, fmt.Appendf(nil, "/text %d", said), []byte("/masked"))
			})
			must(t, err)
		case 1:
			kept.Forget("c-1")
		case 2, 3, 4, 5:
			events := make([]*protocol.ChatEvent, 1+random.IntN(4))
			for i := range events {
				events[i] = event()
			}
			must(t, log.Append(false, events...))
			if random.IntN(4) > 0 {
				kept.Note(log, events)
			}
		default:
			got, err := kept.Said(log)
			must(t, err)
			for _, s := range got.Sayings {
				if len(s.Images) != 1 || s.Images[0].Name != "a" {
					t.Fatalf("%+v", s)
				}
			}
			want, err := (&index{}).said(log)
			must(t, err)
			if !reflect.DeepEqual(got.Sayings, want.Sayings) || got.Window != want.Window && want.Window != 0 {
				t.Fatalf("%+v\nthe log says\n%+v", got, want)
			}
		}
		dropped = dropped || log.Position().First > 1
	}
	if !dropped {
		t.Error("the log never dropped anything")
	}
}

// TestManyIndexes: of many conversations the index of the one that was asked about
// longest ago is dropped.
func TestManyIndexes(t *testing.T) {
	var x Indexes
	for n := range maxIndexed + 1 {
		x.of(protocol.ConversationID(fmt.Sprint("c-", n)))
		x.of("c-0")
	}
	if len(x.all) != maxIndexed || x.find("c-0") < 0 || x.find("c-1") >= 0 || x.find("c-2") < 0 {
		t.Errorf("%d are kept", len(x.all))
	}
	if x.Forget("c-2"); x.find("c-2") >= 0 {
		t.Error("one that was deleted is kept")
	}
}
