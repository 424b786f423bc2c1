package realkubelet

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
)

// plug updates the volumes that are attached to the VM.
func (m *machine) plug(volumes []string) error {
	if m.plugged && slices.Equal(m.sees, volumes) {
		return nil
	}
	dir := m.file(attachedFolder)
	found, err := os.ReadDir(dir)
	if err != nil {
		return fmt.Errorf("look for the volumes that the VM sees: %w", err)
	}
	for _, file := range found {
		if slices.Contains(volumes, file.Name()) {
			continue
		}
		if err := os.Remove(filepath.Join(dir, file.Name())); err != nil && !errors.Is(err, os.ErrNotExist) {
			return fmt.Errorf("detach a volume: %w", err)
		}
	}
	for _, id := range volumes {
		if err := os.WriteFile(filepath.Join(dir, id), nil, 0o600); err != nil {
			return fmt.Errorf("attach a volume: %w", err)
		}
	}
	m.plugged, m.sees = true, volumes
	return nil
}
