package op

import (
	"strings"
	"testing"

	"github.com/fairlead/fairlead/protocol"
)

func TestSidebarBodies(t *testing.T) {
	for name, c := range map[string]struct {
		body Body
		kind protocol.Kind // 0: it is taken
	}{
		"message":            {&SidebarSend{Message: "go to hn", URL: "https://a.example/ä?b#c", TabID: 1<<31 - 1}, 0},
		"empty":              {&SidebarSend{Message: " \n"}, protocol.KindInvalid},
		"not UTF-8":          {&SidebarSend{Message: "\xff"}, protocol.KindInvalid},
		"long":               {&SidebarSend{Message: strings.Repeat("x", MaxSidebarMessage+1)}, protocol.KindTooLarge},
		"longest URL":        {&SidebarSend{Message: "x", URL: "http://" + strings.Repeat("ä", MaxSidebarURL-7)}, 0},
		"long URL":           {&SidebarSend{Message: "x", URL: "http://" + strings.Repeat("ä", MaxSidebarURL-6)}, protocol.KindInvalid},
		"URL of a file":      {&SidebarSend{Message: "x", URL: "file:///etc/passwd"}, protocol.KindInvalid},
		"URL with a line":    {&SidebarSend{Message: "x", URL: "http://a\n"}, protocol.KindInvalid},
		"URL with a C1":      {&SidebarSend{Message: "x", URL: "http://a\u0085"}, protocol.KindInvalid},
		"tab":                {&SidebarSend{Message: "x", TabID: -1}, protocol.KindInvalid},
		"stop all":           {&SidebarStop{Kill: true}, 0},
		"stop a tab":         {&SidebarStop{TabID: 1 << 31}, protocol.KindInvalid},
		"clear":              {&SidebarClear{TabID: 1}, 0},
		"clear no tab":       {&SidebarClear{TabID: -7}, protocol.KindInvalid},
		"dismiss":            {&SidebarDismiss{Index: 4}, 0},
		"dismiss before all": {&SidebarDismiss{Index: -1}, protocol.KindInvalid},
		"dismiss no tab":     {&SidebarDismiss{TabID: -1}, protocol.KindInvalid},
		"switch":             {&SidebarSwitch{TabID: 7}, 0},
		"switch to nothing":  {&SidebarSwitch{}, protocol.KindInvalid},
	} {
		if err := c.body.Check(); (err == nil) != (c.kind == 0) || err != nil && protocol.KindOf(err) != c.kind {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := (&SidebarSend{Message: "x", SenderName: "Eve"}).AskedBy("usr_1"); protocol.KindOf(err) != protocol.KindForbidden {
		t.Errorf("a name: %v", err)
	}
	if also, err := (&SidebarSend{Message: "x"}).AskedBy("usr_1"); err != nil || len(also) > 0 {
		t.Errorf("%v, %v", also, err)
	}
}
