package rollout

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
)

// ago is a time so long before the story begins, in words; what is no duration stays as it is.
func (s *story) ago(text string) string {
	d, err := time.ParseDuration(text)
	if err != nil {
		return text
	}
	return inWords(born.Add(-d))
}

// sinceBorn is a time in the words of a story; what is none stays as it is.
func sinceBorn(text string) string {
	at, err := time.Parse(time.RFC3339, text)
	if err != nil {
		return text
	}
	return strings.ReplaceAll(born.Sub(at).String(), "m0s", "m")
}

// name has the autoscaler name machines, or say when it has changed the replicas.
func (s *story) name(key, value string) {
	d := s.w.Deployment
	if key == "changed" {
		metav1.SetMetaDataAnnotation(&d.ObjectMeta, v1alpha1.AnnotationLastReplicaChangeByScaler, s.ago(value))
		return
	}
	var entries []string
	for word := range strings.FieldsSeq(value) {
		machine, ago, timed := strings.Cut(word, "~")
		if timed {
			machine += "~" + s.ago(ago)
		}
		entries = append(entries, machine)
	}
	metav1.SetMetaDataAnnotation(&d.ObjectMeta, v1alpha1.AnnotationTriggerDeletion, strings.Join(entries, ","))
}

// reportNames reports what has changed in the list of named machines.
func (s *story) reportNames(was, is *v1alpha1.MachineDeployment) {
	before, had := was.Annotations[v1alpha1.AnnotationTriggerDeletion]
	now, has := is.Annotations[v1alpha1.AnnotationTriggerDeletion]
	switch {
	case had && !has:
		s.report("  no machine is named any more")
	case before != now:
		var entries []string
		for entry := range strings.SplitSeq(now, ",") {
			machine, since, _ := strings.Cut(entry, "~")
			entries = append(entries, machine+"~"+sinceBorn(since))
		}
		s.report("  named are %s", strings.Join(entries, " "))
	}
	if since := is.Annotations[v1alpha1.AnnotationLastReplicaChangeByScaler]; since !=
		was.Annotations[v1alpha1.AnnotationLastReplicaChangeByScaler] {
		s.report("  the replicas were changed %s ago", sinceBorn(since))
	}
}

// readLive has the API server show what the cache shows, but for what is unseen or has vanished.
func (s *story) readLive() {
	s.w.Live = liveOf(s.w.Machines)
	for _, set := range s.w.Owned {
		s.w.Live.Machines[set.UID] = slices.DeleteFunc(s.w.Live.Machines[set.UID], func(m *metav1.ObjectMeta) bool {
			return slices.Contains(s.vanished, m.Name)
		})
		for _, name := range slices.Concat(s.unseen, s.left) {
			if strings.HasPrefix(name, string(set.UID)) {
				s.w.Live.Machines[set.UID] = append(s.w.Live.Machines[set.UID], &metav1.ObjectMeta{Name: name})
			}
		}
	}
}

// mark writes the metadata of a machine.
func (s *story) mark(desired *v1alpha1.Machine) {
	if at, ok := desired.Annotations[v1alpha1.AnnotationUncordonAt]; ok {
		s.report("spare %s: uncordon its Node in %s", desired.Name, strings.TrimPrefix(sinceBorn(at), "-"))
	} else {
		s.report("mark %s: %s ago, priority %s", desired.Name, sinceBorn(desired.Annotations[v1alpha1.AnnotationMarkedForDeletionTime]),
			desired.Annotations[v1alpha1.AnnotationPriority])
	}
	for _, machines := range s.w.Live.Machines {
		for i, m := range machines {
			if m.Name == desired.Name {
				machines[i] = &desired.ObjectMeta
			}
		}
	}
}

// A list that was edited by hand names those machines whose entries are valid, each once.
func TestReadNamed(t *testing.T) {
	const at = "2026-01-02T03:04:05Z"
	for text, want := range map[string]string{
		"":                            "",
		"a":                           "a",
		"a,b":                         "a b",
		"a~" + at:                     "a~" + at,
		" a~" + at + " , b":           "a~" + at + " b",
		"a~" + at + ",a":              "a~" + at,
		"a,a~" + at:                   "a",
		"a~yesterday,b~" + at:         "b~" + at,
		"a~,b":                        "b",
		"~" + at + ",,b":              "b",
		"a~" + at + "~" + at + ",b":   "b",
		"a~2026-01-02T04:04:05+01:00": "a~2026-01-02T04:04:05+01:00",
		"a~2026-01-02T03:04:05.5Z,b~1767323045,c": "a~2026-01-02T03:04:05.5Z c",
	} {
		d := deployment(1)
		metav1.SetMetaDataAnnotation(&d.ObjectMeta, v1alpha1.AnnotationTriggerDeletion, text)
		var got []string
		for _, n := range readNamed(d) {
			word := n.machine
			if n.since != "" {
				word += "~" + n.since
			}
			if n.at.IsZero() != (n.since == "") {
				t.Errorf("%q: %s is since %v, %q", text, n.machine, n.at, n.since)
			}
			got = append(got, word)
		}
		if fmt.Sprint(strings.Join(got, " ")) != want {
			t.Errorf("%q names %v, want %s", text, got, want)
		}
	}
}

// Regardless of what the list says, what is written in its place names the same machines, each with
// a time, and says the same again.
func FuzzReadNamed(f *testing.F) {
	for _, seed := range []string{"", "a", "a,b", "a~2026-01-02T03:04:05Z,b", "a~b~c", "~,", " a , ~2026-01-02T03:04:05Z"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		d := deployment(1)
		metav1.SetMetaDataAnnotation(&d.ObjectMeta, v1alpha1.AnnotationTriggerDeletion, text)
		before := readNamed(d)
		upgradeNamed(d, born)
		after := readNamed(d)
		writeNamed(d, after)
		again := readNamed(d)
		if len(before) != len(after) || !slices.Equal(after, again) {
			t.Fatalf("%q names %v, then %v, and then %v", text, before, after, again)
		}
		for i, n := range after {
			if n.machine != before[i].machine || n.machine == "" || n.since == "" {
				t.Errorf("%q names %+v, and then %+v", text, before[i], n)
			}
		}
	})
}

// A tenant can write on his deployments that any number of Nodes is about to be selected.
func TestSelectingMoreThanCanBe(t *testing.T) {
	for n, want := range map[int]int{mostChosen: mostChosen, mostChosen + 1: 0} {
		d := withSelecting(&v1alpha1.MachineDeployment{}, make([]chosen, n))
		if got := len(selecting(d)); got != want {
			t.Errorf("%d of %d are being selected, want %d", got, n, want)
		}
	}
}
