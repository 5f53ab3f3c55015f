package certfile

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"io"
	"log/slog"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
)

// A world is two files and a program that follows them.
type world struct {
	t    *testing.T
	dir  string
	now  atomic.Int64 // nanoseconds
	log  bytes.Buffer // whole once nobody shakes hands
	get  func(*tls.ClientHelloInfo) (*tls.Certificate, error)
	pool *x509.CertPool
}

func (w *world) cert() string { return filepath.Join(w.dir, "cert.pem") }
func (w *world) key() string  { return filepath.Join(w.dir, "key.pem") }

// newWorld follows a pair for "first".
func newWorld(t *testing.T) *world {
	w := &world{t: t, dir: t.TempDir(), pool: x509.NewCertPool()}
	cert, key := w.made("first")
	w.put(w.cert(), cert)
	w.put(w.key(), key)
	w.follow()
	return w
}

func (w *world) follow() {
	w.t.Helper()
	log := slog.New(slog.NewTextHandler(&w.log, nil))
	var err error
	w.get, err = Follow(w.cert(), w.key(), func() time.Time { return time.Unix(1e9, w.now.Load()) }, log)
	must(w.t, err)
}

// made returns a certificate for name and its key, as PEM.
func (w *world) made(name string) (cert, key []byte) {
	w.t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	must(w.t, err)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), DNSNames: []string{name}, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		NotBefore: time.Unix(0, 0), NotAfter: time.Date(2099, 1, 2, 3, 4, 5, 0, time.UTC),
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, private.Public(), private)
	must(w.t, err)
	keyDER, err := x509.MarshalPKCS8PrivateKey(private)
	must(w.t, err)
	cert = pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
	w.pool.AppendCertsFromPEM(cert)
	return cert, pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: keyDER})
}

// put puts a file in another's place, as certbot does.
func (w *world) put(name string, data []byte) {
	w.t.Helper()
	must(w.t, os.WriteFile(name+".new", data, 0o600))
	must(w.t, os.Rename(name+".new", name))
}

func (w *world) pass(d time.Duration) { w.now.Add(int64(d)) }

// presents returns for which name the certificate of a handshake is.
func (w *world) presents() string {
	cert, err := w.get(&tls.ClientHelloInfo{})
	if err != nil {
		return err.Error()
	}
	return cert.Leaf.DNSNames[0]
}

func (w *world) want(name string) {
	w.t.Helper()
	if got := w.presents(); got != name {
		w.t.Errorf("the certificate is for %q, want %q", got, name)
	}
}

// said reports how many lines of a level were logged since the last call.
func (w *world) said(warn, info int) {
	w.t.Helper()
	text := w.log.String()
	w.log.Reset()
	if strings.Count(text, "level=WARN") != warn || strings.Count(text, "level=INFO") != info {
		w.t.Errorf("want %d warnings, %d successes in %q", warn, info, text)
	}
}

// A file that is put in the place of another is seen, when a second has passed
// since the last look and not before.
func TestRename(t *testing.T) {
	w := newWorld(t)
	w.want("first")
	cert, key := w.made("second")
	w.put(w.key(), key)
	w.put(w.cert(), cert)
	w.pass(Interval - 1)
	w.want("first")
	w.said(0, 0)
	w.pass(1)
	w.want("second")
	for _, part := range []string{"not_after=2099-01-02T03:04:05", "second 127.0.0.1", w.cert()} {
		if !strings.Contains(w.log.String(), part) {
			t.Errorf("no %s in %q", part, w.log.String())
		}
	}
	w.said(0, 1)
	w.pass(Interval)
	w.want("second") // and the files, which are the same, aren't read again
	w.said(0, 0)
}

// A file that is written in its place is seen by its time alone.
func TestWrittenInPlace(t *testing.T) {
	w := newWorld(t)
	must(t, os.Chtimes(w.cert(), time.Time{}, time.Unix(1, 0)))
	w.want("first")
	w.said(0, 1)
}

