package browser

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	cdpbrowser "github.com/chromedp/cdproto/browser"
	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/target"
	"github.com/chromedp/chromedp"
	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/protocol/seal"
	"github.com/fairlead/fairlead/sandbox-agent/internal/browser/installed"
	"github.com/fairlead/fairlead/sandbox-agent/internal/browser/jar"
	"github.com/fairlead/fairlead/sandbox-agent/internal/browser/pipe"
	"github.com/fairlead/fairlead/sandbox-agent/internal/browser/roster"
)

const (
	// startTimeout bounds a start, until the first page is usable.
	startTimeout = time.Minute
	// callTimeout bounds calls of Chromium without a tool's own timeout.
	callTimeout = 10 * time.Second
	// cookieTimeout bounds a call about cookies.
	cookieTimeout = 30 * time.Second
	// quitGrace is how long Chromium may take to end by itself, which saves its
	// cookies.
	quitGrace = 10 * time.Second
	// maxOutput bounds what is kept of Chromium's output, in bytes.
	maxOutput = 8 << 10
	// minSharedMemory is the free space in /dev/shm, in bytes, that Chromium needs
	// to use it.
	minSharedMemory = 512 << 20
	// viewWidth and viewHeight are a page's size, in pixels.
	viewWidth, viewHeight = 1280, 800
)

// errNoSandbox says that Chromium found no way to confine its renderers.
var errNoSandbox = errors.New("browser: no usable sandbox")

// A chromium is one running Chromium.
type chromium struct {
	// Static after construction.
	session   protocol.SessionID
	opts      *Options
	guard     *guard
	kill      func()
	pipe      *pipe.Pipe
	temp      string          // temporary folder
	sandboxed bool            // user namespaces confine its renderers
	ctx       context.Context // chromedp's; ends with the Chromium
	cancel    context.CancelFunc
	gone      chan struct{} // closed once the process is reaped
	output    *bytes.Buffer // the process's output, at most maxOutput; complete once gone is closed
	closing   sync.Once
	crashed   atomic.Bool // it has no page any more

	browser *chromedp.Browser // static after open; nil: it didn't get so far
}

// flags are Chromium's fixed flags.
var flags = []string{
	"--headless", "--remote-debugging-pipe", "--no-startup-window", "--no-first-run", "--no-default-browser-check",
	"--mute-audio", "--disable-gpu", "--password-store=basic", "--use-mock-keychain", "--noerrdialogs",
	"--disk-cache-size=33554432", "--media-cache-size=33554432",
	fmt.Sprintf("--window-size=%d,%d", viewWidth, viewHeight),
	// A page can only use connections through the guard.
	"--proxy-bypass-list=<-loopback>", "--disable-quic",
	"--webrtc-ip-handling-policy=disable_non_proxied_udp",
	"--host-resolver-rules=MAP * ~NOTFOUND , EXCLUDE 127.0.0.1",
	// Pages can't open windows: of what they ask for a tab is made here.
	"--block-new-web-contents",
	// Chromium's own sandbox uses only user namespaces, as no setuid program gains
	// privileges here.
	"--disable-setuid-sandbox",
	// Chromium does nothing on its own. For the two hosts of its maker that it
	// contacts anyway it gets an address where nobody listens.
	"--gaia-url=http://127.0.0.1:1", "--component-updater=url-source=http://127.0.0.1:1/",
	"--disable-background-networking", "--disable-component-update", "--disable-sync", "--disable-default-apps",
	"--disable-extensions", "--disable-breakpad", "--disable-crash-reporter", "--disable-domain-reliability",
	"--disable-client-side-phishing-detection", "--no-pings", "--metrics-recording-only", "--deny-permission-prompts",
	"--disable-print-preview", "--disable-notifications", "--disable-speech-api",
	"--disable-field-trial-config", "--no-service-autorun", "--disable-search-engine-choice-screen", "--allow-browser-signin=false",
	"--disable-features=NetworkTimeServiceQuerying,HttpsUpgrades,HttpsFirstBalancedModeAutoEnable,Translate,MediaRouter,DialMediaRouteProvider,OptimizationHints,AutofillServerCommunication," +
		"CertificateTransparencyComponentUpdater,WebOTP,WebUSB,WebBluetooth,WebTransport",
}

