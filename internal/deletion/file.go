package deletion

import (
	"fmt"
	"io"
	"os"
	"sync"
)

// Stdout as a path means the standard output of the process.
const Stdout = "-"

// filePermissions of a new deletion log: names of machines are no secrets, and only the fleet
// writes them.
const filePermissions = 0o644

// File appends lines to a file or to the standard output. It is safe for concurrent use.
type File struct {
	mu sync.Mutex
	to io.Writer
}

// OpenFile opens the file of a path to append to it, and creates it if it does not exist. The path
// "" returns nil, which means that there is no deletion log. Errors: the file cannot be created, or
// not be written to.
func OpenFile(path string) (*File, error) {
	switch path {
	case "":
		return nil, nil //nolint:nilnil // the deletion log is optional
	case Stdout:
		return NewFile(os.Stdout), nil
	}
	// With O_APPEND each line goes to the current end, also after another process has truncated the
	// file to rotate it.
	file, err := os.OpenFile(path, os.O_APPEND|os.O_CREATE|os.O_WRONLY, filePermissions) //nolint:gosec // the operator chooses the path
	if err != nil {
		return nil, fmt.Errorf("open the deletion log: expected a file that can be appended to: %w; correct --deletion-log", err)
	}
	return NewFile(file), nil
}

// NewFile returns a File that writes to a writer.
func NewFile(to io.Writer) *File { return &File{to: to} }

// Append writes a line, which ends with a line feed, in one write.
func (f *File) Append(line []byte) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	_, err := f.to.Write(line)
	return err
}
