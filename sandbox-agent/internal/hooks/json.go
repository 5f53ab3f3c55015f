package hooks

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/tailscale/hujson"
)

// A jsonDoc is the text of a JSON settings file, perhaps with comments and
// trailing commas. Edits change the text in place and leave every other byte.
type jsonDoc []byte

// parseJSON fails unless text is an object. Its error quotes nothing: text that
// doesn't parse may be a key that somebody forgot to quote.
func parseJSON(text []byte) (*hujson.Value, error) {
	v, err := hujson.Parse(text)
	if err != nil {
		reason := strings.TrimPrefix(err.Error(), "hujson: ")
		if where, _, quoted := strings.Cut(reason, "invalid literal"); quoted {
			reason = where + "invalid literal"
		}
		return nil, errors.New(reason)
	}
	if _, ok := v.Value.(*hujson.Object); !ok {
		return nil, errors.New("not an object")
	}
	return &v, nil
}

// member returns the index of the member called name, or −1. Of duplicates it
// returns the last, as the file's readers do.
func member(o *hujson.Object, name string) int {
	for i := len(o.Members) - 1; i >= 0; i-- {
		if lit, ok := o.Members[i].Name.Value.(hujson.Literal); ok && lit.String() == name {
			return i
		}
	}
	return -1
}

// lookup returns the value at path, or nil. It fails if a parent on the path is
// no object.
func lookup(root *hujson.Value, path []string) (*hujson.Value, error) {
	v := root
	for i, name := range path {
		o, ok := v.Value.(*hujson.Object)
		if !ok {
			return nil, fmt.Errorf("%s is not an object", strings.Join(path[:i], "."))
		}
		at := member(o, name)
		if at < 0 {
			return nil, nil
		}
		v = &o.Members[at].Value
	}
	return v, nil
}

// plain returns v as JSON without comments.
func plain(v *hujson.Value) json.RawMessage {
	c := v.Clone()
	c.Minimize()
	return c.Pack()
}

// equal reports whether two values mean the same.
func equal(a, b json.RawMessage) bool {
	var x, y any
	if json.Unmarshal(a, &x) != nil || json.Unmarshal(b, &y) != nil {
		return false
	}
	p, err := json.Marshal(x)
	q, err2 := json.Marshal(y)
	return err == nil && err2 == nil && bytes.Equal(p, q)
}

// set puts value at path and makes the missing objects above it. made lists
// those, outermost first, as paths joined by tabs.
func (d jsonDoc) set(path []string, value json.RawMessage) (after jsonDoc, made []string, err error) {
	root, err := parseJSON(d)
	if err != nil {
		return nil, nil, err
	}
	present := len(path)
	for ; present > 0; present-- {
		v, err := lookup(root, path[:present])
		if err != nil {
			return nil, nil, err
		}
		if v == nil {
			continue
		}
		if present == len(path) {
			return d.replace(root, v, value), nil, nil
		}
		break
	}
	in, err := lookup(root, path[:present])
	if err != nil {
		return nil, nil, err
	}
	if _, ok := in.Value.(*hujson.Object); !ok {
		return nil, nil, fmt.Errorf("%s is not an object", strings.Join(path[:present], "."))
	}
	for i := len(path) - 1; i > present; i-- {
		value = wrap(path[i], value)
		made = append([]string{pointer(path[:i])}, made...)
	}
	return d.insert(root, in, path[present], value), made, nil
}

// add appends value to the array at path, which it makes if missing.
func (d jsonDoc) add(path []string, value json.RawMessage) (after jsonDoc, made []string, err error) {
	root, err := parseJSON(d)
	if err != nil {
		return nil, nil, err
	}
	array, err := lookup(root, path)
	if err != nil {
		return nil, nil, err
	}
	if array == nil {
		after, made, err = d.set(path, json.RawMessage("["+string(value)+"]"))
		return after, append(made, pointer(path)), err
	}
	if _, ok := array.Value.(*hujson.Array); !ok {
		return nil, nil, fmt.Errorf("%s is not an array", strings.Join(path, "."))
	}
	return d.insert(root, array, "", value), nil, nil
}

// pointer returns the name of a path in a record.
func pointer(path []string) string { return strings.Join(path, "\t") }

// wrap returns an object with one member.
func wrap(name string, value json.RawMessage) json.RawMessage {
	return json.RawMessage("{" + quote(name) + ":" + string(value) + "}")
}

// quote returns s as a JSON string.
func quote(s string) string {
	var b strings.Builder
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	_ = enc.Encode(s) // a string can always be encoded
	return strings.TrimSuffix(b.String(), "\n")
}

// elements says where the elements of an object or array begin (at the name)
// and end, with the extra text before each, after each and before the end.
type elements struct {
	starts, ends  []int
	before, after []hujson.Extra
	last          hujson.Extra
}

