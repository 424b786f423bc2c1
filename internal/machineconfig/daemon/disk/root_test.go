package disk_test

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/machine-controller-fleet/machine-controller-fleet/internal/machineconfig/daemon/disk"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/machineconfig/daemon/disk/disktest"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/testkit/worlds"
)

func openRoot(t *testing.T, dir string) *disk.Root {
	t.Helper()
	root, err := disk.OpenRoot(dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = root.Close() })
	return root
}

// TestHostileLinks: no call follows a link, wherever it is and wherever it leads to.
func TestHostileLinks(t *testing.T) {
	calls := map[string]func(root *disk.Root, folder string) error{
		"Create":   func(r *disk.Root, folder string) error { _, err := r.Create(folder + "/new"); return err },
		"Mkdir":    func(r *disk.Root, folder string) error { _, err := r.Mkdir(folder + "/new"); return err },
		"Symlink":  func(r *disk.Root, folder string) error { return r.Symlink("x", folder+"/new") },
		"Rename":   func(r *disk.Root, folder string) error { return r.Rename(folder+"/secret", folder+"/new") },
		"Remove":   func(r *disk.Root, folder string) error { return r.Remove(folder + "/secret") },
		"Open":     func(r *disk.Root, folder string) error { _, err := r.Open(folder + "/secret"); return err },
		"Lstat":    func(r *disk.Root, folder string) error { _, err := r.Lstat(folder + "/secret"); return err },
		"ReadFile": func(r *disk.Root, folder string) error { _, _, err := r.ReadFile(folder+"/secret", 100); return err },
		"ReadDir":  func(r *disk.Root, folder string) error { _, err := r.ReadDir(folder); return err },
		"Readlink": func(r *disk.Root, folder string) error { _, err := r.Readlink(folder + "/link"); return err },
	}
	for _, where := range []string{"outside, absolute", "outside, relative", "inside"} {
		for name, call := range calls {
			t.Run(where+"/"+name, func(t *testing.T) {
				top := t.TempDir()
				victim := filepath.Join(top, "outside")
				target := map[string]string{"outside, absolute": victim, "outside, relative": "../../outside", "inside": "../inside"}[where]
				if where == "inside" {
					victim = filepath.Join(top, "root", "inside")
				}
				for _, dir := range []string{filepath.Join(top, "root", "etc"), victim} {
					if err := os.MkdirAll(dir, 0o700); err != nil {
						t.Fatal(err)
					}
				}
				if err := errors.Join(
					os.WriteFile(filepath.Join(victim, "secret"), []byte("secret"), 0o600),
					os.Symlink("x", filepath.Join(victim, "link")),
					os.Symlink(target, filepath.Join(top, "root", "etc", "bad")),
				); err != nil {
					t.Fatal(err)
				}
				err := call(openRoot(t, filepath.Join(top, "root")), "/etc/bad")
				if link, ok := errors.AsType[*disk.LinkError](err); !ok || link.Path != "/etc/bad" {
					t.Errorf("expected the error of a link at /etc/bad, got %v", err)
				}
				entries, err := os.ReadDir(victim)
				if err != nil || len(entries) != 2 {
					t.Errorf("the folder behind the link has changed: %v %v", entries, err)
				}
			})
		}
	}
}

func TestLinkAtThePathItselfIsNotFollowed(t *testing.T) {
	dir := t.TempDir()
	root := openRoot(t, dir)
	if err := errors.Join(os.WriteFile(filepath.Join(dir, "real"), []byte("x"), 0o600),
		os.Symlink("real", filepath.Join(dir, "link"))); err != nil {
		t.Fatal(err)
	}
	_, _, readErr := root.ReadFile("/link", 10)
	_, openErr := root.Open("/link")
	for _, err := range []error{readErr, openErr} {
		if _, ok := errors.AsType[*disk.LinkError](err); !ok {
			t.Errorf("expected a LinkError, got %v", err)
		}
	}
	if _, err := root.Create("/link"); !errors.Is(err, fs.ErrExist) {
		t.Errorf("create at a link: %v", err)
	}
	if err := root.Remove("/link"); err != nil {
		t.Error(err)
	}
	if content, err := os.ReadFile(filepath.Join(dir, "real")); err != nil || string(content) != "x" {
		t.Errorf("%q %v", content, err)
	}
}

