package journal

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"

	"github.com/machine-controller-fleet/machine-controller-fleet/internal/machineconfig/daemon/plan"
)

// version is that of both records. A daemon reads no other.
const version = 1

// Manifest is the record of the applied config. The zero value is that of a machine without one.
type Manifest struct {
	Version int `json:"version"`
	// Config is the name of the config; ConfigDigest that of its content, which is an object.
	Config       string `json:"config,omitempty"`
	ConfigDigest string `json:"configDigest,omitempty"`
	// Transaction is the ID of the transaction that wrote the tree.
	Transaction string                  `json:"transaction,omitempty"`
	Managed     map[string]plan.Managed `json:"managed,omitempty"`
	// Failure is that of the config that was tried last and undone; nil after a success.
	Failure *Failure `json:"failure,omitempty"`
}

// Failure is the record of a config that was applied and did not work.
type Failure struct {
	ConfigDigest string `json:"configDigest"`
	// Attempts is how often it was applied.
	Attempts int    `json:"attempts"`
	Reason   string `json:"reason"`
	// BootID is that of the boot in which it was undone, if a reboot is needed until it is not in use
	// any more; else empty.
	BootID string `json:"bootID,omitempty"`
}

// Journal is the record of a transaction. It does not change.
type Journal struct {
	Version int `json:"version"`
	// ID is unique on the machine.
	ID string `json:"id"`
	// BootID is that of the boot in which the transaction began.
	BootID string `json:"bootID,omitempty"`
	// From and To are the manifests before and after it.
	From        Manifest         `json:"from"`
	To          Manifest         `json:"to"`
	Directories []plan.Directory `json:"directories,omitempty"`
	Steps       []plan.Step      `json:"steps,omitempty"`
	Claims      []plan.Claim     `json:"claims,omitempty"`
	Actions     plan.Actions     `json:"actions,omitzero"`
}

// Next is the next step after a start.
type Next string

// The states after a start.
const (
	// Rest means that no transaction is open.
	Rest Next = "rest"
	// Undo means that the tree may be a mix of old and new.
	Undo Next = "undo"
	// Continue means that the tree is new, and what follows is not finished.
	Continue Next = "continue"
)

// After returns what has to be done for a manifest and a journal, which is nil where there is none.
func After(m Manifest, j *Journal) Next {
	switch {
	case j == nil:
		return Rest
	case m.Transaction != j.ID:
		return Undo
	}
	return Continue
}

// TemporaryName returns the path under which a step's new content is written, in the folder of its
// path.
func (j Journal) TemporaryName(step int) string {
	return path.Join(path.Dir(j.Steps[step].Path), fmt.Sprintf(".mcd-%s-%d", j.ID, step))
}

// Objects returns the digests that the records refer to. A nil journal refers to none.
func Objects(m Manifest, j *Journal) map[string]bool {
	all := map[string]bool{}
	m.objects(all)
	if j == nil {
		return all
	}
	j.From.objects(all)
	j.To.objects(all)
	for _, step := range j.Steps {
		addFile(all, step.Before)
		addFile(all, step.After)
	}
	return all
}

func (m Manifest) objects(all map[string]bool) {
	if m.ConfigDigest != "" {
		all[m.ConfigDigest] = true
	}
	for _, managed := range m.Managed {
		addFile(all, managed.Original)
	}
}

func addFile(all map[string]bool, s plan.State) {
	if s.Kind == plan.File {
		all[s.Digest] = true
	}
}

// EncodeManifest returns the content of the manifest's file.
func EncodeManifest(m Manifest) ([]byte, error) {
	m.Version = version
	return encode(m)
}

// Encode returns the content of the journal's file.
func Encode(j Journal) ([]byte, error) {
	j.Version, j.From.Version, j.To.Version = version, version, version
	return encode(j)
}

func encode(record any) ([]byte, error) {
	content, err := json.MarshalIndent(record, "", " ")
	if err != nil {
		return nil, fmt.Errorf("encode the record: %w", err)
	}
	return append(content, '\n'), nil
}

// DecodeManifest reads the content of the manifest's file.
func DecodeManifest(content []byte) (Manifest, error) {
	var m Manifest
	if err := decode(content, &m); err != nil {
		return Manifest{}, fmt.Errorf("manifest: %w", err)
	}
	if err := m.check(); err != nil {
		return Manifest{}, fmt.Errorf("manifest: %w", err)
	}
	return m, nil
}

// Decode reads the content of the journal's file.
func Decode(content []byte) (Journal, error) {
	var j Journal
	if err := decode(content, &j); err != nil {
		return Journal{}, fmt.Errorf("journal: %w", err)
	}
	if err := j.check(); err != nil {
		return Journal{}, fmt.Errorf("journal: %w", err)
	}
	return j, nil
}

// decode reads one JSON value without unknown fields.
func decode(content []byte, into any) error {
	decoder := json.NewDecoder(bytes.NewReader(content))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(into); err != nil {
		return fmt.Errorf("expected the record that this version of the daemon writes: %w", err)
	}
	if decoder.More() {
		return errors.New("expected one record, found more")
	}
	return nil
}

func (m Manifest) check() error {
	if m.Version != version {
		return fmt.Errorf("expected version %d, found %d; run the version of the daemon that has written it", version, m.Version)
	}
	if m.ConfigDigest != "" && !plan.IsDigest(m.ConfigDigest) {
		return errors.New("configDigest: expected a SHA-256")
	}
	for name, managed := range m.Managed {
		if why := plan.CheckPath(name); why != "" {
			return errors.New(why)
		}
		if err := errors.Join(checkState(managed.State), checkState(managed.Original)); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
	}
	return nil
}

func (j Journal) check() error {
	if j.Version != version {
		return fmt.Errorf("expected version %d, found %d; run the version of the daemon that has written it", version, j.Version)
	}
	if j.ID == "" || strings.ContainsFunc(j.ID, func(r rune) bool { return (r < '0' || r > '9') && (r < 'a' || r > 'z') }) {
		return errors.New("id: expected digits and lower-case letters")
	}
	if j.To.Transaction != j.ID || j.From.Transaction == j.ID {
		return errors.New("expected the journal's ID on the manifest after it, and on no other")
	}
	if err := errors.Join(j.From.check(), j.To.check()); err != nil {
		return err
	}
	for _, step := range j.Steps {
		if why := plan.CheckPath(step.Path); why != "" {
			return errors.New(why)
		}
		if err := errors.Join(checkState(step.Before), checkState(step.After)); err != nil {
			return fmt.Errorf("%s: %w", step.Path, err)
		}
	}
	for _, directory := range j.Directories {
		if why := plan.CheckPath(directory.Path); why != "" {
			return errors.New(why)
		}
	}
	if !slices.IsSortedFunc(j.Directories, func(a, b plan.Directory) int { return strings.Compare(a.Path, b.Path) }) {
		return errors.New("directories: expected parents first")
	}
	return nil
}

// checkState returns an error for a state that no transaction can restore.
func checkState(s plan.State) error {
	switch s.Kind {
	case plan.Absent:
	case plan.File:
		if !plan.IsDigest(s.Digest) {
			return errors.New("digest: expected a SHA-256")
		}
	case plan.Link:
		if s.Target == "" {
			return errors.New("target: expected the target of a link")
		}
	case plan.Folder, plan.Other:
		return fmt.Errorf("kind: expected absent, file or link, found %s", s.Kind)
	default:
		return fmt.Errorf("kind: expected absent, file or link, found %q", s.Kind)
	}
	return nil
}
