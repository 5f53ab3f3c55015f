package workspace

import (
	"path"
	"strings"
	"unicode/utf8"

	"github.com/fairlead/fairlead/protocol"
)

const (
	maxNameBytes = 255  // NAME_MAX
	maxPathBytes = 4095 // PATH_MAX with its NUL
	// maxDepth bounds how deep a path may lead, and how deep a tree is walked:
	// each level costs a descriptor.
	maxDepth = 250

	// Staging is the name of the agent's own folder. It can't be a name in a
	// path, at any depth.
	Staging = ".fairlead-uploads"
	// tempPrefix begins the name of a file that waits in its folder for its
	// rename. Such names are reserved as Staging is.
	tempPrefix = ".fairlead-tmp-"
	// writePrefix begins the names of files in the staging folder that belong
	// to no upload.
	writePrefix = "w-"
)

// Clean returns the one form of a path that came from outside: relative to the
// workspace, names separated by single slashes, "." for the workspace itself.
// A leading slash is optional.
//
// Refused with KindInvalid are: NUL, a name of "..", a trailing slash (which
// would ask that a symlink be followed), a name over 255 bytes, a path over
// 4,095 bytes or 250 names, and anything but UTF-8, which no answer could spell.
// A backslash is a byte like any other. A reserved name isn't found.
func Clean(p string) (string, error) {
	switch {
	case p == "":
		return "", protocol.Errorf(protocol.KindInvalid, "a path is missing")
	case len(p) > maxPathBytes:
		return "", protocol.Errorf(protocol.KindInvalid, "the path is over %d bytes", maxPathBytes)
	case !utf8.ValidString(p):
		return "", protocol.Errorf(protocol.KindInvalid, "the path is not UTF-8")
	case strings.IndexByte(p, 0) >= 0:
		return "", protocol.Errorf(protocol.KindInvalid, "the path holds a NUL")
	case strings.HasSuffix(p, "/") && strings.Trim(p, "/") != "":
		return "", protocol.Errorf(protocol.KindInvalid, "the path ends in a slash")
	}
	names := make([]string, 0, strings.Count(p, "/")+1)
	for name := range strings.SplitSeq(p, "/") {
		switch {
		case name == "" || name == ".":
			continue
		case name == "..":
			return "", protocol.Errorf(protocol.KindInvalid, "the path holds a name of two dots")
		case len(name) > maxNameBytes:
			return "", protocol.Errorf(protocol.KindInvalid, "a name in the path is over %d bytes", maxNameBytes)
		case reserved(name):
			return "", protocol.Errorf(protocol.KindNotFound, "there is no such file")
		}
		names = append(names, name)
	}
	if len(names) > maxDepth {
		return "", protocol.Errorf(protocol.KindInvalid, "the path has more than %d names", maxDepth)
	}
	if len(names) == 0 {
		return ".", nil
	}
	return strings.Join(names, "/"), nil
}

// reserved reports whether name is none of the workspace's own.
func reserved(name string) bool {
	return name == Staging || strings.HasPrefix(name, tempPrefix)
}

// split returns the folder of a clean path and the name in it.
func split(clean string) (dir, name string) { return path.Dir(clean), path.Base(clean) }

// shown returns the form of a clean path that answers have.
func shown(clean string) string {
	if clean == "." {
		return "/"
	}
	return "/" + clean
}

// below returns the clean path of name in the folder dir.
func below(dir, name string) string {
	if dir == "." {
		return name
	}
	return dir + "/" + name
}
