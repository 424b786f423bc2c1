package machinefacts

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/deletion/receipt"
)

func TestReadIntents(t *testing.T) {
	repeated := func(what string, n int) string { return strings.TrimSuffix(strings.Repeat(what+",", n), ",") }
	deletion := `{"name":"m","uid":"1"}`
	for name, tc := range map[string]struct {
		intents string
		want    Intents
		refused string // part of the error
	}{
		"none": {intents: `{}`},
		"some": {
			intents: `{"set":"s","next":5,"create":[3],"delete":[{"name":"a","uid":"1","failed":true}]}`,
			want:    Intents{Set: "s", Next: 5, Create: []int64{3}, Delete: []Deletion{{Name: "a", UID: "1", Failed: true}}},
		},
		"without a set":           {intents: `{"next":5,"create":[4]}`, want: Intents{Next: 5, Create: []int64{4}}},
		"of another set":          {intents: `{"set":"other","next":5,"create":[4],"delete":[` + deletion + `]}`},
		"empty":                   {intents: ``, refused: "expected JSON"},
		"not JSON":                {intents: `{"create":`, refused: "expected JSON"},
		"a negative next ordinal": {intents: `{"set":"s","next":-1}`, refused: "must not be negative"},
		"a negative ordinal":      {intents: `{"set":"s","next":5,"create":[-1]}`, refused: "must not be negative"},
		"the most": {
			intents: `{"next":9,"create":[` + repeated("0", MostIntents) + `]}`, want: Intents{Next: 9, Create: make([]int64, MostIntents)},
		},
		"more to create than the most":  {intents: `{"next":9,"create":[` + repeated("0", MostIntents+1) + `]}`, refused: "at most 100"},
		"more to delete than the most":  {intents: `{"next":9,"delete":[` + repeated(deletion, MostIntents+1) + `]}`, refused: "at most 100"},
		"more than the most of another": {intents: `{"set":"other","create":[` + repeated("0", MostIntents+1) + `]}`, refused: "at most 100"},
	} {
		t.Run(name, func(t *testing.T) {
			set := &v1alpha1.MachineSet{
				ObjectMeta: metav1.ObjectMeta{UID: "s", Annotations: map[string]string{v1alpha1.AnnotationIntents: tc.intents}},
			}
			got, err := ReadIntents(set)
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
			if (err != nil) != (tc.refused != "") || err != nil && !strings.Contains(err.Error(), tc.refused) {
				t.Errorf("error %v, want %q in it", err, tc.refused)
			}
		})
	}
	if in, err := ReadIntents(&v1alpha1.MachineSet{}); err != nil || in.Next != 0 {
		t.Errorf("without the annotation: %+v, %v", in, err)
	}
}

// What is written is read again, on the set that it was written on only.
func TestIntentsWrite(t *testing.T) {
	want := Intents{Set: "s", Next: 5, Create: []int64{3, 4}, Delete: []Deletion{{Name: "a", UID: "1"}}}
	for name, annotations := range map[string]map[string]string{
		"no annotations": nil, "others": {"other": "stays", v1alpha1.AnnotationIntents: "{}"},
	} {
		set := &v1alpha1.MachineSet{ObjectMeta: metav1.ObjectMeta{UID: "s", Annotations: annotations}}
		Intents{Set: "another", Next: want.Next, Create: want.Create, Delete: want.Delete}.Write(set)
		got, err := ReadIntents(set)
		if diff := cmp.Diff(want, got); diff != "" || err != nil {
			t.Errorf("%s: %v (-want +got):\n%s", name, err, diff)
		}
		if annotations != nil && set.Annotations["other"] != "stays" {
			t.Errorf("%s: annotations %v", name, set.Annotations)
		}
		set.UID = "restored"
		if got, err := ReadIntents(set); err != nil || got.Next != 0 {
			t.Errorf("%s: on another set they are %+v, %v", name, got, err)
		}
	}
}

