package journal

import (
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/machine-controller-fleet/machine-controller-fleet/internal/machineconfig/daemon/plan"
)

func file(content string) plan.State {
	return plan.State{Kind: plan.File, Mode: 0o644, Digest: plan.Digest([]byte(content)), Size: int64(len(content))}
}

// example is a journal with every field.
func example() Journal {
	return Journal{
		Version: version, ID: "t2", BootID: "boot",
		From: Manifest{
			Version: version, Config: "a", ConfigDigest: plan.Digest([]byte("a")), Transaction: "t1",
			Managed: map[string]plan.Managed{"/f": {State: file("1"), Original: file("0"), Unit: "u", Keys: true}},
			Failure: &Failure{ConfigDigest: plan.Digest([]byte("b")), Attempts: 1, Reason: "why", BootID: "boot"},
		},
		To: Manifest{
			Version: version, Config: "b", ConfigDigest: plan.Digest([]byte("b")), Transaction: "t2",
			Managed: map[string]plan.Managed{"/f": {State: file("2"), Original: file("0")}},
		},
		Directories: []plan.Directory{{Path: "/d", Mode: 0o755}, {Path: "/d/e", Mode: 0o700, UID: 1, GID: 2}},
		Steps: []plan.Step{{Path: "/d/e/f", Before: plan.State{Kind: plan.Link, Target: "x"}, After: file("2")}, {
			Path: "/f", Before: file("edited"), After: plan.State{Kind: plan.Absent},
		}},
		Claims:  []plan.Claim{{Field: "osImageURL", Old: "1", New: "2"}},
		Actions: plan.Actions{Reboot: true, DaemonReload: true, Restart: []string{"a"}, Reload: []string{"b"}},
	}
}

func TestRecordsAreReadAsWritten(t *testing.T) {
	content, err := Encode(example())
	if err != nil {
		t.Fatal(err)
	}
	got, err := Decode(content)
	if diff := cmp.Diff(example(), got); err != nil || diff != "" {
		t.Errorf("%v (-want +got):\n%s", err, diff)
	}
	if content, err = EncodeManifest(example().From); err != nil {
		t.Fatal(err)
	}
	manifest, err := DecodeManifest(content)
	if diff := cmp.Diff(example().From, manifest); err != nil || diff != "" {
		t.Errorf("%v (-want +got):\n%s", err, diff)
	}
}

func TestAfter(t *testing.T) {
	j := example()
	for _, tc := range []struct {
		manifest Manifest
		journal  *Journal
		want     Next
	}{
		{Manifest{}, nil, Rest}, {j.To, nil, Rest}, {Manifest{}, &j, Undo}, {j.From, &j, Undo}, {j.To, &j, Continue},
	} {
		if got := After(tc.manifest, tc.journal); got != tc.want {
			t.Errorf("manifest of %q: got %s, want %s", tc.manifest.Transaction, got, tc.want)
		}
	}
}

func TestObjectsAreAllThatRestoringNeeds(t *testing.T) {
	j := example()
	var want []string
	for _, content := range []string{"a", "b", "0", "2", "edited"} {
		want = append(want, plan.Digest([]byte(content)))
	}
	slices.Sort(want)
	if diff := cmp.Diff(want, slices.Sorted(maps.Keys(Objects(j.From, &j)))); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestDecodeRejectsWhatNoDaemonWrites(t *testing.T) {
	for name, damage := range map[string]func(j *Journal){
		"no ID":                    func(j *Journal) { j.ID = "" },
		"an ID that is a path":     func(j *Journal) { j.ID, j.To.Transaction = "../x", "../x" },
		"another transaction":      func(j *Journal) { j.To.Transaction = "t3" },
		"the same one before":      func(j *Journal) { j.From.Transaction = "t2" },
		"a step that climbs":       func(j *Journal) { j.Steps[0].Path = "/d/../f" },
		"a step without a digest":  func(j *Journal) { j.Steps[0].After.Digest = "" },
		"a digest that is a path":  func(j *Journal) { j.Steps[0].After.Digest = "../../x" },
		"a step to a folder":       func(j *Journal) { j.Steps[0].After.Kind = plan.Folder },
		"an unknown kind":          func(j *Journal) { j.Steps[0].Before.Kind = "x" },
		"a link without a target":  func(j *Journal) { j.Steps[0].Before.Target = "" },
		"a folder that climbs":     func(j *Journal) { j.Directories[0].Path = ".." },
		"children first":           func(j *Journal) { slices.Reverse(j.Directories) },
		"a managed path":           func(j *Journal) { j.To.Managed["x"] = plan.Managed{} },
		"a managed state":          func(j *Journal) { j.To.Managed["/f"] = plan.Managed{} },
		"the digest of the config": func(j *Journal) { j.To.ConfigDigest = "x" },
	} {
		j := example()
		damage(&j)
		content, err := Encode(j)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := Decode(content); err == nil {
			t.Errorf("%s: expected an error", name)
		}
	}
	good, _ := Encode(example())
	for name, content := range map[string]string{
		"another version": strings.Replace(string(good), `"version": 1`, `"version": 2`, 1),
		"a new field":     strings.Replace(string(good), `"id"`, `"x": 1, "id"`, 1),
		"two records":     string(good) + string(good),
		"half a record":   string(good[:len(good)/2]),
		"nothing":         "",
	} {
		if _, err := Decode([]byte(content)); err == nil {
			t.Errorf("%s: expected an error", name)
		}
	}
}

func TestTemporaryNameIsInTheFolderOfItsPath(t *testing.T) {
	if got := example().TemporaryName(0); got != "/d/e/.mcd-t2-0" {
		t.Error(got)
	}
}

// FuzzDecode: what is read as a journal can be written, and is the same when it is read again.
func FuzzDecode(f *testing.F) {
	good, _ := Encode(example())
	f.Add(good)
	f.Fuzz(func(t *testing.T, content []byte) {
		j, err := Decode(content)
		if err != nil {
			return
		}
		again, err := Encode(j)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := Decode(again); err != nil {
			t.Errorf("written and not read: %v\n%s", err, again)
		}
		for i := range j.Steps {
			if why := plan.CheckPath(j.TemporaryName(i)); why != "" {
				t.Error(why)
			}
		}
	})
}

// FuzzDecodeManifest: as FuzzDecode.
func FuzzDecodeManifest(f *testing.F) {
	good, _ := EncodeManifest(example().From)
	f.Add(good)
	f.Fuzz(func(t *testing.T, content []byte) {
		m, err := DecodeManifest(content)
		if err != nil {
			return
		}
		again, err := EncodeManifest(m)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := DecodeManifest(again); err != nil {
			t.Errorf("written and not read: %v\n%s", err, again)
		}
	})
}