// Whichever file is replaced first, the old pair stays until both fit.
func TestOneBeforeTheOther(t *testing.T) {
	for _, keyFirst := range []bool{true, false} {
		w := newWorld(t)
		cert, key := w.made("second")
		first, second, early, late := w.cert(), w.key(), cert, key
		if keyFirst {
			first, second, early, late = second, first, key, cert
		}
		w.put(first, early)
		for range 3 {
			w.want("first")
			w.pass(Interval)
		}
		w.said(1, 0)
		w.put(second, late)
		w.want("second")
		w.said(0, 1)
	}
}

// Files that aren't there or hold rubbish leave the old pair. Each such change is
// complained of once, and what is logged has nothing of the files.
func TestBroken(t *testing.T) {
	w := newWorld(t)
	old, err := os.ReadFile(w.key())
	must(t, err)
	for _, data := range []string{"rubbish", "-----BEGIN PRIVATE KEY-----\ncnViYmlzaA==\n-----END PRIVATE KEY-----\n"} {
		w.put(w.key(), []byte(data))
		w.want("first")
		w.pass(Interval)
		w.want("first")
		w.pass(Interval)
		if text := w.log.String(); strings.Contains(text, "rubbish") || strings.Contains(text, "cnViYmlzaA") {
			t.Errorf("logged: %q", text)
		}
		w.said(1, 0)
	}
	must(t, os.Remove(w.key()))
	w.want("first")
	w.pass(Interval)
	w.said(1, 0)
	w.put(w.key(), old)
	w.want("first")
	w.said(0, 1)
}

// Files that were refused are tried again though they look the same, as they do
// when only their mode was wrong; a refused file that is taken back ends it.
func TestRefusedThenGood(t *testing.T) {
	w := newWorld(t)
	cert, key := w.made("second")
	bad := bytes.Repeat([]byte("x"), len(cert))
	w.put(w.key(), key)
	w.put(w.cert(), bad)
	must(t, os.Chtimes(w.cert(), time.Time{}, time.Unix(5, 0)))
	w.want("first")
	must(t, os.WriteFile(w.cert(), cert, 0o600)) // in the same file, of the same size
	must(t, os.Chtimes(w.cert(), time.Time{}, time.Unix(5, 0)))
	w.pass(Interval)
	w.want("second")
	w.said(1, 1)

	for range 2 {
		must(t, os.Rename(w.cert(), w.cert()+".away"))
		w.pass(Interval)
		w.want("second")
		must(t, os.Rename(w.cert()+".away", w.cert()))
		w.pass(Interval)
		w.want("second")
		w.said(1, 0)
	}
}

// Kubernetes exchanges a link to the directory that both files' links lead
// through.
func TestSymlinkSwap(t *testing.T) {
	w := newWorld(t)
	for _, name := range []string{"one", "two"} {
		cert, key := w.made(name)
		must(t, os.Mkdir(filepath.Join(w.dir, name), 0o700))
		w.put(filepath.Join(w.dir, name, "cert.pem"), cert)
		w.put(filepath.Join(w.dir, name, "key.pem"), key)
	}
	data := filepath.Join(w.dir, "..data")
	must(t, os.Symlink("one", data))
	for _, name := range []string{w.cert(), w.key()} {
		must(t, os.Remove(name))
		must(t, os.Symlink(filepath.Join("..data", filepath.Base(name)), name))
	}
	w.follow()
	w.want("one")
	must(t, os.Symlink("two", data+".new"))
	must(t, os.Rename(data+".new", data))
	w.pass(Interval)
	w.want("two")
	w.said(0, 1)
}

