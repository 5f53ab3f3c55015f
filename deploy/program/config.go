package program

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
)

// A configFile holds the values of a --config file by flag name.
type configFile struct {
	path   string
	values map[string][]configValue
}

// A configValue is one scalar as the file spells it.
type configValue struct {
	text string
	line int
}

const maxConfigBytes = 1 << 20

// readConfig reads the file at path, or nothing if path is empty. Each key must
// be a flag of one of the commands, so that they can share a file; keys may use
// "_" for "-".
func readConfig(path string, commands []*Command) (*configFile, error) {
	file := &configFile{path: path, values: make(map[string][]configValue)}
	if path == "" {
		return file, nil
	}
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	if len(data) > maxConfigBytes {
		return nil, fmt.Errorf("%s: larger than %d bytes", path, maxConfigBytes)
	}
	var doc yaml.Node
	dec := yaml.NewDecoder(bytes.NewReader(data))
	switch err := dec.Decode(&doc); {
	case errors.Is(err, io.EOF): // nothing but comments
		return file, nil
	case err != nil:
		return nil, fmt.Errorf("%s: %s", path, strings.TrimPrefix(err.Error(), "yaml: "))
	}
	if err := dec.Decode(new(yaml.Node)); !errors.Is(err, io.EOF) {
		return nil, fmt.Errorf("%s: more than one document", path)
	}
	return file, file.load(doc.Content[0], knownKeys(commands))
}

func knownKeys(commands []*Command) map[string]bool {
	known := make(map[string]bool)
	for _, c := range commands {
		for _, s := range slices.Concat(c.front.common, c.settings) {
			known[s.name] = true
		}
	}
	return known
}

func (f *configFile) load(m *yaml.Node, known map[string]bool) error {
	if m.Kind != yaml.MappingNode {
		return fmt.Errorf("%s:%d: want lines of the form \"key: value\"", f.path, m.Line)
	}
	for i := 0; i < len(m.Content); i += 2 {
		key, value := m.Content[i], m.Content[i+1]
		name := strings.ReplaceAll(key.Value, "_", "-")
		switch _, seen := f.values[name]; {
		case known[name+"-file"] && !known[name]:
			return Hint(fmt.Errorf("%s:%d: the secret %q can't stand in a configuration file", f.path, key.Line, key.Value),
				"put it in a file of its own and name that with "+name+"-file")
		case !known[name]:
			return fmt.Errorf("%s:%d: unknown key %q", f.path, key.Line, key.Value)
		case seen:
			return fmt.Errorf("%s:%d: key %q appears twice", f.path, key.Line, key.Value)
		}
		values, ok := scalars(value)
		if !ok {
			return fmt.Errorf("%s:%d: key %q must hold one value or a list of values", f.path, key.Line, key.Value)
		}
		f.values[name] = values
	}
	return nil
}

func scalars(n *yaml.Node) ([]configValue, bool) {
	switch n.Kind {
	case yaml.ScalarNode:
		return []configValue{{n.Value, n.Line}}, n.Tag != "!!null"
	case yaml.SequenceNode:
		var all []configValue
		for _, item := range n.Content {
			if item.Kind != yaml.ScalarNode || item.Tag == "!!null" {
				return nil, false
			}
			all = append(all, configValue{item.Value, item.Line})
		}
		return all, len(all) > 0
	}
	return nil, false
}
