//go:build linux

package cri

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
	"time"

	"k8s.io/utils/clock"
)

// logFile is a container's log, in the format that kubelets read: time, stream, P or F, and a line
// (F) or the beginning of one that is too long or has no end (P).
type logFile struct {
	path  string // "" means that there is no log
	clock clock.Clock

	mu   sync.Mutex
	file *os.File
}

// open opens the file, and closes the one before, if there is one.
func (l *logFile) open() error {
	if l.path == "" {
		return nil
	}
	file, err := os.OpenFile(l.path, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o640)
	if err != nil {
		return fmt.Errorf("opening the log: %w", err)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.file != nil {
		_ = l.file.Close()
	}
	l.file = file
	return nil
}

func (l *logFile) close() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.file == nil {
		return nil
	}
	err := l.file.Close()
	l.file = nil
	return err
}

// copy logs a stream, to its end.
func (l *logFile) copy(stream string, from io.Reader) {
	const longest = 16 << 10
	reader := bufio.NewReaderSize(from, longest)
	for {
		line, err := reader.ReadSlice('\n')
		if n := len(line); n > 0 {
			tag := "P"
			if line[n-1] == '\n' {
				tag, line = "F", line[:n-1]
			}
			l.write(stream, tag, line)
		}
		if err != nil && !errors.Is(err, bufio.ErrBufferFull) {
			return // io.EOF, or the reader was closed.
		}
	}
}

func (l *logFile) write(stream, tag string, line []byte) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.file == nil {
		return
	}
	// A failed log must not make the container fail.
	_, _ = fmt.Fprintf(l.file, "%s %s %s %s\n", l.clock.Now().UTC().Format(time.RFC3339Nano), stream, tag, line)
}
