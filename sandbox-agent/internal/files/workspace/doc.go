// Package workspace reads and changes the files below one folder, and nothing
// outside of it, whatever the programs that share the folder do meanwhile.
//
// A path is resolved by os.Root up to the folder that holds its last name; that
// folder is open from then on, and what is done is done to a name in it, by
// calls that don't follow a symlink. Where a symlink may be followed, which is
// to read and to write what it names, os.Root follows it, and refuses one that
// leads outside. It also refuses absolute ones: those that begin with the
// workspace's own path are resolved here into a path without symlinks, which
// os.Root then follows in the same way. Nothing that isn't a regular file or a
// folder is ever opened on purpose; should one take the place of a file between
// the look and the open, the open doesn't block, and the look is taken again.
//
// A folder that is moved out of the workspace by someone who may do so while it
// is worked on stays the folder that is worked on, as with os.Root.
//
// New content is made in a folder of the agent's own, at the workspace's top so
// that it is on the same filesystem, and gets its place by one rename. No path
// leads to that folder. Programs may move it, but put nothing into it: then it is
// made anew under its name, and the uploads move over.
package workspace
