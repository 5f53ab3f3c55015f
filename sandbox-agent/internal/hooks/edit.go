package hooks

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/tailscale/hujson"
)

// A file is one that a coding agent reads, with what Wire puts in it.
type file struct {
	name  string // relative to the home
	other string // used in place of name if it alone exists
	format
}

// A format adds our entries to a text and removes them.
type format interface {
	// wire returns text (nil: no file) with the entries, and the containers it
	// made for them. It returns text that has them already unchanged.
	wire(text []byte) (after []byte, made []string, err error)
	// unwire returns text without the entries and without the now empty containers
	// that record lists. It returns nil if nothing is left.
	unwire(text []byte, record fileRecord) ([]byte, error)
	// tools returns what of it finds our tools, nil if it is about hooks alone.
	tools() format
}

// A jsonFile holds our members and elements.
type jsonFile []entry

// An entry is a value in a JSON file: a member at path or, if listed, an element
// of the array at path.
type entry struct {
	path   []string
	listed bool
	value  any
	yields bool                       // what a person has set there, or above it, stays; mine isn't asked
	mine   func(json.RawMessage) bool // reports whether this or an earlier Wire has set the value there
	unless func(*hujson.Value) bool   // reports that the entry would do harm in the whole file; nil: never
}

func (f jsonFile) tools() format {
	left := slices.DeleteFunc(slices.Clone(f), func(e entry) bool { return e.path[0] == "hooks" })
	if len(left) == 0 {
		return nil
	}
	return left
}

// mark is how a record names a value that yields to a person's, and that Wire has
// set.
func (e entry) mark() string { return "=" + pointer(e.path) }

// set reports whether found is what Wire has set there.
func (e entry) set(found *hujson.Value, r fileRecord) bool {
	value, err := json.Marshal(e.value)
	return err == nil && slices.Contains(r.Made, e.mark()) && equal(plain(found), value)
}

// find returns our value at e's path, its container and its index there.
func (e entry) find(root *hujson.Value) (in *hujson.Value, at int, found *hujson.Value, err error) {
	to := e.path
	if !e.listed {
		to = to[:len(to)-1]
	}
	in, err = lookup(root, to)
	if err != nil || in == nil {
		return nil, 0, nil, err
	}
	if !e.listed {
		o, ok := in.Value.(*hujson.Object)
		if !ok {
			return nil, 0, nil, fmt.Errorf("%s is not an object", strings.Join(to, "."))
		}
		if at = member(o, e.path[len(to)]); at < 0 {
			return nil, 0, nil, nil
		}
		found = &o.Members[at].Value
		if !e.yields && !e.mine(plain(found)) {
			return nil, 0, nil, fmt.Errorf("%s is there already and is something else", strings.Join(e.path, "."))
		}
		return in, at, found, nil
	}
	a, ok := in.Value.(*hujson.Array)
	if !ok {
		return nil, 0, nil, fmt.Errorf("%s is not an array", strings.Join(to, "."))
	}
	for i := range a.Elements {
		if e.mine(plain(&a.Elements[i])) {
			return in, i, &a.Elements[i], nil
		}
	}
	return nil, 0, nil, nil
}

func (f jsonFile) wire(text []byte) (after []byte, made []string, err error) {
	fresh := len(bytes.TrimSpace(text)) == 0
	if fresh {
		made = append(made, "")
		if text == nil {
			text = []byte("\n")
		}
		text = append([]byte("{\n}"), text...)
	}
	doc := jsonDoc(text)
	for _, e := range f {
		root, err := parseJSON(doc)
		if err != nil {
			return nil, nil, err
		}
		_, _, found, err := e.find(root)
		if e.yields && (err != nil || found != nil) {
			continue
		}
		if err != nil {
			return nil, nil, err
		}
		value, err := json.Marshal(e.value)
		if err != nil {
			return nil, nil, err
		}
		var more []string
		switch {
		case found == nil && e.unless != nil && e.unless(root):
		case found != nil && equal(plain(found), value):
		case found != nil:
			doc = doc.replace(root, found, value)
		case e.listed:
			doc, more, err = doc.add(e.path, value)
		default:
			doc, more, err = doc.set(e.path, value)
			if e.yields {
				more = append(more, e.mark())
			}
		}
		if err != nil {
			return nil, nil, err
		}
		made = append(made, more...)
	}
	if _, err := parseJSON(doc); err != nil {
		return nil, nil, fmt.Errorf("an edit would have broken it: %w", err)
	}
	return doc, made, nil
}

