package op

import (
	"bufio"
	"encoding/json"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/protocol/op/optest"
)

// TestSpecOperations holds the table of the wire specification against Specs.
func TestSpecOperations(t *testing.T) {
	rows := table(t, "operation")
	if len(rows) != len(Specs) {
		t.Errorf("%d operations in README.md, %d here", len(rows), len(Specs))
	}
	documented := map[string]string{}
	for _, row := range rows {
		documented[strings.Trim(row[0], "`")] = strings.Trim(row[1], "`")
	}
	for _, s := range Specs {
		if documented[s.Kind] != string(s.Needs) || !s.Needs.Known() {
			t.Errorf("%s needs %q, README.md says %q", s.Kind, s.Needs, documented[s.Kind])
		}
	}
}

// TestSpecRoutes checks the route table against the operations: a route that
// amounts to an operation needs exactly that operation's capability, one that
// amounts to several needs each one's, and one that amounts to this or that needs
// the capability of either.
func TestSpecRoutes(t *testing.T) {
	rows := table(t, "route")
	if len(rows) < 15 {
		t.Fatalf("only %d routes", len(rows))
	}
	seen := map[string]bool{}
	for _, row := range rows {
		needs, body, _ := strings.Cut(row[4], "; ")
		route, operation, capability := row[0], strings.Trim(row[3], "`"), strings.Trim(needs, "`")
		if tells := strings.HasPrefix(route, "`GET ") && strings.Contains(route, "/commands"); tells != (body == "result and error: of the operation") {
			t.Errorf("%s: the body is %q", route, body)
		}
		if seen[route] {
			t.Errorf("%s stands there twice", route)
		}
		seen[route] = true
		if operation == "any" && capability == "of the operation" ||
			operation == "–" && (capability == "–" || protocol.Capability(capability).Known()) {
			continue
		}
		operations, capabilities := strings.Split(operation, "`, `"), strings.Split(capability, "`, `")
		if either := strings.Split(operation, "` or `"); len(either) > 1 {
			operations, capabilities = either, slices.Repeat([]string{capability}, len(either))
		}
		for i, operation := range operations {
			spec, known := Lookup(operation)
			if !known || len(operations) != len(capabilities) || capabilities[i] != string(spec.Needs) {
				t.Errorf("%s: %q needs %q, not %q", route, operation, spec.Needs, capability)
			}
		}
	}
}

// table returns the rows of the first table under "Capabilities and routes" whose first
// column is called first.
func table(t *testing.T, first string) (rows [][]string) {
	t.Helper()
	f, err := os.Open("../README.md")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	here, inside := false, false
	for lines := bufio.NewScanner(f); lines.Scan(); {
		if title, is := strings.CutPrefix(lines.Text(), "## "); is {
			here = title == "Capabilities and routes"
		}
		line, is := strings.CutPrefix(lines.Text(), "|")
		switch {
		case is && here:
		case inside:
			return rows
		default:
			continue
		}
		cells := strings.Split(strings.TrimSuffix(strings.TrimSpace(line), "|"), "|")
		for i := range cells {
			cells[i] = strings.TrimSpace(cells[i])
		}
		switch {
		case inside && !strings.HasPrefix(cells[0], "---"):
			rows = append(rows, cells)
		case !inside:
			inside = cells[0] == first
		}
	}
	return rows
}

// TestSpecsAreWhole: each kind is there once, with a body that decodes from
// nothing but its own members.
func TestSpecsAreWhole(t *testing.T) {
	for _, s := range Specs {
		if got, known := Lookup(s.Kind); !known || got.Needs != s.Needs || got.Target != s.Target || got.Lane != s.Lane {
			t.Errorf("%s is there twice", s.Kind)
		}
		if s.Body == nil || reflect.TypeOf(s.Body).Kind() != reflect.Pointer {
			t.Errorf("%s has no body", s.Kind)
		}
	}
}

