package model

import (
	"bytes"
	"encoding/json"
)

// Sections are the parts of a state that are sent whole, encoded, by their names.
type Sections map[string]json.RawMessage

// Encoded is a state with its sections encoded.
type Encoded struct {
	Sections Sections
	Tiles    []Tile
}

// Encode returns the state encoded. Errors: a number that JSON does not have, which a replica may
// have reported as its capacity.
func (s State) Encode() (Encoded, error) {
	e := Encoded{Sections: Sections{}, Tiles: s.Tiles}
	whole, err := json.Marshal(s)
	if err != nil {
		return e, err
	}
	return e, json.Unmarshal(whole, &e.Sections)
}

// Group has the tiles of one pool, each as an array whose empty end is left out, and the names of
// machines that have no tile there any more.
type Group struct {
	Namespace string   `json:"namespace"`
	Pool      string   `json:"pool"`
	Tiles     []Tile   `json:"tiles,omitempty"`
	Gone      []string `json:"gone,omitempty"`
}

// MarshalJSON encodes a tile as an array: name, phase, zone, level, since, slot, Node unless it has
// the name of the machine, and note.
func (t Tile) MarshalJSON() ([]byte, error) {
	node := t.Node
	if node == t.Name {
		node = "="
	}
	fields := []any{t.Name, t.Phase, t.Zone, t.Level, t.Since, t.Slot, node}
	if t.Note != "" {
		fields = append(fields, t.Note)
	}
	return json.Marshal(fields)
}

// Message contains the whole state for a viewer, or a change of the state that it has.
type Message struct {
	// Whole reports whether what the viewer has is replaced.
	Whole    bool     `json:"whole,omitempty"`
	Sections Sections `json:"sections,omitempty"`
	Machines []Group  `json:"machines,omitempty"`
}

// IsEmpty reports whether nothing has changed.
func (m Message) IsEmpty() bool { return !m.Whole && len(m.Sections) == 0 && len(m.Machines) == 0 }

// Whole returns the message with the whole state.
func (e Encoded) Whole() Message {
	m := Change(Encoded{}, e)
	m.Whole = true
	return m
}

// Change returns the message that leads from one state to another.
func Change(before, after Encoded) Message {
	m := Message{Sections: Sections{}}
	for name, section := range after.Sections {
		if !bytes.Equal(before.Sections[name], section) {
			m.Sections[name] = section
		}
	}
	m.Machines = changedTiles(before.Tiles, after.Tiles)
	return m
}

// changedTiles compares two lists in the order of compareTiles.
func changedTiles(before, after []Tile) (groups []Group) {
	group := func(t Tile) *Group {
		if n := len(groups); n == 0 || groups[n-1].Namespace != t.Namespace || groups[n-1].Pool != t.Pool {
			groups = append(groups, Group{Namespace: t.Namespace, Pool: t.Pool})
		}
		return &groups[len(groups)-1]
	}
	for len(before) > 0 || len(after) > 0 {
		var order int
		switch {
		case len(before) == 0:
			order = 1
		case len(after) == 0:
			order = -1
		default:
			order = compareTiles(before[0], after[0])
		}
		switch {
		case order < 0:
			g := group(before[0])
			g.Gone = append(g.Gone, before[0].Name)
			before = before[1:]
		case order > 0:
			g := group(after[0])
			g.Tiles = append(g.Tiles, after[0])
			after = after[1:]
		default:
			if before[0] != after[0] {
				g := group(after[0])
				g.Tiles = append(g.Tiles, after[0])
			}
			before, after = before[1:], after[1:]
		}
	}
	return groups
}
