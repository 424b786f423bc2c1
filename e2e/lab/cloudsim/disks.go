package cloudsim

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/machine-controller-fleet/machine-controller-fleet/e2e/simulated/cloudapi"
)

// VolumesFolder is the folder in Config.StateDir with the contents of the volumes: a folder for
// each, called by its ID.
const VolumesFolder = "volumes"

// disks is the path of that folder.
type disks string

// restore makes the folders match the existing volumes.
func (d disks) restore(volumes map[string]*cloudapi.Volume) error {
	for id := range volumes {
		if err := d.provide(id); err != nil {
			return err
		}
	}
	found, err := os.ReadDir(string(d))
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("list the contents of volumes: %w", err)
	}
	for _, folder := range found {
		if volumes[folder.Name()] == nil {
			if err := d.remove(folder.Name()); err != nil {
				return err
			}
		}
	}
	return nil
}

// provide creates the folder of a volume, if there is none.
func (d disks) provide(id string) error {
	if err := os.MkdirAll(filepath.Join(string(d), id), 0o755); err != nil {
		return fmt.Errorf("make room for the contents of a volume: %w", err)
	}
	return nil
}

// remove removes the contents of a volume.
func (d disks) remove(id string) error {
	if err := os.RemoveAll(filepath.Join(string(d), id)); err != nil {
		return fmt.Errorf("remove the contents of a volume: %w", err)
	}
	return nil
}
