package transaction

import (
	"fmt"
	"path"
	"strings"
	"testing"

	"github.com/machine-controller-fleet/machine-controller-fleet/internal/machineconfig/daemon/disk"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/machineconfig/daemon/disk/disktest"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/machineconfig/daemon/plan"
)

// user is a local user of the machine, whose home is /home/u, sshFolder the folder that the daemon
// creates there, and ofRoot one that is root's.
const (
	user      = 7
	home      = "/home/u"
	sshFolder = home + "/.ssh"
	keys      = sshFolder + "/authorized_keys"
	ofRoot    = home + "/of-root"
)

// intruder is a machine whose local user does something before calls of the daemon.
type intruder struct {
	*disktest.Model

	before func(call, name string)
}

func (i *intruder) Lstat(name string) (disk.Info, error) {
	i.before("lstat", name)
	return i.Model.Lstat(name)
}

func (i *intruder) ReadFile(name string, limit int64) ([]byte, disk.Info, error) {
	i.before("read", name)
	return i.Model.ReadFile(name, limit)
}

func (i *intruder) Open(name string) (disk.File, error) {
	i.before("open", name)
	return i.Model.Open(name)
}

// root puts a folder of root with a mode on the machine.
func root(t *testing.T, on *disktest.Model, name string, mode uint32) {
	t.Helper()
	created, err := on.Mkdir(name)
	if err != nil {
		t.Fatal(err)
	}
	_ = created.Chmod(mode) // the model's do not fail
}

// secret puts a file on the machine that only a user can read.
func secret(t *testing.T, on *disktest.Model, name string, uid int) {
	t.Helper()
	file, err := on.Create(name)
	if err != nil {
		t.Fatal(err)
	}
	_, _ = fmt.Fprintf(file, "secret of %d", uid)
	_ = file.Chown(uid, uid)
}

func newIntruder(t *testing.T) *intruder {
	t.Helper()
	i := &intruder{Model: disktest.NewModel(), before: func(string, string) {}}
	for _, name := range []string{"/home", home} {
		root(t, i.Model, name, 0o755)
	}
	return i
}

// applyKeys has the daemon write a file into a folder of the user's, which is created unless it
// exists.
func applyKeys(machine disk.FS) error {
	store, err := Open(machine, stateDir)
	if err != nil {
		return err
	}
	content := []byte("key\n")
	wanted := plan.State{Kind: plan.File, Mode: 0o600, UID: user, GID: user, Digest: plan.Digest(content), Size: int64(len(content))}
	observed, err := Observe(machine, []string{keys})
	if err != nil {
		return err
	}
	p := plan.Compute(plan.World{
		Desired: map[string]plan.Entry{keys: {Want: wanted}}, Observed: observed,
		Directories: map[string]plan.Directory{sshFolder: {Path: sshFolder, Mode: 0o700, UID: user, GID: user}},
	})
	return store.Apply(Change{ID: "1", Plan: p, Contents: map[string][]byte{wanted.Digest: content}})
}

func TestFolderThatIsCreatedGetsItsOwner(t *testing.T) {
	i := newIntruder(t)
	if err := applyKeys(i); err != nil {
		t.Fatal(err)
	}
	if info, err := i.Model.Lstat(sshFolder); err != nil || info.Mode != 0o700 || info.UID != user {
		t.Errorf("%s: mode %04o of %d (%v), want 0700 of %d", sshFolder, info.Mode, info.UID, err, user)
	}
}

// intrusions returns what the user can do in their home, where something of root's is, too.
func intrusions() map[string]func(m *disktest.Model) {
	away := func(m *disktest.Model, name string) { _ = m.Rename(name, name+"-away") } // it may not be there
	inFolder := func(put func(m *disktest.Model, name string)) func(m *disktest.Model) {
		return func(m *disktest.Model) {
			names, _ := m.ReadDir(sshFolder)
			for _, name := range append(names, path.Base(keys)) {
				away(m, sshFolder+"/"+name)
				put(m, sshFolder+"/"+name)
			}
		}
	}
	return map[string]func(m *disktest.Model){
		"creates the folder":                     func(m *disktest.Model) { _, _ = m.Mkdir(sshFolder) },
		"removes the folder":                     func(m *disktest.Model) { away(m, sshFolder) },
		"exchanges the folder for one of root's": func(m *disktest.Model) { away(m, sshFolder); _ = m.Rename(ofRoot, sshFolder) },
		"exchanges the folder for a link":        func(m *disktest.Model) { away(m, sshFolder); _ = m.Symlink(ofRoot, sshFolder) },
		"exchanges files for links":              inFolder(func(m *disktest.Model, name string) { _ = m.Symlink(ofRoot+"/secret", name) }),
		"exchanges files for folders":            inFolder(func(m *disktest.Model, name string) { _, _ = m.Mkdir(name) }),
		"removes files":                          inFolder(func(*disktest.Model, string) {}),
	}
}

// Regardless of what a local user does between two calls of the daemon, nothing of root's becomes
// theirs, and nothing is written there with their name.
func TestUserBetweenTwoCalls(t *testing.T) {
	for name, intrude := range intrusions() {
		for _, exists := range []bool{false, true} {
			at := 0
			for calls := 1; at < calls; at++ {
				calls = 0
				i := newIntruder(t)
				root(t, i.Model, ofRoot, 0o750)
				secret(t, i.Model, ofRoot+"/secret", 0)
				if exists {
					root(t, i.Model, sshFolder, 0o755)
					secret(t, i.Model, keys, user)
				}
				i.before = func(string, string) {
					if calls == at {
						intrude(i.Model)
					}
					calls++
				}
				_ = applyKeys(&disktest.Faulty{FS: i, At: func(int) disktest.Fault { // whether that is an error does not matter
					i.before("change", "")
					return disktest.NoFault
				}})
				folders, secrets := 0, 0
				for place, is := range i.Tree(stateDir) {
					if strings.HasPrefix(is, "folder 0750 0:0") {
						folders++
					}
					if strings.HasPrefix(is, `file 0600 0:0 "secret of 0"`) {
						secrets++
					} else if strings.Contains(is, "secret of 0") {
						t.Errorf("the user %s before call %d, the folder exists: %t: %s is %s", name, at, exists, place, is)
					}
				}
				if folders != 1 || secrets != 1 {
					t.Errorf("the user %s before call %d, the folder exists: %t: what was root's is %v", name, at, exists, i.Tree(stateDir))
				}
			}
			if at < 10 {
				t.Errorf("the daemon has executed %d calls; the test tests nothing", at)
			}
		}
	}
}

// A local user puts a file that only root can read into the place of one of theirs: restored with
// their owner and mode it would be theirs.
func TestFileThatIsExchangedIsObservedAsAWhole(t *testing.T) {
	i, name := newIntruder(t), home+"/file"
	secret(t, i.Model, name, user)
	i.before = func(call, at string) {
		if call == "read" && at == name {
			if err := i.Remove(name); err != nil {
				t.Fatal(err)
			}
			secret(t, i.Model, name, 0)
		}
	}
	observed, err := Observe(i, []string{name})
	if err != nil {
		t.Fatal(err)
	}
	if got := observed.Paths[name]; got.Digest != plan.Digest([]byte("secret of 0")) || got.UID != 0 || got.Mode != 0o600 {
		t.Errorf("observed %+v, want the owner and the mode of the file that was read", got)
	}
}