func elementsOf(v *hujson.Value) (e elements) {
	switch c := v.Value.(type) {
	case *hujson.Object:
		for _, m := range c.Members {
			e.starts = append(e.starts, m.Name.StartOffset)
			e.ends = append(e.ends, m.Value.EndOffset)
			e.before = append(e.before, m.Name.BeforeExtra)
			e.after = append(e.after, m.Value.AfterExtra)
		}
		e.last = c.AfterExtra
	case *hujson.Array:
		for _, el := range c.Elements {
			e.starts = append(e.starts, el.StartOffset)
			e.ends = append(e.ends, el.EndOffset)
			e.before = append(e.before, el.BeforeExtra)
			e.after = append(e.after, el.AfterExtra)
		}
		e.last = c.AfterExtra
	}
	return e
}

const blank = " \t\r\n"

// trailing returns how many bytes of white space x ends with.
func trailing(x []byte) int { return len(x) - len(bytes.TrimRight(x, blank)) }

// insert appends an element to in; name is for objects alone. If the
// container's end stands on a line of its own, so does the new element;
// otherwise it stays on the container's line.
func (d jsonDoc) insert(root, in *hujson.Value, name string, value json.RawMessage) jsonDoc {
	e := elementsOf(in)
	n := len(e.starts)
	comma := n > 0 && e.after[n-1] != nil // it stands after the last element
	end := in.EndOffset - 1
	at := end - trailing(e.last)
	space := string(d[at:end])

	text := string(value)
	if name != "" {
		text = quote(name) + ": " + text
	}
	if strings.Contains(space, "\n") {
		nl := newline(d)
		unit := indentUnit(d, root)
		indent := lineIndent(d, end) + unit
		if n > 0 && bytes.ContainsRune(e.before[n-1], '\n') {
			indent = lineIndent(d, e.starts[n-1])
		}
		rendered := render(value, indent, unit, nl)
		if name != "" {
			rendered = quote(name) + ": " + rendered
		}
		text = nl + indent + rendered
	} else if n > 0 {
		text = " " + text
	}
	if comma {
		text += ","
	}
	var out []byte
	if n > 0 && !comma {
		out = append(out, d[:e.ends[n-1]]...)
		out = append(out, ',')
		out = append(out, d[e.ends[n-1]:at]...)
	} else {
		out = append(out, d[:at]...)
	}
	out = append(out, text...)
	return append(out, d[at:]...)
}

// replace puts value in place of v.
func (d jsonDoc) replace(root, v *hujson.Value, value json.RawMessage) jsonDoc {
	text := string(value)
	if bytes.ContainsRune(d[v.StartOffset:v.EndOffset], '\n') {
		text = render(value, lineIndent(d, v.StartOffset), indentUnit(d, root), newline(d))
	}
	out := append([]byte(nil), d[:v.StartOffset]...)
	out = append(out, text...)
	return append(out, d[v.EndOffset:]...)
}

// remove deletes the i-th element of in, its comma and the white space before
// it: what insert added. It deletes no comment.
func (d jsonDoc) remove(in *hujson.Value, i int) jsonDoc {
	e := elementsOf(in)
	n := len(e.starts)
	from, to := e.starts[i]-trailing(e.before[i]), e.ends[i]
	comma := -1
	switch {
	case e.after[i] != nil || i < n-1:
		comma = e.ends[i] + len(e.after[i])
	case i > 0:
		comma = e.ends[i-1] + len(e.after[i-1])
	}
	kept := make([]byte, 0, len(d))
	for at, b := range d {
		if at == from && endsInLineComment(e.before[i]) && !blankLine(d[to:]) {
			kept = append(kept, '\n')
		}
		if at >= from && at < to || at == comma {
			continue
		}
		kept = append(kept, b)
	}
	return kept
}

// endsInLineComment reports whether text after x must begin on a new line.
func endsInLineComment(x []byte) bool {
	x = bytes.TrimRight(x, blank)
	return bytes.Contains(x[bytes.LastIndexByte(x, '\n')+1:], []byte("//"))
}

// blankLine reports whether only white space and a comma precede the end of the
// line.
func blankLine(rest []byte) bool {
	line, _, found := bytes.Cut(rest, []byte("\n"))
	return found && len(bytes.Trim(line, blank+",")) == 0
}

// newline returns d's line ending.
func newline(d []byte) string {
	if bytes.Contains(d, []byte("\r\n")) {
		return "\r\n"
	}
	return "\n"
}

// lineIndent returns the white space that begins the line of offset at.
func lineIndent(d []byte, at int) string {
	line := d[bytes.LastIndexByte(d[:at], '\n')+1:]
	return string(line[:len(line)-len(bytes.TrimLeft(line, " \t"))])
}

// indentUnit returns d's indentation step: two spaces if it shows none.
func indentUnit(d []byte, root *hujson.Value) string {
	e := elementsOf(root)
	if len(e.starts) > 0 && bytes.ContainsRune(e.before[0], '\n') {
		if indent := lineIndent(d, e.starts[0]); indent != "" {
			return indent
		}
	}
	return "  "
}

// render returns value over several lines.
func render(value json.RawMessage, prefix, unit, nl string) string {
	var b bytes.Buffer
	if json.Indent(&b, value, prefix, unit) != nil {
		return string(value)
	}
	return strings.ReplaceAll(b.String(), "\n", nl)
}
