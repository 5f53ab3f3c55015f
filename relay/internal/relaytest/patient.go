package relaytest

import (
	"testing"
	"time"

	"go.uber.org/goleak"
)

// leakPatience bounds how long ending goroutines may take.
const leakPatience = 30 * time.Second

// Patient wraps m for goleak.VerifyTestMain, which waits only half a second for
// goroutines to end: on a busy machine that may be too short.
func Patient(m *testing.M) interface{ Run() int } { return patient{m} }

type patient struct{ m *testing.M }

func (p patient) Run() int {
	code := p.m.Run()
	if code != 0 {
		return code // goleak doesn't check then
	}
	end := time.Now().Add(leakPatience)
	for left := goleak.Find(); left != nil && time.Now().Before(end); {
		left = goleak.Find()
	}
	return code
}
