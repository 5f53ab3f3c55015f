package owntabs

import (
	"encoding/base64"
	"fmt"
	"net/http"
	"net/http/httptest"
	"reflect"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"github.com/fairlead/fairlead/deploy/program/chromium"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestJudge(t *testing.T) {
	for name, c := range map[string]struct {
		want, ran []int
		verdict   Verdict
	}{
		"all in order":        {[]int{1, 2, 3}, []int{1, 2, 3}, Verdict{}},
		"nothing at all":      {nil, nil, Verdict{}},
		"in another order":    {[]int{5, 1, 9}, []int{5, 1, 9}, Verdict{}},
		"one is lost":         {[]int{1, 2, 3}, []int{1, 3}, Verdict{Lost: 1}},
		"all are lost":        {[]int{1, 2}, nil, Verdict{Lost: 2}},
		"one twice":           {[]int{1, 2}, []int{1, 2, 1}, Verdict{Doubled: 1}},
		"one from before":     {[]int{3}, []int{1, 3}, Verdict{Doubled: 1}},
		"one too late":        {[]int{1, 2, 3}, []int{2, 3, 1}, Verdict{Disordered: 1}},
		"lost and in turmoil": {[]int{1, 2, 3}, []int{3, 3, 1}, Verdict{Lost: 1, Doubled: 1, Disordered: 1}},
	} {
		if got := Judge(c.want, c.ran); got != c.verdict {
			t.Errorf("%s: %+v", name, got)
		}
	}
}

// event is a command in a stream, as a relay writes it.
func event(tab int, expression string) string {
	signed := base64.RawURLEncoding.EncodeToString(fmt.Appendf(nil, `{"op":{"kind":"cdp.send","params":{"expression":%q}}}`, expression))
	return fmt.Sprintf("event: command\ndata: {\"commandId\":\"cmd_1\",\"target\":{\"tabId\":%d},\"jws\":\"e30.%s.e30\"}\n\n", tab, signed)
}

// Who listens hears what is carried, in its order, and nothing else.
func TestListen(t *testing.T) {
	relay := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.String() != "/control/stream?browser=br_1" || r.Header.Get("Authorization") != "Bearer grant" || r.Header.Get("Origin") == "" {
			http.Error(w, "who?", http.StatusUnauthorized)
			return
		}
		fmt.Fprint(w, ": hello\n\n", event(7, Push(2)), event(8, Push(3)), event(7, Push(1)), event(7, "alert(1)"), "data: x\n\n", "data: {\"jws\":\"a.!.c\"}\n\n", "data: {\"jws\":\"a\"}\n\n")
	}))
	defer relay.Close()
	c, err := Listen(t.Context(), relay.URL, "grant", "br_1")
	if err != nil {
		t.Fatal(err)
	}
	<-c.done // the relay has said it all
	if got := c.Close(); !reflect.DeepEqual(got, map[int64][]int{7: {2, 1}, 8: {3}}) {
		t.Errorf("%v", got)
	}
	if _, err := Listen(t.Context(), relay.URL, "another", "br_1"); err == nil || !strings.Contains(err.Error(), "401") {
		t.Errorf("refused: %v", err)
	}
	http.DefaultClient.CloseIdleConnections()
}

// Without a Chromium it says what is missing, and leaves nothing.
func TestWithoutChromium(t *testing.T) {
	t.Setenv("PATH", t.TempDir())
	err := With(t.Context(), Options{}, func(*Browser) error {
		t.Error("there is a browser")
		return nil
	})
	if err != chromium.ErrMissing {
		t.Errorf("%v", err)
	}
}
