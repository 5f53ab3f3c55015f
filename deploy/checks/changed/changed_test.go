package changed

import (
	"slices"
	"testing"
)

func TestConcerned(t *testing.T) {
	packages := []Package{
		{ImportPath: "m/wire", Dir: "wire"},
		{ImportPath: "m/hub", Dir: "hub", Imports: []string{"m/wire", "fmt"}},
		{ImportPath: "m/relay", Dir: "relay", Imports: []string{"m/hub"}},
		{ImportPath: "m/tested", Dir: "tested", TestImports: []string{"m/relay"}},
		{ImportPath: "m/user", Dir: "user", Imports: []string{"m/tested"}},
		{ImportPath: "m/relay/internal/console", Dir: "relay/internal/console"},
		{ImportPath: "m/relay/internal/console/build", Dir: "relay/internal/console/build"},
		{ImportPath: "m/deploy/checks", Dir: "deploy/checks"},
	}
	for name, row := range map[string]struct{ files, direct, dependent []string }{
		"nothing":          {nil, nil, []string{"deploy/checks"}},
		"the lowest":       {[]string{"wire/wire.go"}, []string{"wire"}, []string{"hub", "relay", "tested", "deploy/checks"}},
		"its data":         {[]string{"wire/testdata/a/b.json", "wire/wire.go"}, []string{"wire"}, []string{"hub", "relay", "tested", "deploy/checks"}},
		"a test":           {[]string{"wire/wire_test.go"}, []string{"wire"}, []string{"deploy/checks"}},
		"the highest":      {[]string{"user/user.go"}, []string{"user"}, []string{"deploy/checks"}},
		"two":              {[]string{"relay/r.go", "hub/h.go"}, []string{"hub", "relay"}, []string{"tested", "deploy/checks"}},
		"of no package":    {[]string{"Makefile", "docs/a.md"}, nil, []string{"deploy/checks"}},
		"tested elsewhere": {[]string{"relay/internal/console/web/src/a.ts"}, []string{"relay/internal/console", "relay/internal/console/build"}, []string{"deploy/checks"}},
		"a module":         {[]string{"go.mod"}, []string{"deploy/checks", "hub", "relay", "relay/internal/console", "relay/internal/console/build", "tested", "user", "wire"}, nil},
		"the checks":       {[]string{"deploy/checks/a.go"}, []string{"deploy/checks"}, nil},
	} {
		direct, dependent := Concerned(packages, row.files)
		if !slices.Equal(direct, row.direct) || !slices.Equal(dependent, row.dependent) {
			t.Errorf("%s: %q and %q, want %q and %q", name, direct, dependent, row.direct, row.dependent)
		}
	}
}
