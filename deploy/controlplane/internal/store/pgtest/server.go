package pgtest

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5"
)

const (
	superuser    = "fairlead"
	readyTimeout = 30 * time.Second
	readyPoll    = 5 * time.Millisecond
)

// A server is a running Postgres.
type server struct {
	// Static after construction.
	dir      string // of data and socket
	password string
	process  *os.Process
	ended    chan struct{} // closed once the process is gone
}

// binaries returns the directory of initdb and postgres, of the newest version.
func binaries() (string, error) {
	var dirs []string
	if path, err := exec.LookPath("postgres"); err == nil {
		if path, err = filepath.EvalSymlinks(path); err == nil {
			dirs = append(dirs, filepath.Dir(path))
		}
	}
	installed, _ := filepath.Glob("/usr/lib/postgresql/*/bin") // the pattern is well-formed
	slices.SortFunc(installed, func(a, b string) int { return cmp.Compare(version(b), version(a)) })
	for _, dir := range append(dirs, installed...) {
		if exists(filepath.Join(dir, "initdb")) && exists(filepath.Join(dir, "postgres")) {
			return dir, nil
		}
	}
	return "", errors.New("no Postgres is installed (Debian: apt-get install postgresql)")
}

// version returns the number in …/15/bin.
func version(bin string) float64 {
	v, err := strconv.ParseFloat(filepath.Base(filepath.Dir(bin)), 64)
	if err != nil {
		return 0
	}
	return v
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

// start makes a data directory and runs a server on it, which doesn't outlive us.
func start(ctx context.Context, bin string) (*server, error) {
	credential, err := unprivileged()
	if err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp("", "pg") // short: a socket's path has little room
	if err != nil {
		return nil, err
	}
	s := &server{dir: dir, password: rand.Text(), ended: make(chan struct{})}
	if err := s.run(ctx, bin, credential); err != nil {
		return nil, errors.Join(err, os.RemoveAll(dir))
	}
	return s, nil
}

func (s *server) run(ctx context.Context, bin string, credential *syscall.Credential) error {
	data, passwords := filepath.Join(s.dir, "data"), filepath.Join(s.dir, "password")
	if err := os.WriteFile(passwords, []byte(s.password), 0o600); err != nil {
		return err
	}
	if credential != nil {
		for _, path := range []string{s.dir, passwords} {
			if err := os.Chown(path, int(credential.Uid), int(credential.Gid)); err != nil {
				return err
			}
		}
	}
	initdb := s.command(credential, filepath.Join(bin, "initdb"), "--pgdata", data, "--username", superuser,
		"--pwfile", passwords, "--auth", "password", "--encoding", "UTF8", "--no-locale", "--no-sync")
	if out, err := initdb.CombinedOutput(); err != nil {
		return fmt.Errorf("initdb: %w\n%s", err, out)
	}
	log, err := os.OpenFile(filepath.Join(s.dir, "log"), os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer log.Close()
	// Nothing here has to survive a power failure.
	cmd := s.command(credential, filepath.Join(bin, "postgres"), "-D", data, "-k", s.dir, "-c", "listen_addresses=",
		"-c", "fsync=off", "-c", "full_page_writes=off", "-c", "max_connections=200", "-c", "autovacuum=off")
	cmd.Stdout, cmd.Stderr = log, log
	if err := s.launch(cmd); err != nil {
		return err
	}
	if err := s.awaitReady(ctx); err != nil {
		s.stop()
		text, _ := os.ReadFile(log.Name())
		return fmt.Errorf("postgres: %w\n%s", err, text)
	}
	return nil
}

func (s *server) command(credential *syscall.Credential, name string, args ...string) *exec.Cmd {
	cmd := exec.Command(name, args...)
	cmd.Dir = s.dir
	cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "LC_ALL=C", "TZ=UTC"}
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: credential, Setpgid: true, Pdeathsig: syscall.SIGQUIT}
	return cmd
}

// launch starts cmd. Pdeathsig fires when the thread that forked ends, so that
// thread lives as long as the process.
func (s *server) launch(cmd *exec.Cmd) error {
	started := make(chan error)
	go func() { // stop waits for ended
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := cmd.Start()
		started <- err
		if err == nil {
			_ = cmd.Wait() // it was told to end
			close(s.ended)
		}
	}()
	if err := <-started; err != nil {
		return err
	}
	s.process = cmd.Process
	return nil
}

func (s *server) awaitReady(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, readyTimeout)
	defer cancel()
	poll := time.NewTicker(readyPoll)
	defer poll.Stop()
	for {
		conn, err := pgx.Connect(ctx, s.url("public"))
		if err == nil {
			return conn.Close(ctx)
		}
		select {
		case <-poll.C:
		case <-s.ended:
			return errors.New("it ended at once")
		case <-ctx.Done():
			return err
		}
	}
}

// stop ends the server at once and removes what it kept.
func (s *server) stop() {
	_ = s.process.Signal(syscall.SIGQUIT) // it may be gone already
	<-s.ended
	_ = os.RemoveAll(s.dir)
}

// unprivileged returns who runs the server: nil for ourselves. Postgres refuses
// to run as root.
func unprivileged() (*syscall.Credential, error) {
	if os.Getuid() != 0 {
		return nil, nil
	}
	for _, name := range []string{"postgres", "nobody"} {
		u, err := user.Lookup(name)
		if err != nil {
			continue
		}
		uid, err := strconv.ParseUint(u.Uid, 10, 32)
		if err != nil {
			continue
		}
		gid, err := strconv.ParseUint(u.Gid, 10, 32)
		if err != nil {
			continue
		}
		return &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}, nil
	}
	return nil, errors.New("postgres doesn't run as root, and there is no user postgres or nobody")
}
