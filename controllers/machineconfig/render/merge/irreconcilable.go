package merge

import (
	"bytes"
	"fmt"
	"reflect"
	"slices"
	"strings"

	ignition "github.com/coreos/ignition/v2/config/v3_5"
	"github.com/coreos/ignition/v2/config/v3_5/types"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/fleet/v1alpha1"
)

// installed is the part of a configuration that a Node gets when it is installed, and never again,
// by the names of its fields.
type installed map[string]any

// installedOf returns that part, each field in a form that compares equal when it means the same.
func installedOf(c types.Config) installed {
	all := installed{
		"spec.config.kernelArguments":     c.KernelArguments,
		"spec.config.passwd.groups":       sortedBy(c.Passwd.Groups, func(g types.PasswdGroup) string { return g.Name }),
		"spec.config.passwd.users":        sortedBy(withoutKeys(c.Passwd.Users), func(u types.PasswdUser) string { return u.Name }),
		"spec.config.storage.directories": sortedBy(c.Storage.Directories, func(d types.Directory) string { return d.Path }),
		"spec.config.storage.disks":       sortedBy(c.Storage.Disks, func(d types.Disk) string { return d.Device }),
		"spec.config.storage.filesystems": sortedBy(c.Storage.Filesystems, types.Filesystem.Key),
		"spec.config.storage.links":       sortedBy(c.Storage.Links, func(l types.Link) string { return l.Path }),
		"spec.config.storage.luks":        sortedBy(c.Storage.Luks, func(l types.Luks) string { return l.Name }),
		"spec.config.storage.raid":        sortedBy(c.Storage.Raid, func(r types.Raid) string { return r.Name }),
	}
	var appended []types.File
	for _, f := range c.Storage.Files {
		if len(f.Append) > 0 {
			appended = append(appended, f)
		}
	}
	all["spec.config.storage.files.append"] = sortedBy(appended, func(f types.File) string { return f.Path })
	return all
}

// withoutKeys returns users without their SSH keys, which can be changed in place. A user with
// nothing else is left out.
func withoutKeys(users []types.PasswdUser) (others []types.PasswdUser) {
	for _, u := range users {
		u.SSHAuthorizedKeys = nil
		if !reflect.DeepEqual(u, types.PasswdUser{Name: u.Name}) {
			others = append(others, u)
		}
	}
	return others
}

// sortedBy returns a sorted copy, and nil for none.
func sortedBy[T any](all []T, key func(T) string) []T {
	if len(all) == 0 {
		return nil
	}
	all = slices.Clone(all)
	slices.SortStableFunc(all, func(a, b T) int { return strings.Compare(key(a), key(b)) })
	return all
}

// changed returns the names of the fields in which two differ, sorted.
func (i installed) changed(other installed) (names []string) {
	for name, value := range i {
		if !reflect.DeepEqual(value, other[name]) {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

// Irreconcilable returns why Nodes that have a configuration cannot be brought to a merged one in
// place, or nil. What only some Nodes can change in place (kernel arguments, the image of the
// operating system) is left to them. A configuration that cannot be read is not compared: nothing
// is known about it.
func Irreconcilable(current *v1alpha1.RenderedMachineConfigSpec, m Merged) *Error {
	before, _, err := ignition.ParseCompatibleVersion(bytes.TrimSpace(current.Config.Raw))
	if err != nil {
		return nil //nolint:nilerr // as documented
	}
	had := installedOf(before)
	fields := had.changed(installedOf(m.result))
	culprits := map[string]bool{}
	for _, field := range fields {
		if name, ok := changer(field, before, had, m.parts); ok {
			culprits[name] = true
		}
	}
	if current.FIPS != m.Spec.FIPS {
		fields = append(fields, "spec.fips")
		for _, p := range m.parts {
			if p.Spec.FIPS {
				culprits[p.Name] = true
			}
		}
	}
	if len(fields) == 0 {
		return nil
	}
	problem := &Error{Reason: ReasonIrreconcilable}
	const way = "Undo the change, or replace the Nodes by new ones."
	for _, p := range m.parts {
		if culprits[p.Name] {
			problem.Culprits = append(problem.Culprits, p.Name)
		}
	}
	if len(problem.Culprits) == 0 {
		problem.Fact = fmt.Sprintf("Nodes cannot change %s in place, and what they have is in no MachineConfig any more. %s",
			strings.Join(fields, ", "), way)
		return problem
	}
	problem.Fact = fmt.Sprintf("Nodes cannot change %s in place. %s", strings.Join(fields, ", "), way)
	return problem
}

// changer returns the MachineConfig that changes a field of what Nodes have: the last one whose
// values for it are not overridden by those after it. False when merging all over what Nodes have
// would not change it: then something was removed.
func changer(field string, before types.Config, had installed, parts []part) (string, bool) {
	rest := types.Config{Ignition: types.Ignition{Version: types.MaxVersion.String()}}
	for _, p := range slices.Backward(parts) {
		rest = ignition.Merge(p.ignition, rest)
		if slices.Contains(had.changed(installedOf(ignition.Merge(before, rest))), field) {
			return p.Name, true
		}
	}
	return "", false
}
