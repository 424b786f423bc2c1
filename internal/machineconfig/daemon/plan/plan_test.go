package plan

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/machine-controller-fleet/machine-controller-fleet/internal/testkit/worlds"
)

// file returns the state of a file with that content.
func file(content string) State {
	return State{Kind: File, Mode: 0o644, Digest: Digest([]byte(content)), Size: int64(len(content))}
}

func absent() State { return State{Kind: Absent} }

func entry(s State) Entry { return Entry{Want: s, Field: "the field"} }

// On a machine that was installed with the configuration, only what differs from it was there
// before.
func TestPlanOfAProvisionedMachine(t *testing.T) {
	w := World{
		Desired:       map[string]Entry{"/same": entry(file("a")), "/other": entry(file("b"))},
		Observed:      Observed{Paths: map[string]State{"/same": file("a"), "/other": file("c")}},
		IsProvisioned: true,
	}
	managed := Compute(w).Managed
	if got := managed["/same"].Original; got != absent() {
		t.Errorf("the original of a file that was installed is %v", got)
	}
	if got := managed["/other"].Original; got != file("c") {
		t.Errorf("the original of a file that differs is %v", got)
	}
	w.IsProvisioned = false
	if got := Compute(w).Managed["/same"].Original; got != file("a") {
		t.Errorf("the original of a file of the machine is %v", got)
	}
}

func TestCompute(t *testing.T) {
	link := State{Kind: Link, Target: "/dev/null"}
	for _, tc := range []struct {
		name     string
		managed  map[string]Managed
		desired  map[string]Entry
		observed Observed
		want     []Step
		dirs     []string
	}{
		{
			name:     "a new file in new folders",
			desired:  map[string]Entry{"/etc/x/y/f": entry(file("new"))},
			observed: Observed{Folders: map[string]Kind{"/etc": Folder, "/etc/x": Absent, "/etc/x/y": Absent}},
			want:     []Step{{Path: "/etc/x/y/f", Before: absent(), After: file("new")}},
			dirs:     []string{"/etc/x", "/etc/x/y"},
		},
		{
			name:     "what is there already needs nothing",
			desired:  map[string]Entry{"/f": entry(file("a")), "/l": entry(link), "/n": entry(absent())},
			observed: Observed{Paths: map[string]State{"/f": file("a"), "/l": link}},
		},
		{
			name:     "a link is replaced by a file, and a file is removed",
			desired:  map[string]Entry{"/l": entry(file("a")), "/f": entry(absent())},
			observed: Observed{Paths: map[string]State{"/f": file("f"), "/l": link}},
			want:     []Step{{Path: "/f", Before: file("f"), After: absent()}, {Path: "/l", Before: link, After: file("a")}},
		},
		{
			name: "what no config has any more gets its original",
			managed: map[string]Managed{
				"/f": {State: file("a"), Original: file("original"), Unit: "u"}, "/n": {State: file("b"), Original: absent()},
			},
			observed: Observed{Paths: map[string]State{"/f": file("edited"), "/n": file("b")}},
			want: []Step{
				{Path: "/f", Before: file("edited"), After: file("original"), Unit: "u"},
				{Path: "/n", Before: file("b"), After: absent()},
			},
		},
		{
			name:     "what differs is written again",
			managed:  map[string]Managed{"/f": {State: file("a"), Original: absent()}},
			desired:  map[string]Entry{"/f": entry(file("a"))},
			observed: Observed{Paths: map[string]State{"/f": file("edited")}},
			want:     []Step{{Path: "/f", Before: file("edited"), After: file("a")}},
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			p := Compute(World{Managed: tc.managed, Desired: tc.desired, Observed: tc.observed})
			if len(p.Refused) > 0 {
				t.Fatalf("refused: %v", p.Refused)
			}
			if diff := cmp.Diff(tc.want, p.Steps); diff != "" {
				t.Errorf("steps (-want +got):\n%s", diff)
			}
			var dirs []string
			for _, d := range p.Directories {
				dirs = append(dirs, d.Path)
			}
			if diff := cmp.Diff(tc.dirs, dirs); diff != "" {
				t.Errorf("folders (-want +got):\n%s", diff)
			}
		})
	}
}

