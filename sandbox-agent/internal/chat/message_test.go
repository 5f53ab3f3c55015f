package chat

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/protocol/jws"
	"github.com/fairlead/fairlead/protocol/op"
	"github.com/fairlead/fairlead/sandbox-agent/internal/route"
)

// puts puts a message under a grant and returns the status.
func (r *rig) puts(g *jws.Grant, id protocol.ConversationID, text []byte, sum string) int {
	mux := http.NewServeMux()
	r.Routes(mux)
	req := httptest.NewRequest(http.MethodPut, "/sessions/ses_1/chats/"+string(id)+"/messages/"+sum, bytes.NewReader(text))
	w := httptest.NewRecorder()
	mux.ServeHTTP(w, req.WithContext(route.WithGrant(req.Context(), g)))
	return w.Code
}

func sumOf(text []byte) string {
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:])
}

// TestPut: a message that is too large for its command is put before, by its
// sender, and waits for some time.
func TestPut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		r.make()
		text, err := json.Marshal(protocol.ChatMessage{Content: string(bytes.Repeat([]byte("x"), protocol.MaxChatContent))})
		check(t, err)
		may := grant(alice, protocol.CapChat)
		for name, c := range map[string]struct {
			g    *jws.Grant
			id   protocol.ConversationID
			text []byte
			sum  string
			want int
		}{
			"no chat":      {grant(alice), r.id, text, sumOf(text), http.StatusForbidden},
			"another sum":  {may, r.id, text, sumOf(nil), protocol.KindInvalid.Status()},
			"no message":   {may, r.id, []byte("[]"), sumOf([]byte("[]")), protocol.KindInvalid.Status()},
			"too large":    {may, r.id, make([]byte, maxMessage+1), sumOf(make([]byte, maxMessage+1)), protocol.KindTooLarge.Status()},
			"not there":    {may, "another", text, sumOf(text), http.StatusNotFound},
			"as it should": {may, r.id, text, sumOf(text), http.StatusNoContent},
		} {
			if got := r.puts(c.g, c.id, c.text, c.sum); got != c.want {
				t.Errorf("%s: %d, want %d", name, got, c.want)
			}
		}
		send := func(user protocol.UserID) error {
			_, err := r.send(context.Background(), r.command(user), &op.ChatSend{Conversation: r.id, MessageSHA256: sumOf(text)})
			return err
		}
		if err := send(bob); code(err) != "UNAVAILABLE" {
			t.Errorf("somebody else's: %v", err)
		}
		r.puts(may, r.id, text, sumOf(text)) // for another command
		check(t, send(alice))
		if err := send(alice); code(err) != "RUN_IN_PROGRESS" {
			t.Errorf("while it runs: %v", err)
		}
		p := r.started()
		p.hear(t, "begin")
		p.print("done 0")
		synctest.Wait()
		if err := send(alice); code(err) != "UNAVAILABLE" || len(r.messages.held) != 0 {
			t.Errorf("after both commands: %v, %d are kept", err, len(r.messages.held))
		}
		r.puts(may, r.id, text, sumOf(text))
		time.Sleep(messageFor + time.Second)
		if err := send(alice); code(err) != "UNAVAILABLE" {
			t.Errorf("after its time: %v", err)
		}
		most := make([]byte, maxMessage-2)
		for i := range most {
			most[i] = ' '
		}
		kept := 0
		for i := range 8 {
			text := append([]byte{'{', '}'}, most[:len(most)-i]...)
			if r.puts(may, r.id, text, sumOf(text)) == http.StatusNoContent {
				kept++
			}
		}
		if kept != maxOfPerson/maxMessage {
			t.Errorf("%d of one person's are kept", kept)
		}
	})
}

// TestControl: who sends first has control; everybody is told, and whose grant is
// revoked is shown nothing more.
func TestControl(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		r.make()
		a, b := r.view(alice, protocol.ChatParams{}, protocol.CapChat), r.view(bob, protocol.ChatParams{}, protocol.CapChat)
		check(t, a.stream.Obey(protocol.Holder{User: alice, Sockets: 1}))
		check(t, b.stream.Obey(protocol.Holder{User: bob, Sockets: 1}))
		p := r.begins("go")
		for _, v := range []*viewer{a, b} {
			v.event(protocol.ChatText)
			p.print("text x")
			v.event(protocol.ChatText)
			if v.lease.Holder != alice || v.lease.State != protocol.LeaseHeld || v.lease.GrantID != "gr_usr_alice" {
				t.Errorf("%+v", v.lease)
			}
		}
		b.event(protocol.ChatText)
		propose := protocol.LeaseProposal{ID: 5, ExpectRevision: b.lease.Revision, Next: protocol.LeaseNext{Holder: bob, GrantID: "gr_usr_bob"}}
		check(t, b.stream.Obey(propose))
		p.print("text y", "done 0")
		a.event(protocol.ChatText)
		a.event(protocol.ChatText)
		a.completes(0, false)
		if a.lease.Holder != bob {
			t.Errorf("%+v", a.lease)
		}
		if err := r.sends(alice, "mine"); code(err) != "NOT_CONTROLLER" {
			t.Error(err)
		}
		r.revoked.Add("gr_usr_bob")
		if m, ok := b.message().(protocol.Granted); !ok || m.GrantID != "gr_usr_bob" || m.Refused == "" {
			t.Errorf("%+v", m)
		}
		check(t, r.sends(alice, "now"))
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		defer cancel()
		begun := time.Now()
		if m, err := b.stream.Next(ctx); err == nil || time.Since(begun) > 2*time.Second {
			t.Errorf("%#v after %v", m, time.Since(begun))
		}
	})
}

// FuzzMessage: of a message that is taken, each image is of a known type, has
// bytes and a name without a path, and is shown as it was given.
func FuzzMessage(f *testing.F) {
	for _, seed := range []string{
		`{"content":"a","images":[{"name":"a.png","data":"data:image/png;base64,iVBORw0KGgo="},{"name":"","data":"data:image/SVG+xml;charset=utf-8,%3Csvg%3E"}]}`,
		`{"images":[{"name":"../a","data":"data:image/jpg,x"}]}`, `{"images":[{"data":"data:;base64,"}]}`, `{"images":[{"data":"/api/assets/00"}]}`, `[]`, `null`,
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		m, err := decodeMessage(text)
		if err != nil {
			return
		}
		images, shown, err := imageSource{session: session}.read(m)
		if err != nil {
			return
		}
		if len(images) != len(m.Images) || len(shown) != len(images) || len(images) > maxImages {
			t.Fatalf("%d images, %d shown, of %d", len(images), len(shown), len(m.Images))
		}
		for i, image := range images {
			if extensions[image.MimeType] == "" || len(image.Data) == 0 || len(image.Data) > maxImageBytes || int64(len(image.Data)) != shown[i].Size {
				t.Errorf("%s of %d bytes, shown as %+v", image.MimeType, len(image.Data), shown[i])
			}
			if name := shown[i].Name; name != m.Images[i].Name || strings.ContainsAny(name, "/\\\x00") || name == ".." {
				t.Errorf("name %q", name)
			}
		}
	})
}
