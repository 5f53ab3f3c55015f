// Package terminal hosts a sandbox's PTYs: each with its program, the log of
// what it printed, and the lease that says who may type.
//
// # Owners
//
// A [Host] owns the list of terminals, the accounts that they run under and the
// secrets that they must not show. A [Terminal] has these owners of state:
//
//   - arbiter.mu guards who may type and what relays are told: the lease,
//     the grants, the queue of input, the coding agent in front, whom the
//     terminal is open to, who sets its pace, and each relay's [Attachment].
//   - view.mu guards the display: the screens and the masking of what a program
//     prints. It is held while a chunk of output is parsed and masked.
//   - The transcript's own lock guards the log, in memory and on disk, and the
//     places of those who follow it inside the agent.
//   - The goroutine of keep owns the life of the programs. One goroutine for each
//     PTY reads it.
//
// # Lock order
//
// Host.secrets.changing before Host.mu before view.mu before arbiter.mu
// before transcript.mu before counts.mu. Nobody waits for anything else while
// holding one: writes to a PTY are offers that never block. Only view.mu is
// held for long, so whatever a key needs must take arbiter.mu and transcript.mu
// alone, and nothing may parse, mask or draw a screen with arbiter.mu held.
//
// # Invariants
//
//   - Input is written to a PTY with arbiter.mu held, in the same section in
//     which its term is checked. After a change of control, a revocation or the
//     start of a coding agent not one byte of the former holder is written.
//   - [Attachment.Next] takes output from the transcript with arbiter.mu held, in
//     the same section in which it looks whether its grants are void. After a
//     revocation nothing is returned.
//   - Only the display writes output to the transcript, after masking, and with
//     view.mu held. Who holds that lock finds the screen to be that of the
//     whole log: a keyframe drawn then belongs to the end of the log.
//   - A size and an epoch begin with view.mu and arbiter.mu held, so that an
//     attachment's place and its keyframe always belong to the present log.
//   - arbiter.stage.front, which gets the input, and the display's, whose
//     output is seen, change with both locks held, and so does arbiter.ended.
//     Holding either is enough to read its own.
package terminal