func (f jsonFile) unwire(text []byte, r fileRecord) ([]byte, error) {
	if len(bytes.TrimSpace(text)) == 0 {
		return text, nil
	}
	doc := jsonDoc(text)
	for _, e := range slices.Backward(f) {
		for {
			root, err := parseJSON(doc)
			if err != nil {
				return nil, err
			}
			in, at, found, err := e.find(root)
			if err != nil || found == nil || e.yields && !e.set(found, r) {
				break // values that aren't ours stay
			}
			doc = doc.remove(in, at)
		}
	}
	return doc.unmake(r)
}

// unmake removes the empty objects and arrays that Wire made, innermost first.
// If the outermost goes, so does the file.
func (d jsonDoc) unmake(r fileRecord) ([]byte, error) {
	made := slices.Clone(r.Made)
	slices.SortFunc(made, func(a, b string) int { return strings.Count(b, "\t") - strings.Count(a, "\t") })
	made = slices.DeleteFunc(made, func(m string) bool { return m == "" })
	for _, m := range made {
		root, err := parseJSON(d)
		if err != nil {
			return nil, err
		}
		path := strings.Split(m, "\t")
		v, err := lookup(root, path)
		if err != nil || v == nil || !empty(v) {
			continue
		}
		in, err := lookup(root, path[:len(path)-1])
		if err != nil {
			return nil, err
		}
		d = d.remove(in, member(in.Value.(*hujson.Object), path[len(path)-1]))
	}
	if !slices.Contains(r.Made, "") {
		return d, nil
	}
	root, err := parseJSON(d)
	if err != nil {
		return nil, err
	}
	if !empty(root) || len(bytes.TrimSpace(root.BeforeExtra)) > 0 || len(bytes.TrimSpace(root.AfterExtra)) > 0 {
		return d, nil
	}
	if r.Created {
		return nil, nil
	}
	return slices.Delete(slices.Clone(d), root.StartOffset, root.EndOffset), nil
}

// empty reports whether an object or array holds nothing, not even a comment.
func empty(v *hujson.Value) bool {
	e := elementsOf(v)
	return len(e.starts) == 0 && len(bytes.TrimSpace(e.last)) == 0
}

// An ownFile is entirely ours. Its text contains ownMark.
type ownFile string

func (ownFile) tools() format { return nil }

// ownMark is how Unwire recognizes such a file.
const ownMark = "written by fairlead's sandbox-agent"

func (f ownFile) wire(text []byte) ([]byte, []string, error) {
	if text != nil && !bytes.Contains(text, []byte(ownMark)) {
		return nil, nil, errors.New("there is another file of this name already")
	}
	return []byte(f), nil, nil
}

func (f ownFile) unwire(text []byte, _ fileRecord) ([]byte, error) {
	if bytes.Contains(text, []byte(ownMark)) {
		return nil, nil
	}
	return text, nil
}

// A defaultFile is created if missing, and removed if it is unchanged since.
type defaultFile string

func (defaultFile) tools() format { return nil }

func (f defaultFile) wire(text []byte) ([]byte, []string, error) {
	if text != nil {
		return text, nil, nil
	}
	return []byte(f), nil, nil
}

func (f defaultFile) unwire(text []byte, r fileRecord) ([]byte, error) {
	if r.Created && string(text) == string(f) {
		return nil, nil
	}
	return text, nil
}
