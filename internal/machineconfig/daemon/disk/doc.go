// Package disk is the file system of a machine as machine-config-daemon uses it: an interface that
// is small enough to inject a fault at every system call that changes something (package disktest),
// and its implementation below a root folder.
//
// No symbolic link is followed, neither at a path nor above it: a link that a user has put into a
// folder of theirs must not redirect a write of root. Each folder is opened as an entry of the one
// above it (os.Root), and compared with that entry, so a folder that is exchanged for a link
// meanwhile is noticed. Owner and mode are set on open files and folders only, and what is read of
// a file is from one descriptor: a local user who exchanges a path between two calls has nothing
// changed, given or copied that was not the daemon's own.
//
// Paths are absolute, clean, and mean the machine's root. Permission bits are those of chmod(2),
// special bits included.
package disk
