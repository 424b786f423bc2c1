package disktest

import (
	"fmt"
	"io/fs"
	"maps"
	"math/rand/v2"
	"path"
	"slices"
	"strings"
	"syscall"

	"github.com/machine-controller-fleet/machine-controller-fleet/internal/machineconfig/daemon/disk"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/machineconfig/daemon/plan"
)

// inode is a file, a link or a folder.
type inode struct {
	image

	durable *image // nil until it was synchronized
	entries map[string]*inode
	// kept are the entries that are durable, and changed the later ones of each name in their order;
	// nil is no entry.
	kept    map[string]*inode
	changed map[string][]*inode
}

// image is a file or a folder without its entries.
type image struct {
	kind     plan.Kind
	mode     uint32
	uid, gid int
	data     []byte
	target   string
}

// Model is a disk in memory. The zero value is not ready; use NewModel.
type Model struct{ root *inode }

var _ disk.FS = (*Model)(nil)

// NewModel returns an empty disk.
func NewModel() *Model {
	return &Model{root: newFolder(0o755)}
}

func newFolder(mode uint32) *inode {
	return &inode{
		image: image{kind: plan.Folder, mode: mode}, entries: map[string]*inode{}, kept: map[string]*inode{}, changed: map[string][]*inode{},
	}
}

// LosePower returns the disk as it is after a loss of power.
func (m *Model) LosePower(r *rand.Rand) *Model {
	return &Model{root: m.root.afterLoss(r)}
}

// afterLoss returns a copy of what is left of an inode.
func (n *inode) afterLoss(r *rand.Rand) *inode {
	left := &inode{image: n.image}
	if n.kind != plan.Folder {
		left.image = n.imageAfterLoss(r)
		durable := left.image
		left.durable = &durable
		return left
	}
	left = newFolder(n.mode)
	if n.durable != nil && r.IntN(2) == 0 {
		left.image = *n.durable
	} else {
		left.image = n.image
	}
	names := maps.Clone(n.kept)
	for name := range n.changed {
		if _, ok := names[name]; !ok {
			names[name] = nil
		}
	}
	for _, name := range slices.Sorted(maps.Keys(names)) {
		possible := append([]*inode{n.kept[name]}, n.changed[name]...)
		if entry := possible[r.IntN(len(possible))]; entry != nil {
			copied := entry.afterLoss(r)
			left.entries[name], left.kept[name] = copied, copied
		}
	}
	durable := left.image
	left.durable = &durable
	return left
}

func (n *inode) imageAfterLoss(r *rand.Rand) image {
	if n.kind == plan.Link {
		return n.image
	}
	before := image{kind: plan.File, mode: 0o600}
	if n.durable != nil {
		before = *n.durable
	}
	left := n.image
	if r.IntN(2) == 0 {
		left.mode, left.uid, left.gid = before.mode, before.uid, before.gid
	}
	switch r.IntN(3) {
	case 0:
		left.data = before.data
	case 1:
		if !slices.Equal(before.data, n.data) {
			left.data = n.data[:r.IntN(len(n.data)+1)]
		}
	}
	return left
}

// Sync persists everything on the disk.
func (m *Model) Sync() { m.root.syncAll() }

func (n *inode) syncAll() {
	n.sync()
	for _, entry := range n.entries {
		entry.syncAll()
	}
}

func (n *inode) sync() {
	durable := n.image
	durable.data = slices.Clone(n.data)
	n.durable = &durable
	if n.kind == plan.Folder {
		n.kept = maps.Clone(n.entries)
		n.changed = map[string][]*inode{}
	}
}

// set changes an entry of a folder; nil removes it.
func (n *inode) set(name string, entry *inode) {
	n.changed[name] = append(n.changed[name], entry)
	if entry == nil {
		delete(n.entries, name)
		return
	}
	n.entries[name] = entry
}

// Tree returns what is on the disk, by path: states of files and links, and modes and owners of
// folders. Paths below the excluded folder are left out.
func (m *Model) Tree(excluded string) map[string]string {
	tree := map[string]string{}
	m.root.list("", excluded, tree)
	return tree
}

func (n *inode) list(at, excluded string, tree map[string]string) {
	for name, entry := range n.entries {
		full := at + "/" + name
		if full == excluded {
			continue
		}
		tree[full] = fmt.Sprintf("%s %04o %d:%d %q %q", entry.kind, entry.mode, entry.uid, entry.gid, entry.data, entry.target)
		entry.list(full, excluded, tree)
	}
}

func failure(op, name string, err error) error { return &fs.PathError{Op: op, Path: name, Err: err} }

// find returns what is at a path; the folder above it has to be one.
func (m *Model) find(op, name string) (folder *inode, last string, found *inode, err error) {
	if name == "/" {
		return nil, "", m.root, nil
	}
	if plan.CheckPath(name) != "" {
		return nil, "", nil, failure(op, name, fs.ErrInvalid)
	}
	folder = m.root
	parts := strings.Split(name[1:], "/")
	for i, part := range parts[:len(parts)-1] {
		below := folder.entries[part]
		switch {
		case below == nil:
			return nil, "", nil, failure(op, name, fs.ErrNotExist)
		case below.kind == plan.Link:
			return nil, "", nil, &disk.LinkError{Path: "/" + path.Join(parts[:i+1]...)}
		case below.kind != plan.Folder:
			return nil, "", nil, failure(op, name, syscall.ENOTDIR)
		}
		folder = below
	}
	last = parts[len(parts)-1]
	return folder, last, folder.entries[last], nil
}