func TestComputeRefuses(t *testing.T) {
	special := file("a")
	special.Mode = 0o4755
	for _, tc := range []struct {
		name     string
		managed  map[string]Managed
		desired  map[string]Entry
		observed Observed
		want     string
	}{
		{name: "a relative path", desired: map[string]Entry{"etc/x": entry(file("a"))}, want: "absolute path"},
		{name: "a path that climbs", desired: map[string]Entry{"/etc/../x": entry(file("a"))}, want: "absolute path"},
		{name: "a zero byte", desired: map[string]Entry{"/etc/\x00": entry(file("a"))}, want: "zero byte"},
		{name: "a line break", desired: map[string]Entry{"/etc/a\nb": entry(file("a"))}, want: "printable"},
		{name: "a control character", desired: map[string]Entry{"/etc/a\x1b[2J": entry(file("a"))}, want: "printable"},
		{name: "text that turns around", desired: map[string]Entry{"/etc/\u202egnp.sh": entry(file("a"))}, want: "printable"},
		{name: "no text", desired: map[string]Entry{"/etc/\xff": entry(file("a"))}, want: "printable"},
		{name: "a long name", desired: map[string]Entry{"/" + strings.Repeat("x", 256): entry(file("a"))}, want: "too long"},
		{name: "the daemon's records", desired: map[string]Entry{"/state/manifest": entry(file("a"))}, want: "no config may change /state"},
		{name: "the folder above the records", desired: map[string]Entry{"/state": entry(file("a"))}, want: "no config may change /state"},
		{name: "setuid", desired: map[string]Entry{"/f": entry(special)}, want: "at most 0777"},
		{name: "a file as a folder", desired: map[string]Entry{"/f": entry(file("a")), "/f/g": entry(file("a"))}, want: "has to be a folder"},
		{
			name: "a link above", desired: map[string]Entry{"/l/f": entry(file("a"))},
			observed: Observed{Folders: map[string]Kind{"/l": Link}}, want: "symbolic link",
		},
		{
			name: "a file above", desired: map[string]Entry{"/l/f": entry(file("a"))},
			observed: Observed{Folders: map[string]Kind{"/l": File}}, want: "expected a folder at /l, found file",
		},
		{name: "a folder that was not looked at", desired: map[string]Entry{"/l/f": entry(file("a"))}, want: "found other"},
		{
			name: "a folder there", desired: map[string]Entry{"/f": entry(file("a"))},
			observed: Observed{Paths: map[string]State{"/f": {Kind: Folder}}}, want: "found folder",
		},
		{
			name: "a folder where an original is restored", managed: map[string]Managed{"/f": {State: file("a"), Original: absent()}},
			observed: Observed{Paths: map[string]State{"/f": {Kind: Folder}}}, want: "found folder",
		},
		{
			name: "another file, which is kept", desired: map[string]Entry{"/f": {Want: file("a"), KeepsExisting: true}},
			observed: Observed{Paths: map[string]State{"/f": file("b")}}, want: "overwrite is false",
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			p := Compute(World{Managed: tc.managed, Desired: tc.desired, Observed: tc.observed, Reserved: []string{"/state"}})
			if len(p.Refused) != 1 || !strings.Contains(p.Refused[0].Message, tc.want) {
				t.Errorf("expected one refusal with %q, got %v", tc.want, p.Refused)
			}
		})
	}
}

func TestKeepExistingAppliesToFilesOfOthersOnly(t *testing.T) {
	p := Compute(World{
		Managed:  map[string]Managed{"/f": {State: file("a"), Original: absent()}},
		Desired:  map[string]Entry{"/f": {Want: file("b"), KeepsExisting: true}, "/g": {Want: file("g"), KeepsExisting: true}},
		Observed: Observed{Paths: map[string]State{"/f": file("a"), "/g": file("g")}},
	})
	if len(p.Refused) > 0 || len(p.Steps) != 1 {
		t.Errorf("got %+v", p)
	}
}