func TestReadFileOfFIFODoesNotWait(t *testing.T) {
	dir := t.TempDir()
	if err := syscall.Mkfifo(filepath.Join(dir, "fifo"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, _, err := openRoot(t, dir).ReadFile("/fifo", 10); !errors.Is(err, fs.ErrInvalid) {
		t.Errorf("expected fs.ErrInvalid, got %v", err)
	}
}

func TestReadFileIsBounded(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "big"), make([]byte, 11), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, _, err := openRoot(t, dir).ReadFile("/big", 10); !errors.Is(err, fs.ErrInvalid) {
		t.Errorf("expected fs.ErrInvalid, got %v", err)
	}
}

func TestPathsThatAreNotCleanAreRefused(t *testing.T) {
	root := openRoot(t, t.TempDir())
	for _, name := range []string{"", "/", "x", "/..", "/a/../b", "//a", "/a/", "/a\x00"} {
		if _, err := root.Mkdir(name); !errors.Is(err, fs.ErrInvalid) {
			t.Errorf("%q: expected fs.ErrInvalid, got %v", name, err)
		}
	}
	if err := root.Rename("/a", "/b/a"); !errors.Is(err, fs.ErrInvalid) {
		t.Errorf("rename into another folder: expected fs.ErrInvalid, got %v", err)
	}
}

func TestLockIsExclusive(t *testing.T) {
	dir := t.TempDir()
	lock, err := openRoot(t, dir).Lock("/lock")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := openRoot(t, dir).Lock("/lock"); err == nil {
		t.Error("expected an error for the second lock")
	}
	if err := lock.Close(); err != nil {
		t.Fatal(err)
	}
	again, err := openRoot(t, dir).Lock("/lock")
	if err != nil {
		t.Fatal(err)
	}
	_ = again.Close()
}

// TestModelIsLikeTheOperatingSystem: the disk of the crash tests has the results of the real one,
// as long as its power does not fail.
func TestModelIsLikeTheOperatingSystem(t *testing.T) {
	names := []string{"/a", "/b", "/d", "/d/a", "/d/b", "/d/e", "/d/e/a"}
	worlds.Check(t, 1, func(rt *rapid.T) {
		dir, err := os.MkdirTemp(t.TempDir(), "") //nolint:usetesting // one for each world, and t is that of all
		if err != nil {
			rt.Fatal(err)
		}
		root, err := disk.OpenRoot(dir)
		if err != nil {
			rt.Fatal(err)
		}
		defer root.Close()
		model := disktest.NewModel()
		for i := range rapid.IntRange(1, 40).Draw(rt, "calls") {
			name := rapid.SampledFrom(names).Draw(rt, "name")
			other := filepath.Join(filepath.Dir(name), rapid.SampledFrom([]string{"a", "b", "e"}).Draw(rt, "other"))
			what := rapid.SampledFrom([]string{"create", "symlink", "mkdir", "rename", "remove", "chmod", "look"}).Draw(rt, "call")
			got, want := call(root, what, name, other, i), call(model, what, name, other, i)
			if diff := cmp.Diff(want, got); diff != "" {
				rt.Fatalf("%s %s %s (-model +system):\n%s", what, name, other, diff)
			}
		}
	})
}

// call executes a call and returns its result in a form that can be compared.
func call(on disk.FS, what, name, other string, i int) string {
	var err error
	switch what {
	case "create":
		var file disk.File
		if file, err = on.Create(name); err == nil {
			_, _ = fmt.Fprintf(writer{file}, "%d", i)
			err = file.Close()
		}
	case "symlink":
		err = on.Symlink(other, name)
	case "mkdir":
		var created disk.File
		if created, err = on.Mkdir(name); err == nil {
			err = errors.Join(created.Chmod(uint32(0o700+i%8)), created.Close())
		}
	case "rename":
		err = on.Rename(name, other)
	case "remove":
		err = on.Remove(name)
	case "chmod":
		var file disk.File
		if file, err = on.Open(name); err == nil {
			err = errors.Join(file.Chmod(uint32(0o700+i%8)), file.Close())
		}
	}
	info, lookErr := on.Lstat(name)
	content, of, readErr := on.ReadFile(name, 100)
	entries, listErr := on.ReadDir(name)
	target, linkErr := on.Readlink(name)
	mode := info.Mode
	if info.Kind == "link" {
		mode = 0
	}
	return fmt.Sprintf("%s; %s %o %s; %q %o %d %s; %q %s; %q %v",
		class(err), info.Kind, mode, class(lookErr), content, of.Mode, of.Size, class(readErr), entries, class(listErr), target, linkErr == nil)
}

type writer struct{ disk.File }

// class reduces an error to what callers decide on.
func class(err error) string {
	_, isLink := errors.AsType[*disk.LinkError](err)
	switch {
	case err == nil:
		return "ok"
	case isLink:
		return "link"
	case errors.Is(err, fs.ErrNotExist):
		return "does not exist"
	case errors.Is(err, fs.ErrExist):
		return "exists"
	}
	return "fails"
}
