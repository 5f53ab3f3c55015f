package bridge

import (
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"
)

// BenchmarkCall measures a call through the bridge beside the same one over HTTP.
func BenchmarkCall(b *testing.B) {
	measure := func(b *testing.B, once func()) {
		took := make([]time.Duration, 0, b.N)
		for b.Loop() {
			began := time.Now()
			once()
			took = append(took, time.Since(began))
		}
		slices.Sort(took)
		b.ReportMetric(float64(took[len(took)/2].Microseconds()), "p50-µs")
		b.ReportMetric(float64(took[len(took)*99/100].Microseconds()), "p99-µs")
	}
	const answer = `{"jsonrpc":"2.0","id":2,"result":{}}`
	echo := func(w http.ResponseWriter, _ *http.Request) { w.Write([]byte(answer)) }
	b.Run("direct", func(b *testing.B) {
		a, _ := answering(b, echo)
		client := &http.Client{}
		defer client.CloseIdleConnections()
		measure(b, func() {
			r, err := http.NewRequest(http.MethodPost, endpoint(a.credentials()), strings.NewReader(answer))
			if err != nil {
				b.Fatal(err)
			}
			r.Header.Set("X-MCP-Secret", testSecret)
			response, err := client.Do(r)
			if err != nil {
				b.Fatal(err)
			}
			response.Body.Close()
		})
	})
	b.Run("bridge", func(b *testing.B) {
		_, p := answering(b, echo)
		measure(b, func() {
			p.next = 1
			p.call("x", `{}`)
		})
	})
}