func TestCreatedFoldersHaveOwnerAndMode(t *testing.T) {
	p := Compute(World{
		Desired:     map[string]Entry{"/home/u/.ssh/authorized_keys": entry(file("k"))},
		Directories: map[string]Directory{"/home/u/.ssh": {Path: "/home/u/.ssh", Mode: 0o700, UID: 7, GID: 8}},
		UID:         1, GID: 2,
		Observed: Observed{Folders: map[string]Kind{"/home": Folder, "/home/u": Absent, "/home/u/.ssh": Absent}},
	})
	want := []Directory{{Path: "/home/u", Mode: 0o755, UID: 1, GID: 2}, {Path: "/home/u/.ssh", Mode: 0o700, UID: 7, GID: 8}}
	if diff := cmp.Diff(want, p.Directories); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// TestPlansOfGeneratedTrees: a plan makes the tree the desired one, a second plan has nothing to
// do, and the plan of an empty config makes the tree what it was before all of them.
func TestPlansOfGeneratedTrees(t *testing.T) {
	paths := []string{"/a", "/b", "/d/a", "/d/e/a"}
	state := rapid.Custom(func(t *rapid.T) State {
		switch rapid.IntRange(0, 2).Draw(t, "kind") {
		case 0:
			return absent()
		case 1:
			return State{Kind: Link, Target: rapid.SampledFrom([]string{"x", "y"}).Draw(t, "target")}
		}
		return file(rapid.SampledFrom([]string{"1", "2"}).Draw(t, "content"))
	})
	worlds.Check(t, 3, func(t *rapid.T) {
		folders := map[string]Kind{"/d": Folder, "/d/e": Folder}
		before := map[string]State{}
		for _, p := range paths {
			before[p] = state.Draw(t, "before")
		}
		tree, managed := maps.Clone(before), map[string]Managed{}
		for range rapid.IntRange(1, 4).Draw(t, "configs") {
			desired := map[string]Entry{}
			for _, p := range paths {
				if rapid.Bool().Draw(t, "has") {
					desired[p] = entry(state.Draw(t, "desired"))
				}
			}
			w := World{Managed: managed, Desired: desired, Observed: Observed{Paths: tree, Folders: folders}}
			p := Compute(w)
			carryOut(t, p, tree)
			managed = p.Managed
			for _, name := range paths {
				want := before[name]
				if e, ok := desired[name]; ok {
					want = e.Want
				}
				if tree[name] != want {
					t.Fatalf("%s: want %v, found %v", name, want, tree[name])
				}
			}
			w.Managed, w.Observed.Paths = managed, tree
			if again := Compute(w); len(again.Steps) > 0 {
				t.Fatalf("a second plan has steps: %v", again.Steps)
			}
			if drift := Drift(managed, tree); len(drift) > 0 {
				t.Fatalf("drift after a plan: %v", drift)
			}
		}
		carryOut(t, Compute(World{Managed: managed, Observed: Observed{Paths: tree, Folders: folders}}), tree)
		if diff := cmp.Diff(before, tree); diff != "" {
			t.Fatalf("without a config (-before +found):\n%s", diff)
		}
	})
}

func carryOut(t *rapid.T, p Plan, tree map[string]State) {
	if len(p.Refused) > 0 {
		t.Fatalf("refused: %v", p.Refused)
	}
	if !slices.IsSortedFunc(p.Steps, func(a, b Step) int { return strings.Compare(a.Path, b.Path) }) {
		t.Fatal("steps are not sorted")
	}
	for _, s := range p.Steps {
		if tree[s.Path] != s.Before {
			t.Fatalf("%s: before is %v, found %v", s.Path, s.Before, tree[s.Path])
		}
		tree[s.Path] = s.After
	}
}

func TestDriftNamesWhatDiffersAndNoContent(t *testing.T) {
	other := file("a")
	other.Mode = 0o600
	owned := file("a")
	owned.UID = 7
	for _, tc := range []struct {
		want, found State
		message     string
	}{
		{file("secret"), file("password"), "/f: expected content of 6 bytes with SHA-256 2bb80d537b1d, found 8 bytes with 5e884898da28"},
		{file("a"), other, "/f: expected mode 0644, found 0600"},
		{file("a"), owned, "/f: expected owner 0:0, found 7:0"},
		{file("a"), absent(), "/f: expected file, found absent"},
		{absent(), file("a"), "/f: expected absent, found file"},
		{State{Kind: Link, Target: "x"}, State{Kind: Link, Target: "y"}, "/f: the link has another target"},
	} {
		got := Drift(map[string]Managed{"/f": {State: tc.want}, "/same": {State: file("b")}},
			map[string]State{"/f": tc.found, "/same": file("b")})
		if diff := cmp.Diff([]string{tc.message}, got); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
	}
}

func TestCompare(t *testing.T) {
	claims, refused := Compare(
		map[string]string{"same": "1", "osImageURL": `"old"`, "disks": "[1]", "gone": "1"},
		map[string]string{"same": "1", "osImageURL": `"secret"`, "disks": "[2]", "new": "1"}, []string{"osImageURL"})
	if diff := cmp.Diff([]Claim{{Field: "osImageURL", Old: `"old"`, New: `"secret"`}}, claims); diff != "" {
		t.Errorf("claims (-want +got):\n%s", diff)
	}
	var fields []string
	for _, r := range refused {
		fields = append(fields, r.Field)
		if strings.Contains(fmt.Sprint(r), "[2]") {
			t.Errorf("a message has the value of a field: %v", r)
		}
	}
	if diff := cmp.Diff([]string{"disks", "gone", "new"}, fields); diff != "" {
		t.Errorf("refused (-want +got):\n%s", diff)
	}
}

func TestFoldersParentsFirst(t *testing.T) {
	want := []string{"/a", "/a/b", "/c"}
	if diff := cmp.Diff(want, Folders([]string{"/c/x", "/a/b/x", "/a/y", "/top"})); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}
