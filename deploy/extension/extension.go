// Package extension writes our browser extension, made of parts: the side panel, a
// person's tabs as targets, and sealed sync.
//
// Its scripts and pages are written in TypeScript under web/, bundled into dist/
// by the program in build/, and embedded here. What depends on where it is used,
// the manifest and config.json, is made when it is written.
package extension

import (
	"crypto/sha256"
	"embed"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io/fs"
	"maps"
	"path"
	"slices"
	"strings"

	"github.com/fairlead/fairlead/protocol"
)

//go:embed all:dist
var dist embed.FS

// DefaultKey is the public half of the key that gives the extension its id,
// base64 of its DER. Nobody has the other half: who publishes the extension in a
// store does so under a key, and so an id, of their own.
const DefaultKey = "MIIBIjANBgkqhkiG9w0BAQEFAAOCAQ8AMIIBCgKCAQEAyz8m/9lXttU+NrCnFEiU6GPxziUFxWsUN12Al0OO34/VgkXxAGciUKG1G/e98eUc9eBFA0C8ck5+bWRYl1Wdncyy1vdSUTyGO4m8wVcMhIaTf4ov6WNmvD9Jxyr1LQftqDuDhvxBA2bH3ciJkFK5I+jZprkoUntzE522CwB/3q2DeSSQgesDJLJUlYD6Sbv7UUJJzMAJYEbMHwX0ZFeEmGIyNhP4To8OlMG6kfN825r5Wh0mZPiPIXtPtt8MEZ2otR/eMgd+fgLb2GAod5pUZvQ0WEnPsR7jxJs2hbQNiXVwbwXb5OFjUzS3+oNOQDmtl6kjReGS/9QRXakBssBwawIDAQAB"

// An Extension is what Chrome loads: files by their slash-separated paths.
type Extension struct {
	ID    string
	Parts []string
	Files map[string][]byte
}

// Make makes an extension.
func Make(opts Options) (*Extension, error) {
	key, err := decodeKey(opts.Key)
	if err != nil {
		return nil, err
	}
	chosen, err := choose(opts.Parts)
	if err != nil {
		return nil, err
	}
	if opts.Origins, err = checkOrigins(opts.Origins); err != nil {
		return nil, err
	}
	config, err := configuration(&opts, chosen)
	if err != nil {
		return nil, err
	}
	e := &Extension{ID: idOf(key), Files: make(map[string][]byte)}
	for _, p := range chosen {
		e.Parts = append(e.Parts, p.name)
		if err := e.add(p); err != nil {
			return nil, err
		}
	}
	if err := e.addIcons(); err != nil {
		return nil, err
	}
	e.Files["worker-all.js"] = workers(chosen)
	for name, value := range map[string]any{
		"manifest.json": manifest(chosen, opts, base64.StdEncoding.EncodeToString(key)),
		"config.json":   config,
	} {
		data, err := json.MarshalIndent(value, "", "  ")
		if err != nil {
			return nil, err
		}
		e.Files[name] = append(data, '\n')
	}
	return e, nil
}

// Built reports whether the parts were built into this program.
func Built() bool {
	_, err := fs.Stat(dist, "dist/panel/panel.html")
	return err == nil
}

// Names returns the paths of an extension's files, sorted.
func (e *Extension) Names() []string { return slices.Sorted(maps.Keys(e.Files)) }

// add puts a part's files beside those of the others.
func (e *Extension) add(p part) error {
	dir := path.Join("dist", p.name)
	entries, err := fs.ReadDir(dist, dir)
	if err != nil {
		return protocol.Errorf(protocol.KindUnsupported, "the extension was not built into this program")
	}
	for _, entry := range entries {
		data, err := fs.ReadFile(dist, path.Join(dir, entry.Name()))
		if err != nil {
			return err
		}
		if _, taken := e.Files[entry.Name()]; taken {
			return fmt.Errorf("two parts have a file %s", entry.Name())
		}
		e.Files[entry.Name()] = data
	}
	return nil
}

// addIcons puts the icons there, which all parts share.
func (e *Extension) addIcons() error {
	for _, name := range icons {
		data, err := fs.ReadFile(dist, path.Join("dist", name))
		if err != nil {
			return err
		}
		e.Files[name] = data
	}
	return nil
}

// decodeKey checks that key is base64 of something.
func decodeKey(key string) ([]byte, error) {
	if key == "" {
		key = DefaultKey
	}
	der, err := base64.StdEncoding.DecodeString(key)
	if err != nil || len(der) < 64 {
		return nil, protocol.Errorf(protocol.KindInvalid, "key is not base64 of a public key's DER")
	}
	return der, nil
}

// idOf returns the id that Chrome gives an extension with this key: the first half
// of its hash, in the letters from a to p.
func idOf(key []byte) string {
	sum := sha256.Sum256(key)
	var id strings.Builder
	for _, b := range sum[:16] {
		id.WriteByte('a' + b>>4)
		id.WriteByte('a' + b&15)
	}
	return id.String()
}
