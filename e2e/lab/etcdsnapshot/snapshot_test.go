package etcdsnapshot

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestRefusals(t *testing.T) {
	dir := t.TempDir()
	there := filepath.Join(dir, "there")
	if err := os.WriteFile(there, []byte("no snapshot"), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, test := range map[string]struct {
		args []string
		want string
	}{
		"nothing":          {nil, "save or restore"},
		"something else":   {[]string{"steal", "x"}, "save or restore"},
		"no file":          {[]string{"save"}, "one file"},
		"save over a file": {[]string{"save", there}, "does not exist"},
		"save, no secrets": {[]string{"save", "--cert=" + dir, "--key=" + dir, filepath.Join(dir, "new")}, "--cert"},
		"restore nothing": {
			[]string{"restore", "--data-dir=" + filepath.Join(dir, "a"), "--peer-url=http://127.0.0.1:1", filepath.Join(dir, "absent")},
			"restoring etcd",
		},
		"restore no snapshot": {
			[]string{"restore", "--data-dir=" + filepath.Join(dir, "b"), "--peer-url=http://127.0.0.1:1", there}, "restoring etcd",
		},
	} {
		if err := Main(t.Context(), test.args); err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s: %v, want %q", name, err, test.want)
		}
	}
	if err := Main(t.Context(), []string{"save", there}); !errors.Is(err, fs.ErrExist) {
		t.Errorf("save over a file: %v, want %v", err, fs.ErrExist)
	}
}
