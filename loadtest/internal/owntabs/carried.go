package owntabs

import (
	"bufio"
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/http"
	"regexp"
	"strconv"
	"strings"

	"github.com/fairlead/fairlead/protocol"
)

// maxEvent bounds a line of a stream of commands.
const maxEvent = 256 << 10

// A Carried is what a relay carried to a browser, in its order: the numbers that
// commands push, by tab. It follows the stream as another window of the console.
type Carried struct {
	done chan struct{}
	body *http.Response
	got  map[int64][]int // owned by read until done is closed
}

// Listen follows the stream of commands for a browser, at a relay's origin, from
// now on.
func Listen(ctx context.Context, origin, grant, browser string) (*Carried, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, origin+"/control/stream?browser="+browser, nil)
	if err != nil {
		return nil, err
	}
	req.Header.Set("Authorization", "Bearer "+grant)
	req.Header.Set("Origin", origin)
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return nil, err
	}
	c := &Carried{done: make(chan struct{}), body: resp, got: make(map[int64][]int)}
	if resp.StatusCode != http.StatusOK {
		_ = resp.Body.Close()
		return nil, fmt.Errorf("GET /control/stream: status %d", resp.StatusCode)
	}
	go c.read() // Close waits for it
	return c, nil
}

func (c *Carried) read() {
	defer close(c.done)
	lines := bufio.NewScanner(c.body.Body)
	lines.Buffer(nil, maxEvent)
	for lines.Scan() {
		data, ok := bytes.CutPrefix(lines.Bytes(), []byte("data:"))
		var env protocol.CommandEnvelope
		if !ok || json.Unmarshal(data, &env) != nil {
			continue
		}
		if number, ok := pushed(env.JWS); ok {
			c.got[env.Target.TabID] = append(c.got[env.Target.TabID], number)
		}
	}
}

// Close ends it and returns the numbers by tab.
func (c *Carried) Close() map[int64][]int {
	_ = c.body.Body.Close()
	<-c.done
	return c.got
}

// Push is an expression that pushes a number and is 2.
func Push(number int) string { return fmt.Sprintf("window.list.push(%d), 1+1", number) }

var pushes = regexp.MustCompile(`^window\.list\.push\((\d+)\), 1\+1$`)

// pushed returns the number that a signed command pushes.
func pushed(token string) (number int, ok bool) {
	_, rest, _ := strings.Cut(token, ".")
	payload, _, _ := strings.Cut(rest, ".")
	text, err := base64.RawURLEncoding.DecodeString(payload)
	if err != nil {
		return 0, false
	}
	var signed struct {
		Op struct {
			Params struct {
				Expression string `json:"expression"`
			} `json:"params"`
		} `json:"op"`
	}
	if json.Unmarshal(text, &signed) != nil {
		return 0, false
	}
	found := pushes.FindStringSubmatch(signed.Op.Params.Expression)
	if found == nil {
		return 0, false
	}
	number, err = strconv.Atoi(found[1])
	return number, err == nil
}

// A Verdict says what became of commands.
type Verdict struct{ Lost, Doubled, Disordered int }

// Judge compares the numbers in a tab's list to those that were for it, in their
// order. A number more than once in the list counts as doubled; one before another
// that it should follow, as disordered.
func Judge(want, ran []int) (v Verdict) {
	place := make(map[int]int, len(want))
	for i, n := range want {
		place[n] = i
	}
	seen := make(map[int]bool, len(ran))
	highest := -1
	for _, n := range ran {
		i, known := place[n]
		switch {
		case seen[n] || !known: // one that nobody sent now was sent before
			v.Doubled++
			continue
		case i < highest:
			v.Disordered++
		}
		seen[n] = true
		highest = max(highest, i)
	}
	v.Lost = len(place) - len(seen)
	return v
}
