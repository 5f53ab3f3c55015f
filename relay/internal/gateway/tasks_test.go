package gateway

import (
	"context"
	"testing"
	"testing/synctest"
	"time"
)

// What runs is waited for, though not for ever, and nothing begins behind that.
func TestTasks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var tasks Tasks
		stop, over := make(chan struct{}), false
		if !tasks.Go(func() { <-stop; time.Sleep(time.Second); over = true }) {
			t.Fatal("it doesn't run")
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		tasks.Close(ctx, nil)
		if ctx.Err() == nil {
			t.Error("it was not waited for until ctx ended")
		}
		tasks.Close(t.Context(), func() { close(stop) })
		if !over {
			t.Error("it was not waited for")
		}
		if tasks.Go(func() { t.Error("it runs") }) {
			t.Error("it begins behind Close")
		}
	})
}