func TestAwaited(t *testing.T) {
	set := &v1alpha1.MachineSet{ObjectMeta: metav1.ObjectMeta{Name: "set", UID: "u"}}
	created := func(ordinal int64, text string) *metav1.ObjectMeta {
		return &metav1.ObjectMeta{Name: Name(set.Name, set.UID, ordinal), Annotations: map[string]string{v1alpha1.AnnotationOrdinal: text}}
	}
	transferred := &metav1.ObjectMeta{Name: Name("other", "other-uid", 3), Annotations: map[string]string{v1alpha1.AnnotationOrdinal: "3"}}
	in := Intents{Next: 5, Create: []int64{2, 3, 4}}
	for name, tc := range map[string]struct {
		seen []*metav1.ObjectMeta
		want []int64
	}{
		"no machine is seen":                          {nil, []int64{2, 3, 4}},
		"one of them is seen, and another one":        {[]*metav1.ObjectMeta{created(3, "3"), created(1, "1")}, []int64{2, 4}},
		"the machine of an ordinal in another set":    {[]*metav1.ObjectMeta{transferred}, []int64{2, 3, 4}},
		"a machine with no ordinal, or with no valid": {[]*metav1.ObjectMeta{{Name: "m"}, created(2, "two"), created(4, "-4")}, []int64{2, 3, 4}},
		"all are seen":                                {[]*metav1.ObjectMeta{created(2, "2"), created(3, "3"), created(4, "4")}, []int64{}},
	} {
		if diff := cmp.Diff(tc.want, Awaited(in, set, tc.seen)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
	if got := Awaited(Intents{}, set, []*metav1.ObjectMeta{created(1, "1")}); len(got) > 0 {
		t.Errorf("without intents %v are awaited", got)
	}
	if !(Intents{Delete: []Deletion{{UID: "1"}}}).Deletes("1") || (Intents{Delete: []Deletion{{UID: "1"}}}).Deletes("2") {
		t.Error("want the machine 1 to be in the intents, and not 2")
	}
}

func FuzzReadIntents(f *testing.F) {
	for _, seed := range []string{"", "{}", `{"next":3,"create":[1,2]}`, `{"next":-1}`, `{"delete":[{"name":"m","uid":"u"}]}`, "[]", "null"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		set := &v1alpha1.MachineSet{}
		set.Annotations = map[string]string{v1alpha1.AnnotationIntents: text}
		in, err := ReadIntents(set)
		if err != nil {
			return
		}
		in.Write(set)
		if _, err := ReadIntents(set); err != nil {
			t.Errorf("what was read from %q cannot be read again after it was written: %v", text, err)
		}
	})
}

// TestReasonOfForeignTextIsBoundedInIntents: any client may have written the annotation, and the
// rule is a label of a metric.
func TestReasonOfForeignTextIsBoundedInIntents(t *testing.T) {
	long := strings.Repeat("x", 10_000)
	in := Intents{
		Delete: []Deletion{
			{UID: "known", Why: receipt.Reason{Rule: receipt.RolledOut, Evidence: "e"}},
			{UID: "forged", Why: receipt.Reason{Rule: "Forged"}},
			{UID: "failed", Failed: true},
			{UID: "long", Why: receipt.Reason{Rule: receipt.Unhealthy, Evidence: long}},
		},
		Leaving: []Deletion{{UID: "leaving", Why: receipt.Reason{Rule: receipt.Unhealthy}}},
	}
	for uid, want := range map[types.UID]receipt.Reason{
		"known": {Rule: receipt.RolledOut, Evidence: "e"}, "forged": {Rule: receipt.ScaledDown, Evidence: "recorded without a reason"},
		"failed": {Rule: receipt.Unhealthy, Evidence: "recorded without a reason"}, "leaving": {Rule: receipt.Unhealthy}, "none": {},
		"long": receipt.Because(receipt.Unhealthy, long),
	} {
		if got, known := in.Reason(uid); got != want || known != (want.Rule != "") {
			t.Errorf("%s: got %v, %t; want %v", uid, got, known, want)
		}
	}
}
