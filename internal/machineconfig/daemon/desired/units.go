package desired

import (
	"fmt"
	"path"
	"slices"
	"strings"

	"github.com/coreos/go-systemd/v22/unit"
	"github.com/coreos/ignition/v2/config/v3_5/types"

	"github.com/machine-controller-fleet/machine-controller-fleet/internal/machineconfig/daemon/plan"
)

// UnitFolder is where an administrator's units, drop-ins and links of enabled units are.
const UnitFolder = "/etc/systemd/system"

// masked is the target of the link that masks a unit.
const masked = "/dev/null"

// VendorFolders are where units of the operating system are, the strongest first.
func VendorFolders() []string {
	return []string{"/usr/local/lib/systemd/system", "/usr/lib/systemd/system"}
}

// installs maps the settings of an [Install] section to the suffix of the folder that their links
// are in.
func installs() map[string]string {
	return map[string]string{"WantedBy": ".wants", "RequiredBy": ".requires", "UpheldBy": ".upholds"}
}

// UnitsOfMachine returns the names of the units whose text is needed and that the configuration
// does not contain, sorted.
func (c *Config) UnitsOfMachine() (names []string) {
	for _, u := range c.ignition.Systemd.Units {
		if u.Enabled != nil && !hasText(u.Contents) && plan.IsUnitName(u.Name) {
			names = append(names, u.Name, templateOf(u.Name))
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}

func hasText(contents *string) bool { return contents != nil && *contents != "" }

// templateOf returns the name of the template of an instance, foo@.service of foo@bar.service, and
// other names unchanged.
func templateOf(name string) string {
	prefix, rest, isInstance := strings.Cut(name, "@")
	if !isInstance {
		return name
	}
	return prefix + "@" + path.Ext(rest)
}

// instanceOf returns the instance in a name, bar of foo@bar.service.
func instanceOf(name string) string {
	_, rest, _ := strings.Cut(name, "@")
	return strings.TrimSuffix(rest, path.Ext(rest))
}

func (b *builder) addUnits(units []types.Unit) {
	b.units = map[string]types.Unit{}
	for _, u := range units {
		b.units[u.Name] = u
	}
	for _, u := range units {
		b.unit(u)
	}
}

func (b *builder) unit(u types.Unit) {
	field := fmt.Sprintf("config.systemd.units[%s]", u.Name)
	if !plan.IsUnitName(u.Name) {
		b.refuse(field, "expected the name of a unit: a file name of letters, digits and : - _ . \\ @, with neither - nor . at the beginning")
		return
	}
	isMasked := u.Mask != nil && *u.Mask
	place := UnitFolder + "/" + u.Name
	switch {
	case isMasked:
		b.add(place, plan.Entry{Field: field + ".mask", Unit: u.Name, Want: plan.State{Kind: plan.Link, Target: masked}})
	case hasText(u.Contents):
		b.addFile(place, []byte(*u.Contents), b.unitFile(field+".contents", u.Name))
	}
	for _, d := range u.Dropins {
		if !hasText(d.Contents) {
			continue
		}
		of := fmt.Sprintf("%s.dropins[%s]", field, d.Name)
		if !plan.IsUnitName(d.Name) {
			b.refuse(of, "expected a file name of letters, digits and : - _ . \\ @, with neither - nor . at the beginning")
			continue
		}
		b.addFile(place+".d/"+d.Name, []byte(*d.Contents), b.unitFile(of, u.Name))
	}
	if u.Enabled != nil && !isMasked {
		b.enable(field+".enabled", u.Name, *u.Enabled)
	}
}

func (b *builder) unitFile(field, name string) plan.Entry {
	return plan.Entry{Field: field, Unit: name, Want: plan.State{Mode: unitMode, UID: b.machine.UID, GID: b.machine.GID}}
}

// enable adds the links of an enabled unit, or the absence of all of them. As with systemctl, a
// unit without an [Install] section has none.
func (b *builder) enable(field, name string, enabled bool) {
	links := map[string]bool{}
	text, place := b.textOf(name)
	if place == "" && enabled {
		b.refuse(field, "the configuration has no contents for the unit, and the machine has no unit of that name")
		return
	}
	if place != "" {
		found, why := linksOf(name, text)
		if why != "" && enabled {
			b.refuse(field, "%s", why)
			return
		}
		for _, link := range found {
			links[link] = true
		}
	}
	if enabled {
		for link := range links {
			b.add(link, plan.Entry{Field: field, Unit: name, Want: plan.State{Kind: plan.Link, Target: place}})
		}
		return
	}
	for link, target := range b.machine.Links {
		isOfUnit := path.Base(link) == name && path.Dir(link) != UnitFolder
		isAlias := path.Dir(link) == UnitFolder && path.Base(link) != name && path.Base(target) == name
		if isOfUnit || isAlias {
			links[link] = true
		}
	}
	for link := range links {
		b.add(link, plan.Entry{Field: field, Unit: name, Want: plan.State{Kind: plan.Absent}})
	}
}

// textOf returns the text and the path of a unit file: that of the configuration or else of the
// machine; of an instance, that of its template. The path is "" where there is none.
func (b *builder) textOf(name string) (text, place string) {
	for _, candidate := range []string{name, templateOf(name)} {
		if u, ok := b.units[candidate]; ok && hasText(u.Contents) {
			return *u.Contents, UnitFolder + "/" + candidate
		}
		if text, ok := b.machine.Units[candidate]; ok {
			return text, b.machine.Places[candidate]
		}
	}
	return "", ""
}

// linksOf returns the paths of the links that enable a unit, or why they are not known.
func linksOf(name, text string) (links []string, why string) {
	if name == templateOf(name) && strings.Contains(name, "@") {
		return nil, "expected an instance of the template, such as name@instance.service"
	}
	options, err := unit.DeserializeOptions(strings.NewReader(text))
	if err != nil {
		return nil, "the unit file cannot be read"
	}
	for _, o := range options {
		if o.Section != "Install" {
			continue
		}
		suffix, isWanted := installs()[o.Name]
		if !isWanted && o.Name != "Alias" && o.Name != "Also" {
			continue
		}
		for other := range strings.FieldsSeq(o.Value) {
			other = strings.NewReplacer("%i", instanceOf(name), "%n", name).Replace(other)
			switch {
			case !plan.IsUnitName(other):
				return nil,
					fmt.Sprintf("the setting %s in [Install] has a value that is not supported: expected names of units, with at most %%i and %%n", o.Name)
			case isWanted:
				links = append(links, UnitFolder+"/"+other+suffix+"/"+name)
			case o.Name == "Alias":
				links = append(links, UnitFolder+"/"+other)
			default:
				return nil, "the setting Also in [Install] is not supported: enable each unit by a separate entry"
			}
		}
	}
	return links, ""
}
