package agent

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"path"
	"slices"
	"strings"

	"github.com/machine-controller-fleet/machine-controller-fleet/internal/machineconfig/daemon/desired"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/machineconfig/daemon/disk"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/machineconfig/daemon/plan"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/machineconfig/daemon/transaction"
)

// maxAccounts bounds /etc/passwd and /etc/group, and maxUnit a unit file.
const maxAccounts, maxUnit = 16 << 20, 1 << 20

// describe returns what the tree of a configuration depends on. managed is the record of what the
// daemon has changed: links that it has removed count as there.
func (a *Agent) describe(config desired.Config, managed map[string]plan.Managed) (desired.Machine, error) {
	m := desired.Machine{
		UID: a.cfg.UID, GID: a.cfg.GID,
		Units: map[string]string{}, Places: map[string]string{}, Links: map[string]string{},
	}
	users, err := readIfExists(a.cfg.FS, "/etc/passwd", maxAccounts)
	if err != nil {
		return m, err
	}
	groups, err := readIfExists(a.cfg.FS, "/etc/group", maxAccounts)
	if err != nil {
		return m, err
	}
	m.Users, m.Groups = desired.ParseUsers(users), desired.ParseGroups(groups)
	names := config.UnitsOfMachine()
	for _, name := range names {
		for _, folder := range append([]string{desired.UnitFolder}, desired.VendorFolders()...) {
			if err := readUnit(a.cfg.FS, name, folder, managed, &m); err != nil {
				return m, err
			}
		}
	}
	if m.Links, err = links(a.cfg.FS); err != nil {
		return m, err
	}
	for name, record := range managed {
		if record.Original.Kind == plan.Link && strings.HasPrefix(name, desired.UnitFolder+"/") {
			m.Links[name] = record.Original.Target
		}
	}
	return m, nil
}

// readUnit adds the text of a unit, if a stronger folder did not have it. A file that the daemon
// itself has put there is not the machine's, and neither is a link: the unit is masked or has
// another name.
func readUnit(machine disk.Reader, name, folder string, managed map[string]plan.Managed, m *desired.Machine) error {
	if _, ok := m.Units[name]; ok {
		return nil
	}
	place := path.Join(folder, name)
	if record, ok := managed[place]; ok && record.Original.Kind != plan.File {
		return nil
	}
	observed, err := transaction.Observe(machine, []string{place})
	if err != nil {
		return fmt.Errorf("look at the unit %s: %w", name, err)
	}
	if observed.Paths[place].Kind != plan.File {
		return nil
	}
	text, _, err := machine.ReadFile(place, maxUnit)
	if err != nil {
		return fmt.Errorf("read the unit %s: %w", name, err)
	}
	m.Units[name], m.Places[name] = string(text), place
	return nil
}

// links returns the links of enabled units and aliases below the folder of units.
func links(machine disk.Reader) (map[string]string, error) {
	found := map[string]string{}
	folders := []string{desired.UnitFolder}
	names, err := namesIn(machine, desired.UnitFolder)
	if err != nil {
		return nil, err
	}
	for _, name := range names {
		if slices.Contains([]string{".wants", ".requires", ".upholds"}, path.Ext(name)) {
			folders = append(folders, path.Join(desired.UnitFolder, name))
		}
	}
	for _, folder := range folders {
		names, err := namesIn(machine, folder)
		if err != nil {
			return nil, err
		}
		for _, name := range names {
			place := path.Join(folder, name)
			info, err := machine.Lstat(place)
			if err != nil || info.Kind != plan.Link {
				continue // it is no link, or was removed meanwhile
			}
			if target, err := machine.Readlink(place); err == nil {
				found[place] = target
			}
		}
	}
	return found, nil
}

// namesIn returns the names in a folder. What is no folder has none.
func namesIn(machine disk.Reader, folder string) ([]string, error) {
	observed, err := transaction.Observe(machine, []string{folder})
	if err != nil {
		return nil, fmt.Errorf("look for units: %w", err)
	}
	if observed.Paths[folder].Kind != plan.Folder {
		return nil, nil
	}
	names, err := machine.ReadDir(folder)
	if err != nil {
		return nil, fmt.Errorf("look for units: %w", err)
	}
	return names, nil
}

func readIfExists(machine disk.Reader, name string, limit int64) ([]byte, error) {
	content, _, err := machine.ReadFile(name, limit)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read the accounts: %w", err)
	}
	return content, nil
}

// planned is a configuration with what it changes on the machine.
type planned struct {
	config  desired.Config
	tree    desired.Tree
	plan    plan.Plan
	claims  []plan.Claim
	actions plan.Actions
	refused []plan.Refusal
}

// plan plans a configuration.
func (a *Agent) plan(config desired.Config) (planned, error) {
	manifest := a.store.Manifest()
	machine, err := a.describe(config, manifest.Managed)
	if err != nil {
		return planned{}, err
	}
	p := planned{config: config, tree: config.Tree(machine)}
	paths := append(slices.Collect(maps.Keys(manifest.Managed)), slices.Collect(maps.Keys(p.tree.Entries))...)
	slices.Sort(paths)
	paths = slices.DeleteFunc(slices.Compact(paths), func(name string) bool { return plan.CheckPath(name) != "" })
	observed, err := transaction.Observe(a.cfg.FS, paths)
	if err != nil {
		return planned{}, fmt.Errorf("plan %s: %w", config.Name, err)
	}
	fields, isFirst, err := a.fieldsBefore()
	if err != nil {
		return planned{}, err
	}
	isProvisioned := isFirst && a.cfg.Provisioned
	p.plan = plan.Compute(plan.World{
		Managed: manifest.Managed, Desired: p.tree.Entries, Directories: p.tree.Directories, Observed: observed,
		UID: a.cfg.UID, GID: a.cfg.GID, Reserved: append([]string{a.cfg.StateDir}, a.cfg.Reserved...), IsProvisioned: isProvisioned,
	})
	var refused []plan.Refusal
	if !isProvisioned {
		p.claims, refused = plan.Compare(fields, config.Fields, a.cfg.Hooks)
	}
	p.refused = slices.Concat(refused, p.tree.Refused, p.plan.Refused)
	p.actions = config.Policy.Actions(p.plan.Steps, p.claims)
	return p, nil
}

// fieldsBefore returns the fields of the applied configuration that no transaction can apply, from
// the local copy.
func (a *Agent) fieldsBefore() (fields map[string]string, isFirst bool, err error) {
	manifest := a.store.Manifest()
	if manifest.ConfigDigest == "" {
		return nil, true, nil
	}
	content, err := a.store.Object(manifest.ConfigDigest)
	if err != nil {
		return nil, false, fmt.Errorf("read the copy of %s: %w", manifest.Config, err)
	}
	before, err := desired.Parse(content)
	if err != nil {
		return nil, false, fmt.Errorf("read the copy of %s: %w", manifest.Config, err)
	}
	return before.Fields, false, nil
}

// digestOf returns the digest under which a configuration is recorded.
func digestOf(c desired.Config) string { return plan.Digest(c.Content) }