// A place is where a session's Chromium is started.
type place struct {
	session protocol.SessionID
	profile string // folder
	account Account
	own     *ports
	tabs    *tabs
	want    roster.Want   // the first tab
	kept    []seal.Cookie // what it is to have at its first page
	pending jar.Pending   // of these, what its profile has an older one of, and what it must not have
}

// start starts a Chromium at. It ends with ctx, with Close, or by itself.
func start(ctx context.Context, at place, opts *Options) (*chromium, error) {
	find := opts.Exec
	if find == nil {
		find = installed.Chromium
	}
	path, err := find()
	if err != nil {
		return nil, err
	}
	if err := makeProfile(at.profile, at.account); err != nil {
		return nil, err
	}
	c, err := launch(ctx, path, at, opts, true)
	if errors.Is(err, errNoSandbox) {
		opts.Log.Warn("this machine has no user namespaces for Chromium's sandbox: pages are confined by its user alone", "session", at.session)
		c, err = launch(ctx, path, at, opts, false)
	}
	return c, err
}

// launch starts a Chromium once, with its own sandbox or without.
func launch(ctx context.Context, path string, at place, opts *Options, sandboxed bool) (*chromium, error) {
	session := at.session
	g, err := newGuard(session, at.account.UID, opts, at.own)
	if err != nil {
		return nil, err
	}
	temp, err := makeTemp(at.account)
	if err != nil {
		g.close()
		return nil, err
	}
	c := &chromium{
		session: session, opts: opts, guard: g, temp: temp, sandboxed: sandboxed, gone: make(chan struct{}), output: &bytes.Buffer{},
	}
	cmd := exec.Command(path, c.arguments(at.profile)...)
	cmd.Dir, cmd.Env = at.profile, environment(at.profile, temp)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Pdeathsig: syscall.SIGKILL, Credential: at.account.credential()}
	if err := c.run(cmd); err != nil {
		g.close()
		c.clear()
		return nil, &protocol.Error{Kind: protocol.KindUnavailable, Message: "the browser can't be started", Err: err}
	}
	if err := c.open(ctx, at); err != nil {
		at.tabs.end(c)
		c.Close()
		if sandboxed && strings.Contains(c.output.String(), "No usable sandbox") {
			return nil, errNoSandbox
		}
		opts.Log.Warn("a browser did not start", "session", session, "error", err, "output", lastLines(c.output.String()))
		return nil, &protocol.Error{Kind: protocol.KindUnavailable, Message: "the browser did not start", Err: err}
	}
	return c, nil
}

// arguments returns the command-line arguments.
func (c *chromium) arguments(profile string) []string {
	args := append([]string{"--user-data-dir=" + profile, "--proxy-server=http://" + c.guard.address()}, flags...)
	if !c.sandboxed {
		args = append(args, "--no-sandbox")
	}
	var disk unix.Statfs_t
	if unix.Statfs("/dev/shm", &disk) != nil || disk.Bavail*uint64(disk.Bsize) < minSharedMemory {
		args = append(args, "--disable-dev-shm-usage") // then it uses TMPDIR
	}
	return args
}

// environment returns the complete environment of a Chromium: the agent's own
// may hold secrets.
func environment(profile, temp string) []string {
	env := []string{
		"HOME=" + profile, "TMPDIR=" + temp, "LANG=C.UTF-8",
		"PATH=/usr/local/bin:/usr/bin:/bin",
	}
	if zone, ok := os.LookupEnv("TZ"); ok {
		env = append(env, "TZ="+zone)
	}
	return env
}

