package cloudsim

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"

	"github.com/machine-controller-fleet/machine-controller-fleet/e2e/simulated/cloudapi"
)

// callLog appends one line of JSON for each call.
type callLog struct {
	mu   sync.Mutex
	file *os.File
}

// openCallLog opens the log, and cuts off the half of a line that a killed cloud may have left.
func openCallLog(path string) (*callLog, error) {
	file, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR|os.O_APPEND, 0o644)
	if err != nil {
		return nil, fmt.Errorf("open the call log: %w", err)
	}
	if err := cutHalfLine(file); err != nil {
		return nil, errors.Join(fmt.Errorf("repair the call log: %w", err), file.Close())
	}
	return &callLog{file: file}, nil
}

// cutHalfLine truncates the file after its last newline.
func cutHalfLine(file *os.File) error {
	size, err := file.Seek(0, io.SeekEnd)
	if err != nil {
		return err
	}
	block := make([]byte, 4096)
	for end := size; end > 0; {
		begin := max(0, end-int64(len(block)))
		n, err := file.ReadAt(block[:end-begin], begin)
		if err != nil && !errors.Is(err, io.EOF) {
			return err
		}
		if at := bytes.LastIndexByte(block[:n], '\n'); at >= 0 {
			return file.Truncate(begin + int64(at) + 1)
		}
		end = begin
	}
	return file.Truncate(0)
}

func (l *callLog) write(call cloudapi.Call) error {
	line, err := json.Marshal(call)
	if err != nil {
		return fmt.Errorf("encode a call: %w", err)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if _, err := l.file.Write(append(line, '\n')); err != nil {
		return fmt.Errorf("write the call log: %w", err)
	}
	return nil
}

func (l *callLog) close() error { return l.file.Close() }