func (m *Model) existing(op, name string) (*inode, error) {
	_, _, found, err := m.find(op, name)
	if err == nil && found == nil {
		err = failure(op, name, fs.ErrNotExist)
	}
	return found, err
}

// Lstat is disk.Reader's.
func (m *Model) Lstat(name string) (disk.Info, error) {
	n, err := m.existing("lstat", name)
	if err != nil {
		return disk.Info{}, err
	}
	return n.info(), nil
}

// ReadFile is disk.Reader's.
func (m *Model) ReadFile(name string, limit int64) ([]byte, disk.Info, error) {
	n, err := m.existing("read", name)
	switch {
	case err != nil:
		return nil, disk.Info{}, err
	case n.kind == plan.Link:
		return nil, disk.Info{}, &disk.LinkError{Path: name}
	case n.kind != plan.File || int64(len(n.data)) > limit:
		return nil, disk.Info{}, failure("read", name, fs.ErrInvalid)
	}
	return slices.Clone(n.data), n.info(), nil
}

func (n *inode) info() disk.Info {
	return disk.Info{Kind: n.kind, Mode: n.mode, UID: n.uid, GID: n.gid, Size: int64(len(n.data))}
}

// Readlink is disk.Reader's.
func (m *Model) Readlink(name string) (string, error) {
	n, err := m.existing("readlink", name)
	if err == nil && n.kind != plan.Link {
		err = failure("readlink", name, fs.ErrInvalid)
	}
	if err != nil {
		return "", err
	}
	return n.target, nil
}

// ReadDir is disk.Reader's.
func (m *Model) ReadDir(name string) ([]string, error) {
	n, err := m.existing("list", name)
	switch {
	case err != nil:
		return nil, err
	case n.kind == plan.Link:
		return nil, &disk.LinkError{Path: name}
	case n.kind != plan.Folder:
		return nil, failure("list", name, syscall.ENOTDIR)
	}
	return slices.Sorted(maps.Keys(n.entries)), nil
}

// add adds an entry where nothing is.
func (m *Model) add(op, name string, n *inode) error {
	folder, last, found, err := m.find(op, name)
	switch {
	case err != nil:
		return err
	case found != nil:
		return failure(op, name, fs.ErrExist)
	}
	folder.set(last, n)
	return nil
}

// Create is disk.Changer's.
func (m *Model) Create(name string) (disk.File, error) {
	n := &inode{image: image{kind: plan.File, mode: 0o600}}
	if err := m.add("create", name, n); err != nil {
		return nil, err
	}
	return open{n}, nil
}

// Symlink is disk.Changer's.
func (m *Model) Symlink(target, name string) error {
	return m.add("symlink", name, &inode{image: image{kind: plan.Link, mode: 0o777, target: target}})
}

// Mkdir is disk.Changer's.
func (m *Model) Mkdir(name string) (disk.File, error) {
	n := newFolder(0o700)
	if err := m.add("mkdir", name, n); err != nil {
		return nil, err
	}
	return open{n}, nil
}

// Rename is disk.Changer's.
func (m *Model) Rename(from, to string) error {
	if path.Dir(from) != path.Dir(to) {
		return failure("rename", from, fs.ErrInvalid)
	}
	folder, last, found, err := m.find("rename", from)
	if err != nil {
		return err
	}
	if found == nil {
		return failure("rename", from, fs.ErrNotExist)
	}
	replaced := folder.entries[path.Base(to)]
	switch {
	case replaced != nil && replaced.kind == plan.Folder:
		return failure("rename", to, fs.ErrExist) // as package os does
	case replaced == found:
		return nil
	case replaced != nil && replaced.kind != plan.Folder && found.kind == plan.Folder:
		return failure("rename", to, syscall.ENOTDIR)
	}
	folder.set(path.Base(to), found)
	folder.set(last, nil)
	return nil
}

// Remove is disk.Changer's.
func (m *Model) Remove(name string) error {
	folder, last, found, err := m.find("remove", name)
	switch {
	case err != nil:
		return err
	case found == nil:
		return failure("remove", name, fs.ErrNotExist)
	case len(found.entries) > 0:
		return failure("remove", name, syscall.ENOTEMPTY)
	}
	folder.set(last, nil)
	return nil
}

// Open is disk.FS's.
func (m *Model) Open(name string) (disk.File, error) {
	n, err := m.existing("open", name)
	if err != nil {
		return nil, err
	}
	if n.kind == plan.Link {
		return nil, &disk.LinkError{Path: name}
	}
	return open{n}, nil
}

// open is an open file or folder.
type open struct{ n *inode }

func (o open) Write(content []byte) (int, error) {
	o.n.data = append(slices.Clip(o.n.data), content...)
	return len(content), nil
}

func (o open) Chmod(mode uint32) error {
	o.n.mode = mode
	return nil
}

func (o open) Chown(uid, gid int) error {
	o.n.uid, o.n.gid = uid, gid
	return nil
}

func (o open) Sync() error {
	o.n.sync()
	return nil
}

func (o open) Close() error { return nil }