// run starts the process, with the ends of its pipes.
func (c *chromium) run(cmd *exec.Cmd) error {
	var files []*os.File
	pair := func() (r, w *os.File, err error) {
		if r, w, err = os.Pipe(); err == nil {
			files = append(files, r, w)
		}
		return r, w, err
	}
	commandsR, commandsW, err1 := pair()
	answersR, answersW, err2 := pair()
	outputR, outputW, err3 := pair()
	if err := errors.Join(err1, err2, err3); err != nil {
		closeAll(files)
		return err
	}
	cmd.ExtraFiles = []*os.File{commandsR, answersW} // descriptors 3 and 4
	cmd.Stdout, cmd.Stderr = outputW, outputW
	started := make(chan error)
	go c.reap(cmd, outputR, started) // closes gone
	if err := <-started; err != nil {
		closeAll(files)
		return err
	}
	closeAll([]*os.File{commandsR, answersW, outputW})
	c.pipe = pipe.New(answersR, commandsW)
	return nil
}

func closeAll(files []*os.File) {
	for _, f := range files {
		f.Close()
	}
}

// reap starts the process and waits for it on one thread: the kernel kills the
// process when that thread ends, not when the agent does. The thread ends with
// it, as Start may have dropped its privileges.
func (c *chromium) reap(cmd *exec.Cmd, output *os.File, started chan<- error) {
	runtime.LockOSThread() // never unlocked
	begin := c.opts.Start
	if begin == nil {
		begin = startAlone
	}
	var err error
	c.kill, err = begin(cmd)
	started <- err
	if err != nil {
		return
	}
	read := make(chan struct{})
	go func() { // waited for below
		defer close(read)
		kept := &tail{max: maxOutput}
		_, _ = io.Copy(kept, output) // until nobody writes any more
		c.output.Write(kept.text)
	}()
	awaitEnd(cmd.Process.Pid)
	c.kill()       // including descendants, while its process id is still taken
	_ = cmd.Wait() // whatever the result
	timer := time.AfterFunc(time.Second, func() { output.Close() })
	<-read
	timer.Stop()
	output.Close()
	close(c.gone)
}

// awaitEnd returns when a child has ended, without reaping it.
func awaitEnd(pid int) {
	for {
		err := unix.Waitid(unix.P_PID, pid, nil, unix.WEXITED|unix.WNOWAIT, nil)
		if !errors.Is(err, unix.EINTR) {
			return
		}
	}
}

func lastLines(text string) string {
	const lines = 5
	all := strings.Split(strings.TrimSpace(text), "\n")
	return strings.Join(all[max(0, len(all)-lines):], "\n")
}

// An allocator gives chromedp the running Chromium.
type allocator struct{ c *chromium }

func (a allocator) Allocate(ctx context.Context, opts ...chromedp.BrowserOption) (*chromedp.Browser, error) {
	return chromedp.NewBrowserTransport(ctx, a.c.pipe, opts...)
}

// Wait has nothing to wait for: see Close.
func (allocator) Wait() {}

// Attaches says that chromedp must not end the process.
func (allocator) Attaches() bool { return true }

// open connects to the started process and makes the first page.
func (c *chromium) open(ctx context.Context, at place) error {
	base, cancelBase := chromedp.NewAllocatorContext(context.Background(), allocator{c})
	log := func(format string, args ...any) {
		c.opts.Log.Debug("browser", "session", c.session, "said", fmt.Sprintf(format, args...))
	}
	root, cancelRoot := chromedp.NewContext(base, chromedp.WithLogf(log), chromedp.WithErrorf(log))
	c.ctx, c.cancel = root, func() { cancelRoot(); cancelBase() }
	timer := time.AfterFunc(startTimeout, func() { _ = c.pipe.Close() }) // chromedp's context must have no deadline of its own
	defer timer.Stop()
	defer context.AfterFunc(ctx, func() { _ = c.pipe.Close() })()
	if err := c.prepare(ctx, at); err != nil {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		return err
	}
	return nil
}

