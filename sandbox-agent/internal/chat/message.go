package chat

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"io"
	"net/http"
	"net/url"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/sandbox-agent/internal/provider"
	"github.com/fairlead/fairlead/sandbox-agent/internal/route"
)

// Bounds of messages that were put into the sandbox before their command.
const (
	maxMessage     = 2 << 20  // bytes of one
	maxOfPerson    = 8 << 20  // bytes of one person's
	maxMessages    = 64 << 20 // bytes of all
	messageFor     = 2 * time.Minute
	maxImages      = 5       // of a message (seed 002)
	maxImageBytes  = 5 << 20 // of each
	maxImageName   = 255
	errMessageGone = "The message isn't there any more. Send it again."
)

// messages are those that wait for their command, by whom and what they are. They
// are safe for concurrent use.
type messages struct {
	mu sync.Mutex
	// Guarded by mu.
	held map[messageKey]heldMessage
}

// A messageKey is what only its sender's command can name.
type messageKey struct {
	session      protocol.SessionID
	conversation protocol.ConversationID
	user         protocol.UserID
	sum          [sha256.Size]byte
}

type heldMessage struct {
	text     []byte
	ends     time.Time
	commands int // that may still come for it: it was put as often
}

func newMessages() *messages { return &messages{held: map[messageKey]heldMessage{}} }

// put keeps a message for its command. It fails with KindTooMany.
func (m *messages) put(key messageKey, text []byte, now time.Time) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	all, own := 0, 0
	for other, held := range m.held {
		switch {
		case now.After(held.ends):
			delete(m.held, other)
		case other == key:
		case other.user == key.user:
			own += len(held.text)
			fallthrough
		default:
			all += len(held.text)
		}
	}
	if own+len(text) > maxOfPerson || all+len(text) > maxMessages {
		return protocol.Errorf(protocol.KindTooMany, "too many messages wait for their command")
	}
	m.held[key] = heldMessage{text, now.Add(messageFor), m.held[key].commands + 1}
	return nil
}

// get returns a message.
func (m *messages) get(key messageKey, now time.Time) ([]byte, bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	held, ok := m.held[key]
	return held.text, ok && !now.After(held.ends)
}

// used notes that the command of a message has run, whatever came of it: it runs
// once.
func (m *messages) used(key messageKey) {
	m.mu.Lock()
	defer m.mu.Unlock()
	held, ok := m.held[key]
	if held.commands--; held.commands > 0 {
		m.held[key] = held
	} else if ok {
		delete(m.held, key)
	}
}

// Routes implements [feature.Router].
func (c *Chats) Routes(mux *http.ServeMux) {
	route.Put(mux, "chats/{conversation}/messages/{sha256}", protocol.CapChat, c.putMessage)
}

// putMessage keeps the JSON of a message, whose SHA-256 the path names, for its
// sender's command.
func (c *Chats) putMessage(w http.ResponseWriter, r *http.Request, session protocol.SessionID) error {
	key := messageKey{session: session, conversation: protocol.ConversationID(r.PathValue("conversation")), user: route.GrantOf(r).Subject}
	if _, err := c.Get(session, key.conversation); err != nil {
		return err
	}
	text, err := io.ReadAll(io.LimitReader(r.Body, maxMessage+1))
	if err != nil {
		return protocol.Errorf(protocol.KindInvalid, "the message can't be read")
	}
	if len(text) > maxMessage {
		return protocol.Errorf(protocol.KindTooLarge, "a message has %d bytes at most", maxMessage)
	}
	key.sum = sha256.Sum256(text)
	if hex.EncodeToString(key.sum[:]) != strings.ToLower(r.PathValue("sha256")) {
		return protocol.Errorf(protocol.KindInvalid, "the message has another SHA-256")
	}
	if _, err := decodeMessage(text); err != nil {
		return err
	}
	if err := c.messages.put(key, text, time.Now()); err != nil {
		return err
	}
	w.WriteHeader(http.StatusNoContent)
	return nil
}

// decodeMessage reads the JSON of a message.
func decodeMessage(text []byte) (m protocol.ChatMessage, err error) {
	if json.Unmarshal(text, &m) != nil {
		return m, protocol.Errorf(protocol.KindInvalid, "the message is no JSON object")
	}
	return m, nil
}

// An imageSource is where a message's images come from.
type imageSource struct {
	session protocol.SessionID
	assets  Assets
}

// read checks a message and returns its images, and as events show them.
func (s imageSource) read(m protocol.ChatMessage) (images []provider.Image, shown []protocol.ChatImage, err error) {
	switch {
	case len(m.Content) > protocol.MaxChatContent:
		return nil, nil, protocol.Errorf(protocol.KindTooLarge, "a message has %d bytes at most", protocol.MaxChatContent)
	case len(m.Images) > maxImages:
		return nil, nil, protocol.Errorf(protocol.KindTooMany, "a message has %d images at most", maxImages)
	}
	for _, image := range m.Images {
		if image.Name != "" && (len(image.Name) > maxImageName || image.Name != filepath.Base(image.Name) || strings.ContainsAny(image.Name, "/\\\x00") || image.Name == "." || image.Name == "..") {
			return nil, nil, protocol.Errorf(protocol.KindInvalid, "an image's name is no file name")
		}
		content, mimeType, address, err := s.content(image)
		if err != nil {
			return nil, nil, err
		}
		if extensions[mimeType] == "" {
			return nil, nil, protocol.Errorf(protocol.KindInvalid, "an image is jpeg, png, gif, webp or svg")
		}
		if len(content) == 0 || len(content) > maxImageBytes {
			return nil, nil, protocol.Errorf(protocol.KindTooLarge, "an image has 1 to %d bytes", maxImageBytes)
		}
		images = append(images, provider.Image{MimeType: mimeType, Data: content})
		shown = append(shown, protocol.ChatImage{Name: image.Name, Data: address, Size: int64(len(content)), MimeType: mimeType})
	}
	return images, shown, nil
}

// content returns an image, and its URL, "" if it has none.
func (s imageSource) content(image protocol.ChatImage) (content []byte, mimeType, address string, err error) {
	rest, inline := strings.CutPrefix(image.Data, "data:")
	if !inline {
		if s.assets == nil {
			return nil, "", "", protocol.Errorf(protocol.KindInvalid, "an image is a data URL")
		}
		content, mimeType, err = s.assets.Get(s.session, image.Data)
		return content, mimeType, image.Data, err
	}
	head, body, ok := strings.Cut(rest, ",")
	if !ok {
		return nil, "", "", protocol.Errorf(protocol.KindInvalid, "an image is a data URL")
	}
	mimeType, encoded := strings.CutSuffix(head, ";base64")
	mimeType, _, _ = strings.Cut(mimeType, ";")
	if mimeType = strings.ToLower(strings.TrimSpace(mimeType)); mimeType == "image/jpg" {
		mimeType = "image/jpeg"
	}
	if encoded {
		content, err = base64.StdEncoding.DecodeString(body)
	} else {
		var text string
		text, err = url.PathUnescape(body)
		content = []byte(text)
	}
	if err != nil {
		return nil, "", "", protocol.Errorf(protocol.KindInvalid, "an image can't be decoded")
	}
	if s.assets != nil && extensions[mimeType] != "" && len(content) <= maxImageBytes {
		image.MimeType = mimeType
		address, err = s.assets.Put(s.session, image, content)
	}
	return content, mimeType, address, err
}

// extensions are those of image files, by type.
var extensions = map[string]string{
	"image/jpeg": "jpg", "image/png": "png", "image/gif": "gif", "image/webp": "webp", "image/svg+xml": "svg",
}
