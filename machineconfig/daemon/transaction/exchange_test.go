package transaction

import (
	"testing"

	"github.com/machine-controller-fleet/machine-controller-fleet/machineconfig/daemon/disk"
	"github.com/machine-controller-fleet/machine-controller-fleet/machineconfig/daemon/disk/disktest"
	"github.com/machine-controller-fleet/machine-controller-fleet/machineconfig/daemon/plan"
)

// user is a local user of the machine, whose home is /home/u, and sshFolder the folder that the daemon creates there.
const (
	user      = 7
	home      = "/home/u"
	sshFolder = home + "/.ssh"
)

// intruder is a machine whose local user does something after a call for a path.
type intruder struct {
	*disktest.Model

	afterMkdir, afterLstat func(name string)
}

func (i *intruder) Mkdir(name string) (disk.File, error) {
	made, err := i.Model.Mkdir(name)
	if i.afterMkdir != nil {
		i.afterMkdir(name)
	}
	return made, err
}

func (i *intruder) Lstat(name string) (disk.Info, error) {
	info, err := i.Model.Lstat(name)
	if i.afterLstat != nil {
		i.afterLstat(name)
	}
	return info, err
}

// folder puts a folder of root with a mode on the machine.
func folder(t *testing.T, on *disktest.Model, name string, mode uint32) {
	t.Helper()
	made, err := on.Mkdir(name)
	if err != nil {
		t.Fatal(err)
	}
	_ = made.Chmod(mode) // the model's do not fail
}

func newIntruder(t *testing.T) *intruder {
	t.Helper()
	i := &intruder{Model: disktest.NewModel()}
	for _, name := range []string{"/home", home} {
		folder(t, i.Model, name, 0o755)
	}
	return i
}

// applyKeys has the daemon write a file into a folder of the user's that did not exist when the change was planned.
func (i *intruder) applyKeys(t *testing.T, planned func()) error {
	t.Helper()
	store, err := Open(i, stateDir)
	if err != nil {
		t.Fatal(err)
	}
	name, content := sshFolder+"/authorized_keys", []byte("key\n")
	wanted := plan.State{Kind: plan.File, Mode: 0o600, UID: user, GID: user, Digest: plan.Digest(content), Size: int64(len(content))}
	observed, err := Observe(i, []string{name})
	if err != nil {
		t.Fatal(err)
	}
	p := plan.Make(plan.World{
		Desired: map[string]plan.Entry{name: {Want: wanted}}, Observed: observed,
		Directories: map[string]plan.Directory{sshFolder: {Path: sshFolder, Mode: 0o700, UID: user, GID: user}},
	})
	if len(p.Directories) != 1 {
		t.Fatalf("the plan creates %v, want %s", p.Directories, sshFolder)
	}
	planned()
	return store.Apply(Change{ID: "1", Plan: p, Contents: map[string][]byte{wanted.Digest: content}})
}

func (i *intruder) expect(t *testing.T, name string, mode uint32, uid int) {
	t.Helper()
	if info, err := i.Model.Lstat(name); err != nil || info.Mode != mode || info.UID != uid {
		t.Errorf("%s: mode %04o of %d (%v), want %04o of %d", name, info.Mode, info.UID, err, mode, uid)
	}
}

func TestFolderThatIsCreated_GetsItsOwner(t *testing.T) {
	i := newIntruder(t)
	if err := i.applyKeys(t, func() {}); err != nil {
		t.Fatal(err)
	}
	i.expect(t, sshFolder, 0o700, user)
}

// A local user puts another folder, of root, into the place of the one that the daemon has just created.
func TestFolderThatIsExchanged_IsNotGivenToTheUser(t *testing.T) {
	i := newIntruder(t)
	folder(t, i.Model, home+"/of-root", 0o750)
	i.afterMkdir = func(name string) {
		if name != sshFolder {
			return
		}
		if err := i.Rename(sshFolder, home+"/created"); err != nil {
			t.Fatal(err)
		}
		if err := i.Rename(home+"/of-root", sshFolder); err != nil {
			t.Fatal(err)
		}
	}
	_ = i.applyKeys(t, func() {}) // whether that is an error does not matter
	i.expect(t, sshFolder, 0o750, 0)
}

// A local user creates the folder after the daemon has planned to.
func TestFolderThatAppears_IsNotChanged(t *testing.T) {
	i := newIntruder(t)
	if err := i.applyKeys(t, func() { folder(t, i.Model, sshFolder, 0o750) }); err != nil {
		t.Fatal(err)
	}
	i.expect(t, sshFolder, 0o750, 0)
}

// A local user puts a file that only root can read into the place of one of theirs: restored with their owner and mode it would be theirs.
func TestFileThatIsExchanged_IsObservedAsAWhole(t *testing.T) {
	i, name := newIntruder(t), home+"/file"
	write := func(content string, mode uint32, uid int) {
		file, err := i.Create(name)
		if err != nil {
			t.Fatal(err)
		}
		_, _ = file.Write([]byte(content))
		_ = file.Chmod(mode)
		_ = file.Chown(uid, uid)
	}
	write("mine", 0o644, user)
	i.afterLstat = func(at string) {
		if at == name {
			if err := i.Remove(name); err != nil {
				t.Fatal(err)
			}
			write("secret of root", 0o600, 0)
		}
	}
	observed, err := Observe(i, []string{name})
	if err != nil {
		t.Fatal(err)
	}
	if got := observed.Paths[name]; got.Digest != plan.Digest([]byte("secret of root")) || got.UID != 0 || got.Mode != 0o600 {
		t.Errorf("observed %+v, want the owner and the mode of the file that was read", got)
	}
}