// prepare says what is heard of the browser, and makes the first page.
func (c *chromium) prepare(ctx context.Context, at place) error {
	if _, err := chromedp.Targets(c.ctx); err != nil { // connects
		return err
	}
	c.browser = chromedp.FromContext(c.ctx).Browser
	if err := at.tabs.begin(c); err != nil {
		return err
	}
	no := false
	for _, step := range []struct {
		method string
		params any
	}{
		{cdpbrowser.SetDownloadBehavior.Method, cdpbrowser.SetDownloadBehaviorParams{Behavior: cdpbrowser.SetDownloadBehaviorBehaviorDeny, EventsEnabled: &no}},
		{target.SetDiscoverTargets.Method, target.SetDiscoverTargetsParams{Discover: true}},
	} {
		if err := c.browser.Call(c.ctx, step.method, step.params, nil); err != nil {
			return fmt.Errorf("%s: %w", step.method, err)
		}
	}
	if refused, err := jar.Give(ctx, c, at.kept, at.pending); err != nil {
		return err
	} else if refused > 0 {
		c.opts.Log.Warn("a browser doesn't take all cookies that are kept for it", "session", c.session, "refused", refused)
	}
	_, err := at.tabs.page(ctx, c, at.want)
	if err != nil && protocol.KindOf(err) == protocol.KindNotFound { // whoever wants it is told so
		_, err = at.tabs.page(ctx, c, roster.Want{})
	}
	return err
}

// Call implements [jar.Chromium]: it ends with ctx, with Chromium, or after a while.
func (c *chromium) Call(ctx context.Context, method string, params, result any) error {
	call, cancel := context.WithTimeout(c.ctx, cookieTimeout)
	defer cancel()
	defer context.AfterFunc(ctx, cancel)()
	return c.browser.Call(call, method, params, result)
}

// later calls do on another goroutine, which ends with the Chromium or soon.
func (c *chromium) later(do func(context.Context)) { c.within(callTimeout, do) }

// closeTargets has Chromium close them. It waits for nothing.
func closeTargets(c *chromium, ids ...target.ID) {
	for _, id := range ids {
		c.later(func(ctx context.Context) {
			_, _ = cdp.Call(ctx, c.browser, target.CloseTarget, target.CloseTargetParams{TargetID: id}) // or it is gone
		})
	}
}

// within is later with more time.
func (c *chromium) within(limit time.Duration, do func(context.Context)) {
	go func() {
		ctx, cancel := context.WithTimeout(c.ctx, limit)
		defer cancel()
		do(ctx)
	}()
}

// crash ends a Chromium without pages, or with one that can't be closed.
func (c *chromium) crash() {
	c.crashed.Store(true)
	c.kill()
}

// dead reports whether the Chromium is useless.
func (c *chromium) dead() bool {
	var lost chan struct{}
	if c.browser != nil {
		lost = c.browser.LostConnection
	}
	select {
	case <-lost:
		return true
	case <-c.gone:
		return true
	default:
		return c.crashed.Load()
	}
}

// Close ends the Chromium and its descendants, and waits for that. It may first
// end by itself.
func (c *chromium) Close() { c.closing.Do(c.close) }

func (c *chromium) close() {
	_ = c.pipe.Close() // makes Chromium quit
	timer := time.AfterFunc(quitGrace, c.kill)
	<-c.gone
	timer.Stop()
	if c.cancel != nil {
		c.cancel()
	}
	c.guard.close()
	c.clear()
}

// clear removes Chromium's temporary files.
func (c *chromium) clear() {
	if err := os.RemoveAll(c.temp); err != nil {
		c.opts.Log.Warn("a browser's temporary files stay", "dir", c.temp, "err", err)
	}
}
