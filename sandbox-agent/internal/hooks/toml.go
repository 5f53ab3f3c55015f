package hooks

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/pelletier/go-toml/v2"
	"github.com/pelletier/go-toml/v2/unstable"
)

// A tomlDoc is the text of a settings file in TOML. Edits are whole lines.
type tomlDoc []byte

// parseTOML returns what the text says.
func parseTOML(text []byte) (map[string]any, error) {
	var v map[string]any
	if err := toml.Unmarshal(text, &v); err != nil {
		reason := strings.TrimPrefix(err.Error(), "toml: ")
		var at *toml.DecodeError
		if errors.As(err, &at) {
			line, column := at.Position()
			reason = fmt.Sprintf("line %d, column %d: %s", line, column, reason)
		}
		return nil, errors.New(reason)
	}
	if v == nil {
		v = map[string]any{}
	}
	return v, nil
}

// tomlAt returns the value at path, or nil.
func tomlAt(v map[string]any, path ...string) any {
	var at any = v
	for _, name := range path {
		m, ok := at.(map[string]any)
		if !ok {
			return nil
		}
		if at, ok = m[name]; !ok {
			return nil
		}
	}
	return at
}

// prepend puts a line before everything else. Keys of the root must precede the
// first table.
func (d tomlDoc) prepend(line string) tomlDoc {
	return append([]byte(line+"\n"), d...)
}

// appendTable appends a table after an empty line.
func (d tomlDoc) appendTable(text string) tomlDoc {
	return append(append(slices.Clone(d), '\n'), text...)
}

// A tomlLine is a line on which an expression begins.
type tomlLine struct {
	at    int
	kind  unstable.Kind
	table []string // the table that it is in, or begins
	key   []string // of a key and its value
}

// lines returns the expressions of d in order, and the comments on lines of
// their own.
func (d tomlDoc) lines() ([]tomlLine, error) {
	p := unstable.Parser{KeepComments: true}
	p.Reset(d)
	var all []tomlLine
	var table []string
	for p.NextExpression() {
		node := p.Expression()
		l := tomlLine{kind: node.Kind}
		offset := int(node.Raw.Offset)
		if node.Kind != unstable.Comment {
			var key []string
			first := true
			for it := node.Key(); it.Next(); {
				if first {
					offset, first = int(it.Node().Raw.Offset), false
				}
				key = append(key, string(it.Node().Data))
			}
			if node.Kind == unstable.KeyValue {
				l.key = key
			} else {
				table = key
			}
		}
		l.table = table
		l.at = bytes.LastIndexByte(d[:offset], '\n') + 1
		if node.Kind == unstable.Comment && len(bytes.TrimSpace(d[l.at:offset])) > 0 {
			continue // the comment follows something on its line
		}
		all = append(all, l)
	}
	return all, p.Error()
}

// cut removes the lines of the expressions that ours accepts, each up to the
// next expression except for empty lines. It also removes the empty line before
// a table, which appendTable added.
func (d tomlDoc) cut(ours func(tomlLine) bool) (tomlDoc, error) {
	lines, err := d.lines()
	if err != nil {
		return nil, err
	}
	out := slices.Clone([]byte(d))
	for i := len(lines) - 1; i >= 0; i-- {
		if !ours(lines[i]) {
			continue
		}
		from, to := lines[i].at, len(d)
		if i+1 < len(lines) {
			to = lines[i+1].at
		}
		if rest := trailing(d[from:to]); rest > 0 { // the expression's own line end stays with it
			to -= rest
			to += bytes.IndexByte(d[to:], '\n') + 1
		}
		if lines[i].kind == unstable.Table && from > 0 {
			from--
		}
		out = append(out[:from], out[to:]...)
	}
	return out, nil
}

// setDefault sets a key of a table to false, where nothing has set it. has is what
// stands there as table. made says what was made, for unsetDefault.
func (d tomlDoc) setDefault(has any, table, key string) (after tomlDoc, made []string, err error) {
	line := key + " = false\n"
	keys, _ := has.(map[string]any)
	if has == nil {
		return d.appendTable("[" + table + "]\n" + line), []string{table, table + "." + key}, nil
	}
	if _, set := keys[key]; set || keys == nil {
		return d, nil, nil
	}
	lines, err := d.lines()
	if err != nil {
		return nil, nil, err
	}
	for _, l := range lines {
		if l.kind != unstable.Table || !slices.Equal(l.table, []string{table}) {
			continue
		}
		text := slices.Clone(d)
		end := bytes.IndexByte(text[l.at:], '\n')
		if end < 0 { // the file ends with the table's name
			text, end = append(text, '\n'), len(text)-l.at
		}
		return slices.Insert(text, l.at+end+1, []byte(line)...), []string{table + "." + key}, nil
	}
	return d, nil, nil // a table in one line stays as it is
}

// unsetDefault takes back what setDefault has made, unless somebody has changed it.
func (d tomlDoc) unsetDefault(has any, table, key string, r fileRecord) (tomlDoc, error) {
	keys, _ := has.(map[string]any)
	if !slices.Contains(r.Made, table+"."+key) || keys[key] != false {
		return d, nil
	}
	whole := slices.Contains(r.Made, table) && len(keys) == 1
	return d.cut(func(l tomlLine) bool {
		in := slices.Equal(l.table, []string{table})
		return in && (l.kind == unstable.KeyValue && slices.Equal(l.key, []string{key}) || whole && l.kind == unstable.Table)
	})
}
