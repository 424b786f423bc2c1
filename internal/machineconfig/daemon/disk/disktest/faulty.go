package disktest

import (
	"errors"
	"fmt"

	"github.com/machine-controller-fleet/machine-controller-fleet/internal/machineconfig/daemon/disk"
)

// ErrKilled is the error of all calls of a process that was killed.
var ErrKilled = errors.New("the process was killed")

// ErrFault is the error of a call that was made to fail.
var ErrFault = errors.New("injected fault")

// Fault is the effect on a call that changes something.
type Fault int

// The faults. After KillBefore and KillAfter no call has an effect.
const (
	NoFault Fault = iota
	KillBefore
	KillAfter
	// KillWithin ends the process in the middle of a write; any other call as KillAfter.
	KillWithin
	// Fail makes the call fail without an effect, and FailAfter after its effect.
	Fail
	FailAfter
)

// Faulty is an FS whose calls fail. Those that change something, which includes synchronizing, are
// counted from 0.
type Faulty struct {
	disk.FS
	// At decides what happens at a call; nil is nothing.
	At func(call int) Fault

	calls  int
	killed bool
}

var _ disk.FS = (*Faulty)(nil)

// Calls returns how many calls there were that change something.
func (f *Faulty) Calls() int { return f.calls }

// Killed reports whether the process was killed.
func (f *Faulty) Killed() bool { return f.killed }

// change executes a call that changes something; part is a part of its effect.
func (f *Faulty) change(do, part func() error) error {
	if f.killed {
		return ErrKilled
	}
	fault := NoFault
	if f.At != nil {
		fault = f.At(f.calls)
	}
	f.calls++
	switch fault {
	case NoFault:
		return do()
	case Fail:
		return ErrFault
	case FailAfter:
		_ = do() // its error is replaced
		return ErrFault
	case KillBefore:
	case KillAfter:
		_ = do() // nothing receives its result
	case KillWithin:
		_ = part() // nothing receives its result
	}
	f.killed = true
	return ErrKilled
}

func (f *Faulty) whole(do func() error) error { return f.change(do, do) }

// Symlink is disk.Changer's.
func (f *Faulty) Symlink(target, name string) error {
	return f.whole(func() error { return f.FS.Symlink(target, name) })
}

// Mkdir is disk.Changer's.
func (f *Faulty) Mkdir(name string) (disk.File, error) {
	return f.created("create the folder", name, f.FS.Mkdir)
}

// Rename is disk.Changer's.
func (f *Faulty) Rename(from, to string) error {
	return f.whole(func() error { return f.FS.Rename(from, to) })
}

// Remove is disk.Changer's.
func (f *Faulty) Remove(name string) error {
	return f.whole(func() error { return f.FS.Remove(name) })
}

// Create is disk.Changer's.
func (f *Faulty) Create(name string) (disk.File, error) {
	return f.created("create", name, f.FS.Create)
}

// created executes a call that creates a file or a folder, and returns it open.
func (f *Faulty) created(what, name string, create func(name string) (disk.File, error)) (created disk.File, err error) {
	err = f.whole(func() (err error) {
		created, err = create(name)
		return err
	})
	if err != nil {
		if created != nil {
			_ = created.Close() // the process does not have it
		}
		return nil, fmt.Errorf("%s %s: %w", what, name, err)
	}
	return &faultyFile{f, created}, nil
}

// Open is disk.FS's. It changes nothing.
func (f *Faulty) Open(name string) (disk.File, error) {
	file, err := f.FS.Open(name)
	if err != nil {
		return nil, err
	}
	return &faultyFile{f, file}, nil
}

// faultyFile is a file of a Faulty.
type faultyFile struct {
	on   *Faulty
	file disk.File
}

func (f *faultyFile) Write(content []byte) (written int, err error) {
	write := func(content []byte) func() error {
		return func() (err error) {
			written, err = f.file.Write(content)
			return err
		}
	}
	err = f.on.change(write(content), write(content[:len(content)/2]))
	return written, err
}

func (f *faultyFile) Chmod(mode uint32) error {
	return f.on.whole(func() error { return f.file.Chmod(mode) })
}

func (f *faultyFile) Chown(uid, gid int) error {
	return f.on.whole(func() error { return f.file.Chown(uid, gid) })
}

func (f *faultyFile) Sync() error { return f.on.whole(f.file.Sync) }

func (f *faultyFile) Close() error { return f.file.Close() }

// Unsynced is an FS that never synchronizes.
type Unsynced struct{ disk.FS }

// Create is disk.Changer's.
func (u Unsynced) Create(name string) (disk.File, error) {
	return withoutSync(u.FS.Create(name))
}

// Mkdir is disk.Changer's.
func (u Unsynced) Mkdir(name string) (disk.File, error) {
	return withoutSync(u.FS.Mkdir(name))
}

// Open is disk.FS's.
func (u Unsynced) Open(name string) (disk.File, error) {
	return withoutSync(u.FS.Open(name))
}

type unsyncedFile struct{ disk.File }

// withoutSync returns a file that was opened as one of an Unsynced.
func withoutSync(file disk.File, err error) (disk.File, error) {
	if err != nil {
		return nil, err
	}
	return unsyncedFile{file}, nil
}

func (unsyncedFile) Sync() error { return nil }
