package model

import (
	"cmp"
	"slices"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/bounded"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/disruption"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/view"
)

// Tile is a machine.
type Tile struct {
	Namespace string
	// Pool is the MachineDeployment above it, or the MachineSet; "" for a machine without either.
	Pool  string
	Name  string
	Phase string
	Zone  string
	// Level is 0 for a machine that is as it should be, 1 for a note, 2 for a warning, 3 for an error.
	Level int
	Since int64
	Slot  int
	Node  string
	Note  string
}

// Counts are about all machines, also those without a tile.
type Counts struct {
	Deployments int `json:"deployments"`
	Sets        int `json:"sets"`
	Machines    int `json:"machines"`
	RollingOut  int `json:"rollingOut"`
	Errors      int `json:"errors"`
	Warnings    int `json:"warnings"`
	// Tiles is how many machines have one.
	Tiles  int     `json:"tiles"`
	Phases []Count `json:"phases"`
	Zones  []Count `json:"zones"`
}

// UnknownZone is the name of the count of machines whose zone is not known, which have none.
const UnknownZone = "unknown"

// Count is how many machines are in a phase or a zone, and how many of them have trouble, which is
// a warning or an error.
type Count struct {
	Name    string `json:"name"`
	Count   int    `json:"count"`
	Trouble int    `json:"trouble"`
}

// levelOf returns the number of a level.
func levelOf(l view.Level) int {
	switch l {
	case view.Error:
		return 3
	case view.Warning:
		return 2
	case view.Note:
		return 1
	}
	return 0
}

// zones are those of classes, and which names of zones are valid.
type zones struct {
	ofClass map[types.NamespacedName]string
	valid   map[string]string
}

func zonesOf(s view.Snapshot) zones {
	z := zones{map[types.NamespacedName]string{}, map[string]string{}}
	for _, class := range s.Classes {
		if class.NodeTemplate != nil {
			z.ofClass[types.NamespacedName{Namespace: class.Namespace, Name: class.Name}] = class.NodeTemplate.Zone
		}
	}
	return z
}

// of returns the zone of a machine: that of its template, or else of its class; "" if it is not
// known.
func (z zones) of(m *v1alpha1.Machine) string {
	text := m.Spec.NodeTemplateSpec.Labels[corev1.LabelTopologyZone]
	if text == "" {
		text = z.ofClass[types.NamespacedName{Namespace: m.Namespace, Name: m.Spec.Class.Name}]
	}
	zone, known := z.valid[text]
	if !known {
		zone = disruption.Zone(text)
		z.valid[text] = zone
	}
	return zone
}

// tilesOf returns the tiles of machines, in the order of namespaces, pools and names.
func tilesOf(s view.Snapshot, z zones) ([]Tile, Counts) {
	pools := map[types.UID]string{}
	for _, set := range s.Sets {
		if kind, name := ownerOf(set); kind == view.KindDeployment {
			pools[set.UID] = name
		} else {
			pools[set.UID] = set.Name
		}
	}
	tiles := make([]Tile, 0, len(s.Machines))
	for _, m := range s.Machines {
		tiles = append(tiles, tileOf(s, m, pools, z))
	}
	slices.SortFunc(tiles, compareTiles)
	counts := Counts{Machines: len(tiles)}
	counts.Phases = countBy(tiles, func(t Tile) string { return t.Phase })
	counts.Zones = countBy(tiles, func(t Tile) string { return cmp.Or(t.Zone, UnknownZone) })
	tiles = tiles[:fitting(tiles)]
	counts.Tiles = len(tiles)
	return tiles, counts
}

// fitting returns how many of the first tiles are sent.
func fitting(tiles []Tile) int {
	size, last := 0, Tile{}
	for i, t := range tiles[:min(len(tiles), MostTiles)] {
		if t.Namespace != last.Namespace || t.Pool != last.Pool {
			size += len(t.Namespace) + encoded(t.Pool)
		}
		size += len(t.Name) + len(t.Zone) + len(t.Node) + encoded(t.Phase) + encoded(t.Note)
		if size > mostBytes {
			return i
		}
		last = t
	}
	return min(len(tiles), MostTiles)
}

// encoded returns how many bytes a text has in JSON, at most.
func encoded(text string) int {
	size := len(text)
	for i := range len(text) {
		switch c := text[i]; {
		case c < ' ', c == '"', c == '\\', c == '<', c == '>', c == '&':
			size += len(`\u0000`) - 1
		}
	}
	return size
}

func compareTiles(a, b Tile) int {
	return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Pool, b.Pool), cmp.Compare(a.Name, b.Name))
}

func tileOf(s view.Snapshot, m *v1alpha1.Machine, pools map[types.UID]string, z zones) Tile {
	t := Tile{
		Namespace: m.Namespace, Name: m.Name, Phase: bounded.Text(view.StateOf(m), mostName), Slot: -1,
		Since: seconds(m.Status.CurrentStatus.LastUpdateTime.Time), Node: m.Labels[v1alpha1.LabelNode], Zone: z.of(m),
	}
	for _, o := range m.OwnerReferences {
		if o.Controller != nil && *o.Controller {
			t.Pool = bounded.Text(cmp.Or(pools[o.UID], o.Name), mostName)
		}
	}
	if slot, err := strconv.Atoi(m.Labels[v1alpha1.LabelSlot]); err == nil {
		t.Slot = slot
	}
	for i, trouble := range view.MachineTroubles(m, s.Now) {
		if level := levelOf(trouble.Level); i == 0 || level > t.Level {
			t.Level, t.Note = level, bounded.Text(trouble.Message, mostNote)
			if !trouble.Since.IsZero() {
				t.Since = seconds(trouble.Since)
			}
		}
	}
	return t
}

func countBy(tiles []Tile, name func(Tile) string) []Count {
	at, all := map[string]int{}, []Count{}
	for _, t := range tiles {
		i, known := at[name(t)]
		if !known {
			i = len(all)
			at[name(t)] = i
			all = append(all, Count{Name: name(t)})
		}
		all[i].Count++
		if t.Level >= levelOf(view.Warning) {
			all[i].Trouble++
		}
	}
	slices.SortFunc(all, func(a, b Count) int { return cmp.Or(cmp.Compare(b.Count, a.Count), cmp.Compare(a.Name, b.Name)) })
	return all[:min(len(all), MostRows)]
}