// TestDecodeIsStrict: of every operation, a member that it doesn't have, one in
// other letters, one twice and one of another type are refused, at every depth.
func TestDecodeIsStrict(t *testing.T) {
	for _, s := range Specs {
		whole, ours := optest.Whole[s.Kind]
		if !ours {
			t.Errorf("no test of %s", s.Kind)
			continue
		}
		spec, b, err := Decode(json.RawMessage(whole))
		if err != nil || spec.Kind != s.Kind {
			t.Errorf("%s: %v", whole, err)
			continue
		}
		again, err := json.Marshal(Op{s.Kind, b})
		if err != nil || string(again) != whole {
			t.Errorf("%s, encoded again: %s, %v", whole, again, err)
		}
		var members map[string]json.RawMessage
		if err := json.Unmarshal([]byte(whole), &members); err != nil {
			t.Fatal(err)
		}
		bad := []string{`"later":1`, `"Kind":"x"`, `"kind":"` + s.Kind + `"`}
		for name, value := range members {
			upper := strings.ToUpper(name[:1]) + name[1:]
			bad = append(bad, `"`+name+`":`+string(value), `"`+upper+`":`+string(value))
			if name == "kind" || name == "params" || name == "updatedInput" { // any object is one
				continue
			}
			without := map[string]json.RawMessage{}
			for n, v := range members {
				without[n] = v
			}
			without[name] = json.RawMessage(`{"x":[1]}`)
			refuses(t, without)
			delete(without, name)
			without[upper] = value
			refuses(t, without)
		}
		for _, more := range bad {
			if _, _, err := Decode(json.RawMessage(whole[:len(whole)-1] + "," + more + "}")); protocol.KindOf(err) != protocol.KindInvalid || err == nil {
				t.Errorf("%s with %s: %v", whole, more, err)
			}
		}
	}
	for _, deep := range []string{
		`{"kind":"env.apply","secrets":{"KEY":{"Value":"12345678"}}}`,
		`{"kind":"env.apply","secrets":{"KEY":{"value":"12345678","later":1}}}`,
		`{"kind":"env.apply","approvedDomains":[{"secret":"KEY","Domain":"a.example"}]}`,
		`{"kind":"env.apply","set":{"A":"1","a":"2"}}`,
		`{"kind":"cdp.send","method":"Runtime.evaluate","params":{"expression":"1","Expression":"2"}}`,
		`{"kind":"cdp.send","method":"Page.captureScreenshot","params":{"clip":{"x":1,"x":2}}}`,
	} {
		if _, _, err := DecodeAsked(json.RawMessage(deep)); protocol.KindOf(err) != protocol.KindInvalid || err == nil {
			t.Errorf("%s: %v", deep, err)
		}
	}
	for _, raw := range []string{`[]`, `null`, `""`, ``, `{}`, `{"kind":7}`, `{"kind":"moon.land"}`} {
		if _, _, err := Decode(json.RawMessage(raw)); protocol.KindOf(err) != protocol.KindUnsupported || err == nil {
			t.Errorf("%q: %v", raw, err)
		}
	}
}

func refuses(t *testing.T, members map[string]json.RawMessage) {
	t.Helper()
	raw, err := json.Marshal(members)
	if err != nil {
		t.Fatal(err)
	}
	if _, _, err := Decode(raw); err == nil || protocol.KindOf(err) == protocol.KindInternal {
		t.Errorf("%s: %v", raw, err)
	}
}

// TestErrorsQuoteNoValue: a value may be a secret that stands in the wrong place.
func TestErrorsQuoteNoValue(t *testing.T) {
	for _, raw := range []string{
		`{"kind":"env.apply","set":{"A":918273645}}`,
		`{"kind":"env.apply","secrets":{"KEY":"canary-918273645"}}`,
		`{"kind":"env.apply","secrets":{"KEY":{"value":918273645}}}`,
	} {
		if _, _, err := DecodeAsked(json.RawMessage(raw)); err == nil || strings.Contains(err.Error(), "918273645") {
			t.Errorf("%s: %v", raw, err)
		}
	}
}

// FuzzDecode: what decodes, decodes again from what it is encoded to, to the same.
func FuzzDecode(f *testing.F) {
	for _, whole := range optest.Whole {
		f.Add([]byte(whole))
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		spec, b, err := Decode(raw)
		if err != nil {
			return
		}
		once, err := json.Marshal(Op{spec.Kind, b})
		if err != nil {
			t.Fatal(err)
		}
		_, again, err := Decode(once)
		if err != nil {
			t.Fatalf("%s, encoded again as %s: %v", raw, once, err)
		}
		if twice, err := json.Marshal(Op{spec.Kind, again}); err != nil || string(twice) != string(once) {
			t.Fatalf("%s, then %s, %v", once, twice, err)
		}
	})
}
