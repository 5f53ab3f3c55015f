package stack

import (
	"errors"
	"fmt"
	"net"
	"time"

	"github.com/fairlead/fairlead/tunnel/tunneltest/impair"
)

// A Shaper is the bad network between the sandboxes and the first relay: a UDP
// and a TCP link on one port.
type Shaper struct {
	UDP *impair.UDP
	TCP *impair.TCP

	addr   string // what sandboxes dial
	target string // where the relay listens
	rtt    time.Duration

	// Owned by who sets profiles.
	before impair.Counts // of UDP when the present profile was set
}

// portAttempts is how often a port is tried that must be free for TCP and UDP.
const portAttempts = 20

// startShaper opens the links of a profile. Loss and what else only datagrams
// have is left out of the TCP link: TCP would make a delay of it.
func startShaper(text string, seed uint64) (*Shaper, error) {
	profile, err := impair.Parse(text)
	if err != nil {
		return nil, fmt.Errorf("--impair: %w", err)
	}
	target, err := freePort()
	if err != nil {
		return nil, err
	}
	s := &Shaper{target: target, rtt: profile.Up.Delay + profile.Down.Delay}
	for range portAttempts {
		if s.addr, err = freePort(); err != nil {
			return nil, err
		}
		if err = s.listen(profile, seed); err == nil {
			return s, nil
		}
		s.close()
	}
	return nil, err
}

func (s *Shaper) listen(profile impair.Profile, seed uint64) (err error) {
	s.UDP, err = impair.ListenUDP(impair.UDPConfig{Listen: s.addr, Target: s.target, Seed: seed, Profile: profile})
	if err != nil {
		return fmt.Errorf("--impair: %w", err)
	}
	s.TCP, err = impair.ListenTCP(impair.TCPConfig{Listen: s.addr, Target: s.target, Seed: seed, Profile: streamProfile(profile)})
	if err != nil {
		return fmt.Errorf("--impair: %w", err)
	}
	return nil
}

// streamProfile returns the part of a profile that a TCP link can do.
func streamProfile(p impair.Profile) impair.Profile {
	for _, path := range []*impair.Path{&p.Up, &p.Down} {
		path.Loss, path.Duplicate, path.Reorder, path.Hold = 0, 0, 0, 0
	}
	return p
}

// SetProfile changes both links. One goroutine at a time may do so, or call
// Describe.
func (s *Shaper) SetProfile(p impair.Profile) error {
	s.before = s.UDP.Counts()
	return errors.Join(s.UDP.SetProfile(p), s.TCP.SetProfile(streamProfile(p)))
}

// Addr returns what sandboxes dial ("host:port").
func (s *Shaper) Addr() string { return s.addr }

// RTT returns the round trip that the profile given at the start adds.
func (s *Shaper) RTT() time.Duration { return s.rtt }

// Lost returns how many datagrams were lost by chance under the present profile.
func (s *Shaper) Lost() int64 {
	udp := s.UDP.Counts()
	return udp.Up.Lost + udp.Down.Lost - s.before.Up.Lost - s.before.Down.Lost
}

// Describe says what the links did under the present profile, and how late they
// were at all.
func (s *Shaper) Describe() string {
	udp, tcp := s.UDP.Counts(), s.TCP.Counts()
	full := udp.Up.Full + udp.Down.Full - s.before.Up.Full - s.before.Down.Full
	received := udp.Up.Received + udp.Down.Received - s.before.Up.Received - s.before.Down.Received
	late := max(udp.Up.Late.P99, udp.Down.Late.P99, tcp.UpLate.P99, tcp.DownLate.P99)
	return fmt.Sprintf("the impaired network lost %d of %d datagrams by chance and %d to a full queue, and was itself up to %v too late at p99",
		s.Lost(), received, full, late.Round(10*time.Microsecond))
}

func (s *Shaper) close() {
	if s == nil {
		return
	}
	if s.UDP != nil {
		s.UDP.Close()
		s.UDP = nil
	}
	if s.TCP != nil {
		s.TCP.Close()
		s.TCP = nil
	}
}

// freePort returns an address of loopback that is free for TCP and UDP at the
// moment.
func freePort() (string, error) {
	var last error
	for range portAttempts {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return "", err
		}
		addr := l.Addr().String()
		conn, err := net.ListenPacket("udp", addr)
		l.Close()
		if err == nil {
			conn.Close()
			return addr, nil
		}
		last = err
	}
	return "", fmt.Errorf("no port of loopback is free for TCP and UDP (%d attempts): %w", portAttempts, last)
}
