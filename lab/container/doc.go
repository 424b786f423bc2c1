// Package container runs processes as containers are run: with a file system, volumes, a host name, a user and an
// environment of their own. It needs the rights to mount, in a mount namespace that nobody minds, as package vm gives.
//
// A container sees the files of its machine, and may write to all of them, but what it writes is its own and gone with
// it (an overlay). It has a /dev of its own, and volumes where it wants them. When its main process ends, everything
// else in it is ended too, whatever it has done to get away: processes are told by their mount namespace.
//
// It is no sandbox, and has no limits of memory or CPU, no network and no process numbers of its own: it sees what the
// machine has. Where the machine runs in a user namespace with a single user, so does every container.
package container
