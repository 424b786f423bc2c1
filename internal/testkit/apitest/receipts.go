package apitest

import (
	"bytes"
	"encoding/json"
	"fmt"
	"sync"

	"github.com/machine-controller-fleet/machine-controller-fleet/internal/deletion/receipt"
)

// Receipts is a deletion log in memory. The zero value is empty.
type Receipts struct {
	mu    sync.Mutex
	lines bytes.Buffer
}

// Write is io.Writer's.
func (r *Receipts) Write(line []byte) (int, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.lines.Write(line)
}

// List returns all receipts, the first one first. Errors: a line that is no receipt.
func (r *Receipts) List() (all []receipt.Receipt, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for decoder := json.NewDecoder(bytes.NewReader(r.lines.Bytes())); decoder.More(); {
		var one receipt.Receipt
		if err := decoder.Decode(&one); err != nil {
			return nil, fmt.Errorf("read the deletion log: expected receipts in JSON: %w", err)
		}
		all = append(all, one)
	}
	return all, nil
}
