package desired

import (
	"fmt"
	"path"
	"strings"

	"github.com/coreos/ignition/v2/config/v3_5/types"

	"github.com/machine-controller-fleet/machine-controller-fleet/internal/machineconfig/daemon/plan"
)

const (
	fileMode, unitMode, keysMode, sshMode = 0o644, 0o644, 0o600, 0o700
	keysFile                              = ".ssh/authorized_keys"
)

// User is a user of the machine.
type User struct {
	UID, GID int
	Home     string
}

// Machine contains what a tree depends on apart from its configuration.
type Machine struct {
	// UID and GID are those of the daemon. Unless UID is 0 it can give files to itself only: it then
	// stands for root.
	UID, GID int
	Users    map[string]User
	Groups   map[string]int
	// Units are the texts of unit files that are not part of the configuration, and Places their
	// paths, by name.
	Units, Places map[string]string
	// Links are the links below UnitFolder: their targets, by path.
	Links map[string]string
}

// Tree is a desired tree.
type Tree struct {
	Entries map[string]plan.Entry
	// Contents are those of files, by digest.
	Contents map[string][]byte
	// Directories are folders that do not get the default mode and owner when they are created.
	Directories map[string]plan.Directory
	// Refused are fields that cannot be applied on this machine.
	Refused []plan.Refusal
}

// builder creates a Tree.
type builder struct {
	Tree

	machine Machine
	units   map[string]types.Unit
	total   int
}

// Tree returns the tree for a machine.
func (c *Config) Tree(m Machine) Tree {
	b := builder{machine: m, Tree: Tree{
		Entries: map[string]plan.Entry{}, Contents: map[string][]byte{}, Directories: map[string]plan.Directory{},
	}}
	for _, file := range c.ignition.Storage.Files {
		b.file(file)
	}
	b.addUnits(c.ignition.Systemd.Units)
	for _, user := range c.ignition.Passwd.Users {
		if len(user.SSHAuthorizedKeys) > 0 {
			b.keys(user)
		}
	}
	return b.Tree
}

func (b *builder) refuse(field, format string, args ...any) {
	b.Refused = append(b.Refused, plan.Refusal{Field: field, Message: fmt.Sprintf(format, args...)})
}

// add adds a path. Two fields may request the same of it.
func (b *builder) add(name string, e plan.Entry) {
	if other, ok := b.Entries[name]; ok && other.Want != e.Want {
		b.refuse(e.Field, "%s: %s requests something else there", name, other.Field)
		return
	}
	b.Entries[name] = e
}

// addFile adds a file with its content. The entry has mode and owner.
func (b *builder) addFile(name string, content []byte, e plan.Entry) {
	if b.total += len(content); b.total > maxTotal {
		b.refuse(e.Field, "expected all contents together to have at most %d bytes", maxTotal)
		return
	}
	e.Want.Kind, e.Want.Digest, e.Want.Size = plan.File, plan.Digest(content), int64(len(content))
	b.Contents[e.Want.Digest] = content
	b.add(name, e)
}

func (b *builder) file(f types.File) {
	field := fmt.Sprintf("config.storage.files[%s]", f.Path)
	if len(f.Append) > 0 || !isInline(f.Contents) {
		return // a field that is compared
	}
	content, err := Content(f.Contents)
	if err != nil {
		b.refuse(field+".contents", "%v", err)
		return
	}
	e := plan.Entry{Field: field, KeepsExisting: f.Overwrite != nil && !*f.Overwrite, Want: plan.State{Mode: fileMode}}
	if f.Mode != nil {
		e.Want.Mode = uint32(*f.Mode)
	}
	var ok bool
	if e.Want.UID, ok = b.owner(field+".user", f.User.ID, f.User.Name, b.uidOf, b.machine.UID); !ok {
		return
	}
	if e.Want.GID, ok = b.owner(field+".group", f.Group.ID, f.Group.Name, b.gidOf, b.machine.GID); !ok {
		return
	}
	b.addFile(f.Path, content, e)
}

func (b *builder) uidOf(name string) (int, bool) {
	user, ok := b.machine.Users[name]
	return user.UID, ok
}

func (b *builder) gidOf(name string) (int, bool) {
	gid, ok := b.machine.Groups[name]
	return gid, ok
}

// owner returns the ID of a user or a group, which is root's where none is named. own is that of
// the daemon.
func (b *builder) owner(field string, id *int, name *string, of func(string) (int, bool), own int) (int, bool) {
	owner := 0
	switch {
	case id != nil:
		owner = *id
	case name != nil && *name != "" && *name != "root":
		found, ok := of(*name)
		if !ok {
			b.refuse(field, "expected a name that the machine has, got %q", *name)
			return 0, false
		}
		owner = found
	}
	if b.machine.UID == 0 {
		return owner, true
	}
	if owner != 0 && owner != own {
		b.refuse(field, "the daemon does not run as root, and can give files to %d only", own)
		return 0, false
	}
	return own, true
}

// keys adds the SSH keys of a user.
func (b *builder) keys(u types.PasswdUser) {
	field := fmt.Sprintf("config.passwd.users[%s].sshAuthorizedKeys", u.Name)
	user, ok := b.machine.Users[u.Name]
	if !ok {
		b.refuse(field, "the machine has no user of that name; users are not created")
		return
	}
	if why := plan.CheckPath(user.Home); why != "" {
		b.refuse(field, "the home of that user: %s", why)
		return
	}
	uid, ok := b.owner(field, &user.UID, nil, nil, b.machine.UID)
	if !ok {
		return
	}
	gid, ok := b.owner(field, &user.GID, nil, nil, b.machine.GID)
	if !ok {
		return
	}
	var lines strings.Builder
	for _, key := range u.SSHAuthorizedKeys {
		if strings.ContainsAny(string(key), "\n\r\x00") {
			b.refuse(field, "expected each key on one line")
			return
		}
		lines.WriteString(string(key) + "\n")
	}
	name := path.Join(user.Home, keysFile)
	folder := path.Dir(name)
	b.Directories[folder] = plan.Directory{Path: folder, Mode: sshMode, UID: uid, GID: gid}
	b.addFile(name, []byte(lines.String()), plan.Entry{Field: field, Keys: true, Want: plan.State{Mode: keysMode, UID: uid, GID: gid}})
}
