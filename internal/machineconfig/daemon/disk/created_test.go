package disk

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
)

// TestFolderThatIsNotTheOneThatWasCreated lists what a local user can put into the place of a
// folder between its creation and its opening. Its owner and mode must not be set.
func TestFolderThatIsNotTheOneThatWasCreated(t *testing.T) {
	mkdir := func(name string, mode os.FileMode) error {
		return errors.Join(os.Mkdir(name, 0o700), os.Chmod(name, mode))
	}
	isLink := func(err error) bool { _, is := errors.AsType[*LinkError](err); return is }
	isOther := func(err error) bool { _, is := errors.AsType[*ExchangedError](err); return is }
	for name, tc := range map[string]struct {
		exchange func(at string) error
		want     func(err error) bool
	}{
		"it is the one": {func(at string) error { return mkdir(at, 0o700) }, func(err error) bool { return err == nil }},
		"it has the folder's group": {
			func(at string) error { return mkdir(at, 0o700|os.ModeSetgid) }, func(err error) bool { return err == nil },
		},
		"a link to a new folder": {func(at string) error {
			return errors.Join(mkdir(at+"-other", 0o700), os.Symlink(filepath.Base(at)+"-other", at))
		}, isLink},
		"a link to another folder": {func(at string) error { return os.Symlink("/etc", at) }, func(err error) bool { return err != nil }},
		"a folder with a file": {func(at string) error {
			return errors.Join(mkdir(at, 0o700), os.WriteFile(filepath.Join(at, "secret"), nil, 0o600))
		}, isOther},
		"a folder that others may read": {func(at string) error { return mkdir(at, 0o755) }, isOther},
		"a file": {
			func(at string) error { return os.WriteFile(at, nil, 0o600) }, func(err error) bool { return err != nil },
		},
		"nothing": {func(string) error { return nil }, func(err error) bool { return errors.Is(err, os.ErrNotExist) }},
		"a folder of another user": {func(at string) error {
			if os.Geteuid() != 0 {
				return os.Mkdir(at, 0o711) // only root can give a folder away
			}
			return errors.Join(mkdir(at, 0o700), os.Chown(at, 12345, 12345))
		}, isOther},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			folder, err := os.OpenRoot(dir)
			if err != nil {
				t.Fatal(err)
			}
			defer folder.Close()
			if err := tc.exchange(filepath.Join(dir, "new")); err != nil {
				t.Fatal(err)
			}
			file, err := openCreated(folder, "new", "/new")
			if err == nil {
				_ = file.Close()
			}
			if !tc.want(err) {
				t.Errorf("opened with %v", err)
			}
		})
	}
}
