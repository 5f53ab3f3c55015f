package hooks

import (
	"errors"
	"slices"
	"strconv"
	"strings"

	"github.com/pelletier/go-toml/v2/unstable"
)

// A codexFile is codex' config.toml. notify takes a single program: one that a
// person has set stays, and then there is no stop hook.
type codexFile struct {
	command string
	silent  bool // it gets no notify
}

func (f codexFile) tools() format {
	f.silent = true
	return f
}

// codexFeatures is the table with the setting that keeps codex from leaving a
// server in the background. That would go on with what the environment of the
// first terminal is, and no other codex could go on with a session that it has.
const codexFeatures, codexDaemon = "features", "daemon_auto_start"

// codexServer is the table of our MCP server.
var codexServer = []string{"mcp_servers", ServerName}

// codexVariables are those that codex passes to our server; it clears others.
var codexVariables = []string{
	"FAIRLEAD_SESSION_ID", "FAIRLEAD_PTY_ID", "FAIRLEAD_MCP_URL", "FAIRLEAD_MCP_SECRET",
}

// tomlString returns s as a basic string of TOML.
func tomlString(s string) string {
	var b strings.Builder
	b.WriteByte('"')
	for _, r := range s {
		switch {
		case r == '"' || r == '\\':
			b.WriteByte('\\')
			b.WriteRune(r)
		case r < ' ' || r == 0x7f:
			b.WriteString(`\u` + strings.Repeat("0", 4-len(strconv.FormatInt(int64(r), 16))) + strconv.FormatInt(int64(r), 16))
		default:
			b.WriteRune(r)
		}
	}
	b.WriteByte('"')
	return b.String()
}

func tomlStrings(list []string) string {
	quoted := make([]string, len(list))
	for i, s := range list {
		quoted[i] = tomlString(s)
	}
	return "[" + strings.Join(quoted, ", ") + "]"
}

func (f codexFile) notify() []string { return []string{f.command, "hook", "codex", eventStop} }

// table allows more time than a tool needs: codex' default is a minute.
func (f codexFile) table() string {
	return "[" + strings.Join(codexServer, ".") + "]\n" +
		"command = " + tomlString(f.command) + "\n" +
		"args = " + tomlStrings([]string{bridgeCommand}) + "\n" +
		"env_vars = " + tomlStrings(codexVariables) + "\n" +
		"tool_timeout_sec = 660\n"
}

// stringsOf returns the strings of an array, nil for any other value.
func stringsOf(v any) []string {
	list, ok := v.([]any)
	if !ok {
		return nil
	}
	all := make([]string, len(list))
	for i, e := range list {
		if all[i], ok = e.(string); !ok {
			return nil
		}
	}
	return all
}

// ourNotify reports whether this or an earlier version of Wire has set notify.
func ourNotify(v any) bool {
	list := stringsOf(v)
	return len(list) == 4 && slices.Equal(list[1:], []string{"hook", "codex", eventStop})
}

func ourServer(v any) bool {
	m, ok := v.(map[string]any)
	return ok && slices.Equal(stringsOf(m["args"]), []string{bridgeCommand})
}

// same reports whether the table has what Wire would write, whatever else it
// has.
func (f codexFile) same(v any) bool {
	m, _ := v.(map[string]any)
	return m["command"] == f.command && slices.Equal(stringsOf(m["env_vars"]), codexVariables)
}

func (f codexFile) wire(text []byte) (after []byte, made []string, err error) {
	v, err := parseTOML(text)
	if err != nil {
		return nil, nil, err
	}
	doc, made, err := tomlDoc(text).setDefault(v[codexFeatures], codexFeatures, codexDaemon)
	if err != nil {
		return nil, nil, err
	}
	server := tomlAt(v, codexServer...)
	switch {
	case server == nil:
		doc = doc.appendTable(f.table())
	case !ourServer(server):
		return nil, nil, errors.New(strings.Join(codexServer, ".") + " is there already and is something else")
	case !f.same(server):
		if doc, err = doc.cut(inServer); err != nil {
			return nil, nil, err
		}
		doc = doc.appendTable(f.table())
	}
	switch notify := v["notify"]; {
	case f.silent:
	case notify == nil:
		doc = doc.prepend("notify = " + tomlStrings(f.notify()))
	case ourNotify(notify) && !slices.Equal(stringsOf(notify), f.notify()):
		if doc, err = doc.cut(isNotify); err != nil {
			return nil, nil, err
		}
		doc = doc.prepend("notify = " + tomlStrings(f.notify()))
	}
	if v, err = parseTOML(doc); err == nil && !f.same(tomlAt(v, codexServer...)) {
		err = errors.New("our server would not be where it belongs")
	}
	if err != nil {
		return nil, nil, errors.New("an edit would have broken it: " + err.Error())
	}
	return doc, made, nil
}

func inServer(l tomlLine) bool {
	return len(l.table) >= len(codexServer) && slices.Equal(l.table[:len(codexServer)], codexServer) && l.kind != unstable.Comment
}

func isNotify(l tomlLine) bool {
	return len(l.table) == 0 && slices.Equal(l.key, []string{"notify"})
}

func (f codexFile) unwire(text []byte, r fileRecord) ([]byte, error) {
	v, err := parseTOML(text)
	if err != nil {
		return nil, err
	}
	doc := tomlDoc(text)
	if ourServer(tomlAt(v, codexServer...)) {
		if doc, err = doc.cut(inServer); err != nil {
			return nil, err
		}
	}
	if ourNotify(v["notify"]) {
		if doc, err = doc.cut(isNotify); err != nil {
			return nil, err
		}
	}
	if doc, err = doc.unsetDefault(tomlAt(v, codexFeatures), codexFeatures, codexDaemon, r); err != nil {
		return nil, err
	}
	if r.Created && len(strings.TrimSpace(string(doc))) == 0 {
		return nil, nil
	}
	return doc, nil
}
