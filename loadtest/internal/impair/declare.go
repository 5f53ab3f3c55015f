// Package impair is the command that puts a bad network between two programs
// and changes it while they run.
package impair

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net"
	"net/netip"
	"strconv"

	"github.com/fairlead/fairlead/deploy/program"
	network "github.com/fairlead/fairlead/tunnel/tunneltest/impair"
)

const about = `Forwards %s from one address to another, over a network that misbehaves as the
profile says: the same way again with the same seed.

A profile is a list of key=value, for both directions, or after "up." (from
those who dial) or "down." for one:

  delay=25ms     of everything, up to 10s
  jitter=5ms     the delay wanders by so much to either side; at most the delay
  rate=20mbit    bits per second (bit, kbit, mbit, gbit)
  queue=256KiB   what waits for its turn at the rate (B, KiB, MiB)
%s
With --control it takes orders by HTTP while it runs, and says what it did:

  curl -X PUT -d delay=100ms  http://ADDRESS/profile
  curl -X POST                'http://ADDRESS/blackhole?side=down&on=true'
  curl                        http://ADDRESS/counts
%s
Example, 50 ms there and back, in front of a relay's tunnels:

  loadtest impair %s --target 127.0.0.1:7000 --profile delay=25ms%s`

const datagramKeys = `  loss=2%        of all datagrams
  duplicate=1%   come twice
  reorder=5%     come later than those after them
  hold=10ms      by so much at most
`

// Declare declares the subcommands udp and tcp of c.
func Declare(c *program.Command) {
	c.Describe("Puts a bad network between two programs: delay, jitter, a limited rate, loss, duplication,\nreordering, interruption, another source address. It needs no privileges.")
	c.Sub("udp", "Forwards datagrams over a bad network", func(c *program.Command) {
		c.Describe(fmt.Sprintf(about, "UDP datagrams", datagramKeys, "  curl -X POST                http://ADDRESS/rebind   (another source port)\n", "udp", ",loss=2%"))
		declare(c, network.Profile.Validate, func(o options) (link, error) {
			u, err := network.ListenUDP(network.UDPConfig{Listen: o.listen, Target: o.target, Seed: o.seed, Profile: o.profile})
			if err != nil {
				return nil, err
			}
			return udpLink{u}, nil
		})
	})
	c.Sub("tcp", "Forwards TCP connections over a bad network", func(c *program.Command) {
		c.Describe(fmt.Sprintf(about, "TCP connections", "", "  curl -X POST                http://ADDRESS/cut      (resets all connections)\n  curl -X POST                'http://ADDRESS/refuse?on=true'  (and new ones)\n", "tcp", ",rate=20mbit"))
		declare(c, network.Profile.ValidateTCP, func(o options) (link, error) {
			t, err := network.ListenTCP(network.TCPConfig{Listen: o.listen, Target: o.target, Seed: o.seed, Profile: o.profile})
			if err != nil {
				return nil, err
			}
			return tcpLink{t}, nil
		})
	})
}

type options struct {
	listen, target, control string
	profile                 network.Profile
	seed                    uint64
}

func declare(c *program.Command, validate func(network.Profile) error, open func(options) (link, error)) {
	var o options
	var profile, seed string
	c.String(&o.listen, "listen", "127.0.0.1:0", "`address` to dial instead of the target")
	c.String(&o.target, "target", "", "`address` to forward to")
	c.String(&profile, "profile", "none", "what the network does, as a `list` of key=value")
	c.String(&seed, "seed", "", "`number` that decides all chance (default: another one each time, which is printed)")
	c.String(&o.control, "control", "", "`address` to take orders at by HTTP, without a password: loopback (default: none are taken)")
	c.Require("target")
	c.Run(func(ctx context.Context, env *program.Env) error {
		var err error
		if o.profile, err = network.Parse(profile); err == nil {
			err = validate(o.profile)
		}
		if err != nil {
			return program.WithStatus(err, usageStatus)
		}
		if o.seed, err = parseSeed(seed); err != nil {
			return program.WithStatus(err, usageStatus)
		}
		if err = checkControl(o.control); err != nil {
			return program.WithStatus(err, usageStatus)
		}
		l, err := open(o)
		if err != nil {
			return err
		}
		defer l.Close()
		return run(ctx, env, l, o)
	})
}

// usageStatus is the exit status of a wrong call, as of all of loadtest.
const usageStatus = 2

// checkControl refuses an address at which others than this machine's programs
// could give orders. Empty is none.
func checkControl(addr string) error {
	if addr == "" {
		return nil
	}
	host, _, err := net.SplitHostPort(addr)
	if err != nil {
		return program.Hint(fmt.Errorf("--control %q is not HOST:PORT", addr), controlHint)
	}
	if ip, err := netip.ParseAddr(host); host != "localhost" && (err != nil || !ip.Unmap().IsLoopback()) {
		return program.Hint(fmt.Errorf("--control %q is not a loopback address", addr), controlHint)
	}
	return nil
}

const controlHint = "orders have no password: give it 127.0.0.1:PORT or [::1]:PORT, and reach it from elsewhere through ssh -L"

func parseSeed(text string) (uint64, error) {
	if text == "" {
		return uint64(rand.Uint32()), nil
	}
	seed, err := strconv.ParseUint(text, 10, 64)
	if err != nil {
		return 0, fmt.Errorf("seed %q is not a whole number", text)
	}
	return seed, nil
}
