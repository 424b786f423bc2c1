package plan

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
)

// Kind classifies what is at a path.
type Kind string

// The kinds. Only paths of the first three can be managed; Folder and Other are observed.
const (
	Absent Kind = "absent"
	File   Kind = "file"
	Link   Kind = "link"
	Folder Kind = "folder"
	Other  Kind = "other"
)

// State describes what is, or should be, at a path. States are equal (==) when nothing that is
// managed differs.
type State struct {
	Kind Kind `json:"kind"`
	// Mode, UID, GID, Digest and Size describe a file. Mode has the permission bits, and of what was
	// observed also setuid, setgid and sticky as chmod counts them. Digest is the content's SHA-256 in
	// hexadecimal digits.
	Mode   uint32 `json:"mode,omitempty"`
	UID    int    `json:"uid,omitempty"`
	GID    int    `json:"gid,omitempty"`
	Digest string `json:"digest,omitempty"`
	Size   int64  `json:"size,omitempty"`
	// Target is that of a link.
	Target string `json:"target,omitempty"`
}

// Digest returns the SHA-256 of content in hexadecimal digits.
func Digest(content []byte) string {
	sum := sha256.Sum256(content)
	return hex.EncodeToString(sum[:])
}

// IsDigest reports whether a text has the form of a Digest.
func IsDigest(text string) bool {
	raw, err := hex.DecodeString(text)
	return err == nil && len(raw) == sha256.Size && hex.EncodeToString(raw) == text
}

// difference describes how a state differs from the wanted one, without content.
func (s State) difference(want State) string {
	switch {
	case s.Kind != want.Kind:
		return fmt.Sprintf("expected %s, found %s", want.Kind, s.Kind)
	case s.Kind == Link && s.Target != want.Target:
		return "the link has another target"
	case s.Digest != want.Digest:
		return fmt.Sprintf("expected content of %d bytes with SHA-256 %s, found %d bytes with %s",
			want.Size, abbreviated(want.Digest), s.Size, abbreviated(s.Digest))
	case s.Mode != want.Mode:
		return fmt.Sprintf("expected mode %04o, found %04o", want.Mode, s.Mode)
	case s.UID != want.UID || s.GID != want.GID:
		return fmt.Sprintf("expected owner %d:%d, found %d:%d", want.UID, want.GID, s.UID, s.GID)
	}
	return ""
}

// abbreviated returns the part of a digest that people compare.
func abbreviated(digest string) string { return digest[:min(len(digest), 12)] }

// Directory is a folder that is created where it does not exist. One that exists is not changed.
type Directory struct {
	Path string `json:"path"`
	Mode uint32 `json:"mode"`
	UID  int    `json:"uid,omitempty"`
	GID  int    `json:"gid,omitempty"`
}

// Managed is the record of a path that the applied config contains.
type Managed struct {
	// State is the state that the config requests.
	State State `json:"state"`
	// Original is the state before the first config that contained the path; it is restored when
	// none does any more.
	Original State `json:"original"`
	// Unit is the unit that the path belongs to; empty for other files.
	Unit string `json:"unit,omitempty"`
	// Keys reports whether the path has a user's SSH keys.
	Keys bool `json:"keys,omitempty"`
}

// Drift returns a message for each managed path whose state is another than recorded, sorted by
// path.
func Drift(managed map[string]Managed, observed map[string]State) (messages []string) {
	for _, path := range sortedKeys(managed) {
		found, ok := observed[path]
		if !ok {
			found = State{Kind: Absent}
		}
		if found != managed[path].State {
			messages = append(messages, path+": "+found.difference(managed[path].State))
		}
	}
	return messages
}
