package workspace

import (
	"errors"

	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/protocol"
)

// ErrPrecondition is in the chain of a KindConflict error: the file is not the
// one that the caller wanted to replace. Its status over HTTP is 412.
var ErrPrecondition = errors.New("the file is not as the condition says")

// errSpecial refuses FIFOs, sockets and devices.
var errSpecial = protocol.Errorf(protocol.KindInvalid, "it is neither a file nor a folder")

// errnos says what kind of failure an errno is, and what the caller reads.
var errnos = []struct {
	errno unix.Errno
	kind  protocol.Kind
	text  string
}{
	{unix.ENOENT, protocol.KindNotFound, "there is no such file"},
	{unix.ESTALE, protocol.KindNotFound, "there is no such file"},
	{unix.ENOTDIR, protocol.KindNotFound, "a name on the way is not a folder"},
	{unix.EEXIST, protocol.KindConflict, "there is something of that name already"},
	{unix.ENOTEMPTY, protocol.KindConflict, "the folder is not empty"},
	{unix.EISDIR, protocol.KindConflict, "there is a folder of that name"},
	{unix.EBUSY, protocol.KindConflict, "the file is in use"},
	{unix.ETXTBSY, protocol.KindConflict, "the file is in use"},
	{unix.EACCES, protocol.KindForbidden, "the agent may not do this"},
	{unix.EPERM, protocol.KindForbidden, "the agent may not do this"},
	{unix.EROFS, protocol.KindForbidden, "the filesystem is read-only"},
	{unix.ELOOP, protocol.KindInvalid, "too many symlinks"},
	{unix.ENAMETOOLONG, protocol.KindInvalid, "the path is too long"},
	{unix.EINVAL, protocol.KindInvalid, "the filesystem refuses this"},
	{unix.ENXIO, protocol.KindInvalid, "it is neither a file nor a folder"},
	{unix.ENODEV, protocol.KindInvalid, "it is neither a file nor a folder"},
	{unix.ENOSPC, protocol.KindNoSpace, "no space is left"},
	{unix.EDQUOT, protocol.KindNoSpace, "the quota is used up"},
	{unix.EFBIG, protocol.KindTooLarge, "the filesystem takes no file of that size"},
	{unix.EXDEV, protocol.KindUnsupported, "the two are on different filesystems"},
	{unix.EMFILE, protocol.KindUnavailable, "too many files are open"},
	{unix.ENFILE, protocol.KindUnavailable, "too many files are open"},
}

// retry calls f until no signal interrupts it.
func retry(f func() error) error {
	for {
		if err := f(); !errors.Is(err, unix.EINTR) {
			return err
		}
	}
}

// gone reports whether err says that what was there a moment ago isn't, or is
// something else.
func gone(err error) bool {
	return errors.Is(err, unix.ENOENT) || errors.Is(err, unix.ENOTDIR) || errors.Is(err, unix.ELOOP) || errors.Is(err, unix.ENXIO)
}
