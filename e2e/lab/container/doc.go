// Package container runs processes as containers are run: with their own file system, volumes, host
// name, user and environment. It needs the rights to mount, in a separate mount
// namespace, as in package vm.
//
// A container sees the files of its machine, and may write to all of them, but its writes are
// private and removed with it (an overlay). It has its own /dev, and volumes at any path. When
// its main process ends, all its other processes are killed, also those that have left its session:
// processes are identified by their mount namespace.
//
// It is no sandbox, and has no limits of memory or CPU, no network and no process numbers of its
// own: it uses those of the machine. Where the machine runs in a user namespace with a single user,
// so does every container.
package container
