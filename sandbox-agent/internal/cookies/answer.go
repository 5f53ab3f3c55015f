package cookies

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/fairlead/fairlead/protocol/op"
	"github.com/fairlead/fairlead/protocol/seal"
)

const (
	// maxAnswer bounds the body of a 200, in bytes.
	maxAnswer = 64 << 10
	// restOfAnswer is what its numbers and the names of its members take.
	restOfAnswer = 1 << 10
	// maxRefusals bounds those that are told; a cookie is a few dozen bytes of answer.
	maxRefusals = maxAnswer / 32
	// maxTold bounds a host or name in one of them, in bytes: one that is longer can't
	// be right, but its source is to know which it was.
	maxTold = 512
	// maxLogged bounds the hosts in a line of the log, maxLoggedHost each of them.
	maxLogged     = 20
	maxLoggedHost = 100
)

// A report is what came of an envelope's cookies.
type report struct {
	written, dropped, refused, duplicates, removed int

	hosts    map[string]int // cookies dropped, by host
	refusals []op.SyncRefusal
	ignored  []string
}

func (r *report) drop(host string) {
	if r.hosts == nil {
		r.hosts = map[string]int{}
	}
	r.hosts[host]++
	r.dropped++
}

func (r *report) refuse(c seal.Cookie, why string) {
	r.refused++
	if len(r.refusals) < maxRefusals {
		r.refusals = append(r.refusals, op.SyncRefusal{HostKey: shortened(c.HostKey), Name: shortened(c.Name), Reason: why})
	}
}

// shortened is so much of a host or name that others have room beside it.
func shortened(s string) string {
	if len(s) <= maxTold {
		return s
	}
	return strings.ToValidUTF8(s[:maxTold], "") + "…"
}

// byCount returns the hosts, those with most cookies first.
func (r *report) byCount() []string {
	return slices.SortedFunc(maps.Keys(r.hosts), func(a, b string) int {
		return cmp.Or(cmp.Compare(r.hosts[b], r.hosts[a]), cmp.Compare(a, b))
	})
}

// answer is what the source is told: as much as fits, and how much didn't.
func (r *report) answer() op.SyncAnswer {
	a := op.SyncAnswer{
		Written: r.written, Dropped: r.dropped, DroppedHosts: map[string]int{}, Refused: []op.SyncRefusal{},
		Ignored: append([]string{}, r.ignored...), Duplicates: r.duplicates, Removed: r.removed,
	}
	room := maxAnswer - restOfAnswer
	fits := func(v any) bool {
		n := encoded(v)
		if n > room {
			return false
		}
		room -= n
		return true
	}
	for _, refusal := range r.refusals {
		if fits(refusal) {
			a.Refused = append(a.Refused, refusal)
		}
	}
	for _, host := range r.byCount() {
		if fits(map[string]int{host: r.hosts[host]}) {
			a.DroppedHosts[host] = r.hosts[host]
		}
	}
	a.More = len(r.hosts) - len(a.DroppedHosts) + r.refused - len(a.Refused)
	return a
}

// encoded is how many bytes v takes in an answer, with what separates it.
func encoded(v any) int {
	text, err := json.Marshal(v)
	if err != nil {
		return maxAnswer // plain strings and numbers can be encoded
	}
	return len(text) + 1
}

// hostsForLog names the hosts that were dropped most, and how many others there are.
func (r *report) hostsForLog() string {
	var line strings.Builder
	for i, host := range r.byCount() {
		if i == maxLogged {
			fmt.Fprintf(&line, " and %d more", len(r.hosts)-i)
			break
		}
		if i > 0 {
			line.WriteByte(' ')
		}
		fmt.Fprintf(&line, "%.*q=%d", maxLoggedHost, host, r.hosts[host])
	}
	return line.String()
}
