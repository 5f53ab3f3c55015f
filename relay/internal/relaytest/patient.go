package relaytest

import (
	"testing"
	"time"

	"go.uber.org/goleak"
)

// leakPatience is how long goroutines that are about to end may take to.
const leakPatience = 30 * time.Second

// Patient is m for goleak.VerifyTestMain, which looks for goroutines for half a
// second only: on a busy machine one that has nothing left to do may need longer
// to end.
func Patient(m *testing.M) interface{ Run() int } { return patient{m} }

type patient struct{ m *testing.M }

func (p patient) Run() int {
	code := p.m.Run()
	if code != 0 {
		return code // nobody looks for goroutines then
	}
	end := time.Now().Add(leakPatience)
	for left := goleak.Find(); left != nil && time.Now().Before(end); {
		left = goleak.Find()
	}
	return code
}
