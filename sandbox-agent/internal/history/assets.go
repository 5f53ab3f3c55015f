package history

import (
	"bytes"
	"cmp"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"unicode"

	"github.com/fairlead/fairlead/deploy/program"
	"github.com/fairlead/fairlead/protocol"
)

// Bounds of images (seed 002, and ours).
const (
	MaxImage       = 5 << 20   // bytes of one
	MaxImages      = 5         // of one upload
	maxAssetsBytes = 256 << 20 // of a session; then the oldest go
	maxLabel       = 255       // bytes of a name
)

// assetURL is where an asset is.
const assetURL = "/api/assets/"

// Assets keep images of messages, for as long as their session is there. They are
// safe for concurrent use.
type Assets struct {
	dir string
	mu  sync.Mutex // held while files come and go
}

// OpenAssets returns the assets in dir, which it makes.
func OpenAssets(dir string) (*Assets, error) {
	return &Assets{dir: dir}, os.MkdirAll(dir, 0o700)
}

// An assetHead is the first line of an asset's file; the image follows.
type assetHead struct {
	Name string `json:"name"` // a label
	Type string `json:"type"`
}

// Put keeps an image of a session and returns its URL. Its name is a label only.
// It fails with KindInvalid for what is no image, KindTooLarge, and KindNoSpace.
func (a *Assets) Put(session protocol.SessionID, image protocol.ChatImage, content []byte) (string, error) {
	if len(content) > MaxImage {
		return "", protocol.Errorf(protocol.KindTooLarge, "an image is larger than 5 MiB")
	}
	mime, ok := imageType(image.MimeType, content)
	if !ok {
		return "", protocol.Errorf(protocol.KindInvalid, "%s", invalidType)
	}
	head, err := json.Marshal(assetHead{Name: label(image.Name), Type: mime})
	if err != nil {
		return "", err
	}
	raw := make([]byte, 16)
	rand.Read(raw)
	id := hex.EncodeToString(raw)
	a.mu.Lock()
	defer a.mu.Unlock()
	dir := filepath.Join(a.dir, string(session))
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return "", protocol.Fault(protocol.KindUnavailable, err)
	}
	if err := a.makeRoom(dir, int64(len(content))); err != nil {
		return "", protocol.Fault(protocol.KindUnavailable, err)
	}
	if err := program.ReplaceFile(filepath.Join(dir, id), slices.Concat(head, []byte("\n"), content), 0o600); err != nil {
		return "", protocol.Fault(protocol.KindNoSpace, err)
	}
	return assetURL + id, nil
}

// makeRoom removes the oldest assets of a session until there is room for n bytes.
// The caller holds mu.
func (a *Assets) makeRoom(dir string, n int64) error {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	var files []fs.FileInfo
	for _, e := range entries {
		if st, err := e.Info(); err == nil {
			files = append(files, st)
			n += st.Size()
		}
	}
	slices.SortFunc(files, func(x, y fs.FileInfo) int {
		return cmp.Or(x.ModTime().Compare(y.ModTime()), cmp.Compare(x.Name(), y.Name()))
	})
	for _, st := range files {
		if n <= maxAssetsBytes {
			break
		}
		if err := os.Remove(filepath.Join(dir, st.Name())); err != nil {
			return err
		}
		n -= st.Size()
	}
	return nil
}

// remove removes the image of a URL that Put has returned for the session.
func (a *Assets) remove(session protocol.SessionID, url string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	_ = os.Remove(filepath.Join(a.dir, string(session), strings.TrimPrefix(url, assetURL))) // else it goes as the oldest one
}

// Get returns the image of a URL that Put has returned for the session. It fails
// with KindNotFound for any other.
func (a *Assets) Get(session protocol.SessionID, url string) (content []byte, mimeType string, err error) {
	head, content, err := a.open(session, strings.TrimPrefix(url, assetURL))
	return content, head.Type, err
}

func (a *Assets) open(session protocol.SessionID, id string) (head assetHead, content []byte, err error) {
	missing := protocol.Errorf(protocol.KindNotFound, "there is no such image")
	if raw, err := hex.DecodeString(id); err != nil || len(raw) != 16 || !protocol.ValidID(session) {
		return head, nil, missing
	}
	file, err := os.ReadFile(filepath.Join(a.dir, string(session), strings.ToLower(id)))
	if err != nil {
		return head, nil, missing
	}
	first, content, found := bytes.Cut(file, []byte("\n"))
	if !found || json.Unmarshal(first, &head) != nil {
		return head, nil, missing
	}
	return head, content, nil
}

// Forget removes all images of a session.
func (a *Assets) Forget(session protocol.SessionID) error {
	if a == nil || !protocol.ValidID(session) {
		return nil
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if err := os.RemoveAll(filepath.Join(a.dir, string(session))); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// invalidType is seed 002's answer to other files.
const invalidType = "Invalid file type. Only JPEG, PNG, GIF, WebP, and SVG are allowed."

// imageType returns the type of an image that is what it is said to be.
func imageType(said string, content []byte) (string, bool) {
	said, _, _ = strings.Cut(strings.ToLower(said), ";")
	said = strings.TrimSpace(said)
	if said == "image/svg+xml" {
		text := bytes.TrimSpace(bytes.TrimPrefix(content, []byte("\xef\xbb\xbf")))
		return said, bytes.HasPrefix(text, []byte("<")) && bytes.Contains(text, []byte("<svg"))
	}
	for _, known := range []struct{ mime, magic string }{
		{"image/jpeg", "\xff\xd8\xff"}, {"image/png", "\x89PNG\r\n\x1a\n"}, {"image/gif", "GIF8"}, {"image/webp", "RIFF"},
	} {
		if bytes.HasPrefix(content, []byte(known.magic)) && (known.mime != "image/webp" || len(content) >= 12 && string(content[8:12]) == "WEBP") {
			return known.mime, said == "" || said == known.mime || said == "image/jpg" && known.mime == "image/jpeg"
		}
	}
	return "", false
}

// label returns a name without a path in it, to be shown.
func label(name string) string {
	name = name[strings.LastIndexAny(name, `/\`)+1:]
	name = strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) {
			return -1
		}
		return r
	}, strings.ToValidUTF8(name, ""))
	for len(name) > maxLabel {
		runes := []rune(name)
		name = string(runes[:len(runes)-1])
	}
	if strings.Trim(name, ".") == "" {
		return "image"
	}
	return name
}
