package disk

import (
	"fmt"

	"github.com/machine-controller-fleet/machine-controller-fleet/internal/machineconfig/daemon/plan"
)

// Info is the result of Lstat.
type Info struct {
	Kind     plan.Kind
	Mode     uint32
	UID, GID int
	Size     int64
}

// Reader reads. Errors are those of io/fs, such as fs.ErrNotExist.
type Reader interface {
	Lstat(name string) (Info, error)
	// ReadFile returns the content of a regular file of at most limit bytes, and what Lstat returns of
	// this very file: between two calls another one can be at the path.
	ReadFile(name string, limit int64) ([]byte, Info, error)
	Readlink(name string) (string, error)
	// ReadDir returns the names in a folder, sorted.
	ReadDir(name string) ([]string, error)
}

// Changer changes entries of folders. A change is durable when the folder has been synchronized.
type Changer interface {
	// Create creates a file with mode 0600 where nothing is.
	Create(name string) (File, error)
	Symlink(target, name string) error
	// Mkdir creates a folder with mode 0700, and opens it, to set mode and owner of what was created:
	// between two calls another folder can be at the path.
	Mkdir(name string) (File, error)
	// Rename renames within a folder, and replaces what has the new name.
	Rename(from, to string) error
	// Remove removes a file, a link or an empty folder.
	Remove(name string) error
}

// File is an open file or folder.
type File interface {
	Write(content []byte) (int, error)
	Chmod(mode uint32) error
	Chown(uid, gid int) error
	// Sync persists content and mode of a file, and the entries of a folder.
	Sync() error
	Close() error
}

// FS is the file system of a machine.
type FS interface {
	Reader
	Changer
	// Open opens a file or a folder that exists, to change its mode and owner and to synchronize it.
	Open(name string) (File, error)
}

// LinkError is the error of a path with a symbolic link where a folder or a file was expected.
type LinkError struct {
	// Path is the link.
	Path string
}

// ExchangedError is the error of a folder that was exchanged for another one while it was created.
type ExchangedError struct {
	// Path is that of the folder.
	Path string
}

func (e *ExchangedError) Error() string {
	return fmt.Sprintf("%s was exchanged while it was created", e.Path)
}

func (e *LinkError) Error() string {
	return fmt.Sprintf("%s is a symbolic link, and links are not followed", e.Path)
}
