package transaction

import (
	"errors"
	"fmt"
	"maps"
	"path"
	"slices"

	"github.com/machine-controller-fleet/machine-controller-fleet/internal/machineconfig/daemon/journal"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/machineconfig/daemon/plan"
)

// Change describes the work of Apply.
type Change struct {
	// ID is unique on the machine: digits and lower-case letters.
	ID     string
	BootID string
	// Config is the name of the config, and Content its content, which is kept.
	Config  string
	Content []byte
	Plan    plan.Plan
	Claims  []plan.Claim
	Actions plan.Actions
	// Contents are those of the files of the plan, by digest.
	Contents map[string][]byte
}

// Apply turns the tree and the manifest into those of a change. On an error both are as before,
// unless Undo has failed as well; then Recover has to be called. The transaction stays open until
// Finish or Undo.
func (s *Store) Apply(c Change) error {
	if s.journal != nil {
		return errors.New("a transaction is open; expected Recover to be called first")
	}
	if len(c.Plan.Refused) > 0 {
		return fmt.Errorf("the plan has %d refusals; expected none", len(c.Plan.Refused))
	}
	j := journal.Journal{
		ID: c.ID, BootID: c.BootID, From: s.manifest,
		To:          journal.Manifest{Config: c.Config, ConfigDigest: plan.Digest(c.Content), Transaction: c.ID, Managed: c.Plan.Managed},
		Directories: c.Plan.Directories, Steps: c.Plan.Steps, Claims: c.Claims, Actions: c.Actions,
	}
	if err := s.stage(j, c); err != nil {
		return err
	}
	if err := s.open(j); err != nil {
		return s.undone(err)
	}
	if err := s.carryOut(j); err != nil {
		return s.undone(err)
	}
	if err := s.verify(); err != nil {
		return s.undone(err)
	}
	if err := s.commit(j.To); err != nil {
		return s.undone(err)
	}
	return nil
}

// undone undoes the open transaction after an error, and returns the error.
func (s *Store) undone(err error) error {
	if undoErr := s.undo(nil); undoErr != nil {
		return fmt.Errorf("%w; undoing it has failed as well and is repeated: %w", err, undoErr)
	}
	return err
}

// stage stores the contents that the steps place and those that they replace. A file that has
// changed since it was observed is an error: the plan does not fit any more.
func (s *Store) stage(j journal.Journal, c Change) error {
	contents := map[string][]byte{j.To.ConfigDigest: c.Content}
	for _, step := range j.Steps {
		if step.Before.Kind == plan.File {
			content, _, err := s.fs.ReadFile(step.Path, maxFile)
			if err != nil {
				return fmt.Errorf("back up: %w", err)
			}
			if plan.Digest(content) != step.Before.Digest {
				return fmt.Errorf("%s has changed since it was read; the change is planned again", step.Path)
			}
			contents[step.Before.Digest] = content
		}
		if step.After.Kind != plan.File {
			continue
		}
		content, ok := c.Contents[step.After.Digest]
		if !ok { // what the machine had there before any config
			stored, err := s.Object(step.After.Digest)
			if err != nil {
				return fmt.Errorf("%s: %w", step.Path, err)
			}
			content = stored
		}
		contents[step.After.Digest] = content
	}
	for digest := range journal.Objects(s.manifest, nil) {
		if _, ok := contents[digest]; !ok {
			continue
		}
		delete(contents, digest) // it is durable since an earlier transaction
	}
	return s.put(contents)
}

// carryOut applies the changes of the tree, and then syncs them.
func (s *Store) carryOut(j journal.Journal) error {
	for _, directory := range j.Directories {
		if err := s.mkdir(directory); err != nil {
			return err
		}
	}
	for i, step := range j.Steps {
		if err := s.place(step.Path, j.TemporaryName(i), step.After); err != nil {
			return err
		}
	}
	return s.syncFolders(j)
}

// syncFolders persists all renames and removals of a transaction.
func (s *Store) syncFolders(j journal.Journal) error {
	folders := map[string]bool{}
	for _, step := range j.Steps {
		folders[path.Dir(step.Path)] = true
	}
	for _, folder := range slices.Sorted(maps.Keys(folders)) {
		if err := s.sync(folder); err != nil {
			return err
		}
	}
	return nil
}

// verify compares the tree with the open journal.
func (s *Store) verify() error {
	expected := maps.Clone(s.journal.To.Managed)
	if expected == nil {
		expected = map[string]plan.Managed{}
	}
	for _, step := range s.journal.Steps {
		expected[step.Path] = plan.Managed{State: step.After}
	}
	messages, err := s.drift(expected)
	if err != nil {
		return err
	}
	if len(messages) > 0 {
		return fmt.Errorf("verification: %d paths are not as written, the first: %s", len(messages), messages[0])
	}
	return nil
}

// Drift returns a message for each path that is not as the applied config requests.
func (s *Store) Drift() ([]string, error) { return s.drift(s.manifest.Managed) }

func (s *Store) drift(managed map[string]plan.Managed) ([]string, error) {
	observed, err := Observe(s.fs, slices.Sorted(maps.Keys(managed)))
	if err != nil {
		return nil, err
	}
	return plan.Drift(managed, observed.Paths), nil
}

// Recover undoes a transaction that was interrupted before its commit, and returns what has to be
// done now: Rest or Continue.
func (s *Store) Recover() (journal.Next, error) {
	if err := s.read(); err != nil {
		return "", err
	}
	if journal.After(s.manifest, s.journal) == journal.Undo {
		if err := s.undo(s.manifest.Failure); err != nil {
			return "", err
		}
	}
	return journal.After(s.manifest, s.journal), nil
}

// Finish ends the open transaction: what follows its commit has succeeded.
func (s *Store) Finish() error {
	if journal.After(s.manifest, s.journal) != journal.Continue {
		return errors.New("no committed transaction is open")
	}
	return s.close()
}

// Undo ends the open transaction by restoring what was there before. The reason is recorded, so
// that the same config is not tried without end. bootID is that of now: if the machine has booted
// into the change, it has to boot again.
func (s *Store) Undo(reason, bootID string) error {
	if s.journal == nil {
		return errors.New("no transaction is open")
	}
	failure := &journal.Failure{ConfigDigest: s.journal.To.ConfigDigest, Attempts: 1, Reason: reason}
	if last := s.journal.From.Failure; last != nil && last.ConfigDigest == failure.ConfigDigest {
		failure.Attempts += last.Attempts
	}
	if s.journal.Actions.Reboot && bootID != s.journal.BootID {
		failure.BootID = bootID
	}
	return s.undo(failure)
}

// undo restores what was there before the open transaction. The manifest is first, so that a crash
// in the middle is undone further.
func (s *Store) undo(failure *journal.Failure) error {
	if s.journal == nil {
		return nil // its journal was not written, and nothing was changed
	}
	j := *s.journal
	before := j.From
	if failure != nil {
		before.Failure = failure
	}
	if err := s.commit(before); err != nil {
		return err
	}
	for i, step := range slices.Backward(j.Steps) {
		if err := s.restore(step, j.TemporaryName(i)); err != nil {
			return err
		}
	}
	if err := s.syncFolders(j); err != nil {
		return err
	}
	for _, directory := range slices.Backward(j.Directories) {
		if err := s.rmdir(directory.Path); err != nil {
			return err
		}
	}
	return s.close()
}
