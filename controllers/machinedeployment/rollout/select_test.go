package rollout

import (
	"cmp"
	"slices"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
)

// inPlaceStory returns the story of a deployment whose machines are updated in place; the words are
// those of TestStories.
func inPlaceStory(t *testing.T, deployment string, sets ...string) *story {
	t.Helper()
	st := newStory(t)
	st.deployment([]string{"strategy=InPlaceUpdate", "revision=2"})
	st.deployment(strings.Fields(deployment))
	for _, set := range sets {
		st.set(strings.Fields(set))
	}
	return st
}

// Any client may have written the list: one that is invalid counts as none, also where its
// beginning is valid.
func TestSelectingTextOfAnyClientIsReadAsAWhole(t *testing.T) {
	a, b := chosen{"a", "1"}, chosen{"b", "2"}
	long := "[" + strings.TrimSuffix(strings.Repeat(`{"name":"a","uid":"1"},`, mostChosen+1), ",") + "]"
	for text, want := range map[string][]chosen{
		`[{"name":"a","uid":"1"},{"name":"b","uid":"2"}]`: {a, b}, `[]`: {}, ``: nil, `{}`: nil, `[{"name":"a","uid":"1"},{"name":2}]`: nil,
		long: nil,
	} {
		d := deployment(1)
		d.Annotations = map[string]string{v1alpha1.AnnotationSelecting: text}
		if got := selecting(d); !slices.Equal(got, want) {
			t.Errorf("%.100s: got %v, want %v", text, got, want)
		}
	}
}

func TestSelectingNoneLeavesNoTrace(t *testing.T) {
	d := withSelecting(deployment(1), []chosen{{"a", "1"}})
	if got := selecting(d); len(got) != 1 {
		t.Errorf("%v are about to be selected, want one", got)
	}
	if text, noted := withSelecting(d, nil).Annotations[v1alpha1.AnnotationSelecting]; noted {
		t.Errorf("the annotation is %q, want none", text)
	}
}

// TestSelectedMachineThatIsNotShownIsReadBeforeItIsForgotten: a machine that was about to be
// selected, and that the cache does not show, is forgotten only once the API server has returned no
// such machine.
func TestSelectedMachineThatIsNotShownIsReadBeforeItIsForgotten(t *testing.T) {
	for name, tc := range map[string]struct {
		live map[types.UID][]*metav1.ObjectMeta
		do   Action
		left int // machines that are about to be selected
	}{
		"the API server was not read": {nil, ReadLive, 1},
		"it has the machine": {
			map[types.UID][]*metav1.ObjectMeta{"a": {{UID: "other"}, {UID: "a-7"}}, "b": {{UID: "another"}}}, Rest, 1,
		},
		"it has others": {map[types.UID][]*metav1.ObjectMeta{"a": {{UID: "other"}}}, Save, 0},
		"it has none":   {map[types.UID][]*metav1.ObjectMeta{}, Save, 0},
	} {
		w := inPlaceStory(t, "selecting=a-7", "a size=2 for=3 kept tainted closed Running/candidate Running/candidate",
			"b size=2 revision=2 kept Running/joined Pending").w
		if tc.live != nil {
			w.Live = &Live{Machines: tc.live}
		}
		v := Decide(w)
		d := cmp.Or(v.Deployment, w.Deployment)
		if left := len(selecting(d)); v.Do != tc.do || left != tc.left {
			t.Errorf("%s: %s, and %d are about to be selected; want %s, %d", name, v.Do, left, tc.do, tc.left)
		}
	}
}

// TestSelectionOfManyIsBounded: what is written can be read again.
func TestSelectionOfManyIsBounded(t *testing.T) {
	st := inPlaceStory(t, "replicas=1010 surge=0 unavailable=1010",
		"a size=1010"+strings.Repeat(" Running/candidate", mostChosen+10), "b size=0 revision=2")
	v, decided := inPlaceUpdates{countSets(st.w)}.selectNodes()
	if !decided || v.Do != Save {
		t.Fatalf("decided %s, want to save what is selected", v.Do)
	}
	if n := len(selecting(v.Deployment)); n != mostChosen {
		t.Errorf("%d are about to be selected, want %d", n, mostChosen)
	}
}

// The new set could not be created: there is no template to update to.
func TestNoMachineIsSelectedWithoutANewSet(t *testing.T) {
	st := inPlaceStory(t, "unavailable=1", "a size=3 Running/candidate Running/candidate Running/candidate")
	st.w.Done.CreateError = "no"
	if done := st.play(); strings.Contains(done, v1alpha1.EventSelectedForUpdate) {
		t.Errorf("done:\n%s", done)
	}
}
