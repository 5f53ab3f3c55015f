package launch

import "testing"

func TestBelow(t *testing.T) {
	t.Parallel()
	s := Setup{Workspace: "/workspace"}
	for folder, want := range map[string]string{
		"/workspace": "", "/workspace/": "", "/workspace/apps/shop": "apps/shop", "/workspace2": "", "/": "", "/etc": "", "": "", "apps": "",
	} {
		if got := s.Below(folder); got != want {
			t.Errorf("%q: %q, want %q", folder, got, want)
		}
	}
}
