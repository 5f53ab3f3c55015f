// Package certfile is what TLS reads of PEM files: a certificate that follows their
// changes, so that whoever renews it need not restart a program, and who is believed.
package certfile

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"log/slog"
	"os"
	"sync"
	"sync/atomic"
	"time"
)

// Interval is the least time between two looks at the files.
const Interval = time.Second

// Follow reads a certificate and its key, and returns what
// [tls.Config.GetCertificate] is to be. Errors name the files.
//
// A handshake looks at the files when the last look is [Interval] ago by now,
// and reads them if they are others. There is no goroutine and nothing to close.
// While they can't be read, or the key isn't the certificate's because only one
// of them has been replaced, the old pair stays and each look tries again. The
// [tls.Config] stays the same, and so do the keys of its session tickets: clients
// resume their sessions across a change.
func Follow(cert, key string, now func() time.Time, log *slog.Logger) (func(*tls.ClientHelloInfo) (*tls.Certificate, error), error) {
	p := &pair{cert: cert, key: key, log: log.With("cert", cert, "key", key), loaded: stat(cert, key)}
	first, err := tls.LoadX509KeyPair(cert, key)
	if err != nil {
		return nil, fmt.Errorf("certificate %s, key %s: %w", cert, key, err)
	}
	p.current.Store(&first)
	return func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return p.at(now()), nil }, nil
}

// Pool returns the certificates in a file: of those who vouch for others. They don't
// follow its changes. Errors name the file.
func Pool(file string) (*x509.CertPool, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(text) {
		return nil, fmt.Errorf("%s: there is no certificate in it", file)
	}
	return pool, nil
}

// A pair is a certificate and its key.
type pair struct {
	// Static after construction.
	cert, key string
	log       *slog.Logger

	current atomic.Pointer[tls.Certificate]

	mu sync.Mutex // held while the files are looked at and read

	// Guarded by mu.
	looked  time.Time
	loaded  files  // of which current was read, or older
	refused *files // those that were complained of; nil: none since loaded
}

// at returns the certificate of a handshake at now. A handshake that comes while
// another one reads the files takes the old one: a slow disk delays only one.
func (p *pair) at(now time.Time) *tls.Certificate {
	if p.mu.TryLock() {
		p.look(now)
		p.mu.Unlock()
	}
	return p.current.Load()
}

// look reads the files if a look is due and finds others. The caller holds mu.
func (p *pair) look(now time.Time) {
	if now.Sub(p.looked) < Interval {
		return
	}
	p.looked = now
	// What changes from here on differs from found, and the next look reads it.
	found := stat(p.cert, p.key)
	if found.same(p.loaded) {
		p.refused = nil
		return
	}
	// Files that were refused are read again, even if they look the same: their
	// modes may be others, which nothing here tells.
	next, err := tls.LoadX509KeyPair(p.cert, p.key)
	if err != nil {
		if p.refused == nil || !found.same(*p.refused) {
			p.log.Warn("the new certificate can't be used, the old one stays", "err", err)
		}
		p.refused = &found
		return
	}
	p.current.Store(&next)
	p.loaded, p.refused = found, nil
	p.log.Info("certificate read again", "not_after", next.Leaf.NotAfter, "names", names(&next))
}

// names returns what a certificate is for.
func names(cert *tls.Certificate) []string {
	all := append([]string{}, cert.Leaf.DNSNames...)
	for _, ip := range cert.Leaf.IPAddresses {
		all = append(all, ip.String())
	}
	return all
}

// files are what stands behind the names of a certificate and its key, nil for
// one that isn't there.
type files [2]os.FileInfo

// stat follows symbolic links: Kubernetes exchanges the one to the directory.
func stat(cert, key string) files {
	var f files
	for i, name := range []string{cert, key} {
		if info, err := os.Stat(name); err == nil {
			f[i] = info
		}
	}
	return f
}

// same reports whether nothing was written and nothing put in a file's place.
func (f files) same(other files) bool {
	for i, a := range f {
		b := other[i]
		if a == nil || b == nil {
			if a != b {
				return false
			}
			continue
		}
		if !os.SameFile(a, b) || a.Size() != b.Size() || !a.ModTime().Equal(b.ModTime()) {
			return false
		}
	}
	return true
}
