// Package terminal hosts a sandbox's PTYs: each with its programs, the log of what
// they printed, and the lease that says who may type.
//
// # Owners
//
// A [Host] owns the list of terminals, the accounts that they run under and the
// secrets that they must not show. A [Terminal] joins the owners of the rest:
//
//   - The arbiter owns who may type and what relays are told: the lease, the
//     grants, the queue of input, which program is in front, whom the terminal is
//     open to, who sets its pace, and each relay's stream.
//   - The display owns the screens and the masking of what a program prints. Its
//     terminal has the lock for it, view.mu, which is held while a chunk of output
//     is parsed and masked.
//   - The transcript owns the log, in memory and on disk, and the places of those
//     who follow it inside the agent.
//   - The recorder that runs, under recordings.mu, owns what is recorded.
//   - The goroutine of keep owns the life of the programs: when they end, for which
//     it asks the arbiter who watches, and by which signals (package lifespan). One
//     goroutine for each PTY reads it.
//   - A [pty.Pending] owns whether a program that starts with the first byte has
//     started. To all others it is a PTY with a program from the beginning, so that
//     nothing else knows of terminals without one.
//
// # Lock order
//
// Host.secrets.changing before Host.mu before view.mu before recordings.mu before
// the arbiter's lock before the transcript's before that of counts. Only view.mu
// is held for long, so whatever a key needs must take the arbiter's lock and the
// transcript's alone. A Pending's lock is last, and programs are started without it.
//
// # Invariants
//
//   - Input is written to a PTY with the arbiter's lock held, in the same section
//     in which its term is checked. After a change of control, a revocation or the
//     start of a coding agent not one byte of the former holder is written.
//   - [arbiter.Stream.Take] takes output from the transcript with the arbiter's
//     lock held, in the same section in which it looks whether its grants are void.
//     After a revocation nothing is returned.
//   - Only the display writes output to the transcript, after masking, and with
//     view.mu held. Who holds that lock finds the screen to be that of the whole
//     log: a keyframe drawn then belongs to the end of the log.
//   - A size and an epoch begin with view.mu and the arbiter's lock held, so that a
//     stream's place and its keyframe always belong to the present log. An epoch
//     also begins with recordings.mu held, so that nothing of it is recorded behind
//     what must be discarded.
//   - Which program is in front changes in the display and then in the arbiter, and
//     a terminal ends, with view.mu held throughout.
package terminal