// At the start there is no old pair: what is wrong is an error that names both
// files and quotes neither.
func TestFollowNamesTheFiles(t *testing.T) {
	w := newWorld(t)
	_, other := w.made("second")
	for name, data := range map[string][]byte{"another's": other, "rubbish": []byte("rubbish")} {
		w.put(w.key(), data)
		get, err := Follow(w.cert(), w.key(), time.Now, slog.New(slog.DiscardHandler))
		if get != nil || err == nil || !strings.Contains(err.Error(), w.cert()) || !strings.Contains(err.Error(), w.key()) ||
			strings.Contains(err.Error(), "rubbish") {
			t.Errorf("%s key: %v", name, err)
		}
	}
}

// While one handshake waits for the disk, others go on with the old certificate.
func TestNobodyWaitsForAnothersRead(t *testing.T) {
	w := newWorld(t)
	cert, key := w.made("second")
	w.put(w.key(), key)
	must(t, os.Remove(w.cert()))
	must(t, syscall.Mkfifo(w.cert(), 0o600))
	reads := make(chan string, 1)
	go func() { reads <- w.presents() }() // received below
	disk, err := os.OpenFile(w.cert(), os.O_WRONLY, 0)
	must(t, err) // now it reads
	w.pass(Interval)
	w.want("first")
	_, err = disk.Write(cert)
	must(t, err)
	must(t, disk.Close())
	if name := <-reads; name != "second" {
		t.Errorf("who read has the one for %q", name)
	}
}

// Many shake hands while the files change: each gets a whole pair.
func TestManyAtOnce(t *testing.T) {
	w := newWorld(t)
	var shaking sync.WaitGroup
	for range 8 {
		shaking.Go(func() {
			for range 100 {
				cert, err := w.get(&tls.ClientHelloInfo{})
				if err != nil || !cert.PrivateKey.(*ecdsa.PrivateKey).PublicKey.Equal(cert.Leaf.PublicKey) {
					t.Errorf("not a pair, %v", err)
				}
				w.pass(Interval / 2)
			}
		})
	}
	for range 20 {
		cert, key := w.made("next")
		w.put(w.key(), key)
		w.put(w.cert(), cert)
	}
	shaking.Wait()
	w.pass(Interval)
	w.want("next")
}

// A client resumes its session after a change, and others see the new one.
func TestResumption(t *testing.T) {
	w := newWorld(t)
	server := &tls.Config{GetCertificate: w.get}
	returning := &tls.Config{RootCAs: w.pool, ServerName: "127.0.0.1", ClientSessionCache: tls.NewLRUClientSessionCache(1)}
	if w.shake(server, returning).DidResume {
		t.Error("the first session was resumed")
	}
	cert, key := w.made("second")
	w.put(w.key(), key)
	w.put(w.cert(), cert)
	w.pass(Interval)
	state := w.shake(server, &tls.Config{RootCAs: w.pool, ServerName: "127.0.0.1"})
	if name := state.PeerCertificates[0].DNSNames[0]; name != "second" {
		t.Errorf("a stranger sees %q", name)
	}
	if !w.shake(server, returning).DidResume {
		t.Error("the session wasn't resumed")
	}
}

// shake connects a client to a server, reads a byte and with it the tickets.
func (w *world) shake(server, client *tls.Config) tls.ConnectionState {
	w.t.Helper()
	listener, err := tls.Listen("tcp", "127.0.0.1:0", server) // a pipe has no room for tickets
	must(w.t, err)
	defer listener.Close()
	go func() { // ends when it has sent, or there is nobody to send to
		if far, err := listener.Accept(); err == nil {
			far.Write([]byte{1})
			far.Close()
		}
	}()
	conn, err := tls.Dial("tcp", listener.Addr().String(), client)
	must(w.t, err)
	defer conn.Close()
	_, err = io.ReadFull(conn, make([]byte, 1))
	must(w.t, err)
	return conn.ConnectionState()
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// TestPool: what can't be believed is named.
func TestPool(t *testing.T) {
	for _, file := range []string{filepath.Join(t.TempDir(), "none.pem"), os.DevNull} {
		if pool, err := Pool(file); pool != nil || err == nil || !strings.Contains(err.Error(), file) {
			t.Errorf("%s: %v", file, err)
		}
	}
}
