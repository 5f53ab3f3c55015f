package loadtest

import (
	"os"
	"os/signal"
	"sync"
	"syscall"
	"time"

	"github.com/fairlead/fairlead/loadtest/internal/children"
)

// The first signal ends the run's context (package program): everything is ended
// in good order. After the second one what this program has started is ended at
// once, so that nothing is left to wait for, and its temporary directories go as
// after the first. The third one ends this process.
const (
	// hurryGrace is how long processes have to end by themselves.
	hurryGrace = time.Second
	// hurryWait is when this process ends after the second signal, whatever it
	// waits for.
	hurryWait = 2 * time.Second
)

// An interruption listens to the signals during a run.
type interruption struct {
	// Static after construction.
	say     func(format string, args ...any)
	signals chan os.Signal
	over    chan struct{} // closed by stop
	done    chan struct{} // closed when listening has ended

	mu     sync.Mutex
	remove func() // guarded by mu: what stop's caller would do later

	hurried bool // there was a second signal; to be read after stop
}

// listen listens until stop.
func listen(say func(format string, args ...any)) *interruption {
	i := &interruption{say: say, signals: make(chan os.Signal, 3), over: make(chan struct{}), done: make(chan struct{})}
	signal.Notify(i.signals, os.Interrupt, syscall.SIGTERM)
	go func() { // stop waits for it
		defer close(i.done)
		i.wait()
	}()
	return i
}

// atLast sets what is to be done before this process is ended in the middle of
// something.
func (i *interruption) atLast(remove func()) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.remove = remove
}

// stop ends the listening, and returns whether there was a second signal. What
// it had ended is gone then.
func (i *interruption) stop() (hurried bool) {
	close(i.over)
	<-i.done
	signal.Stop(i.signals)
	return i.hurried
}

func (i *interruption) wait() {
	for _, say := range []string{"ending; once more ends it at once", "ending at once"} {
		select {
		case <-i.signals:
			i.say("%s", say)
		case <-i.over:
			return
		}
	}
	i.hurried = true
	ended := make(chan struct{})
	go func() { // joined below, or the process ends
		defer close(ended)
		if !children.End(hurryGrace, hurryWait) {
			i.say("not every process that was started has ended")
		}
	}()
	late := time.NewTimer(hurryWait)
	defer late.Stop()
	over := i.over
	for ended != nil || over != nil {
		select {
		case <-ended:
			ended = nil
		case <-over:
			over = nil
		case <-late.C:
			i.mu.Lock()
			if i.remove != nil {
				i.remove()
			}
			os.Exit(statusInterrupted)
		case <-i.signals:
			os.Exit(statusInterrupted)
		}
	}
}
