package patch

import (
	"encoding/json"
	"fmt"
	"maps"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	jsonpatch "gopkg.in/evanphx/json-patch.v4"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"pgregory.net/rapid"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
)

// TestDiffMakesWantedOfObserved applies the patches of generated pairs of objects.
func TestDiffMakesWantedOfObserved(t *testing.T) {
	pairs := map[string]func(*rapid.T) (before, after any){
		"machine":      func(t *rapid.T) (any, any) { return drawMachine(t), drawMachine(t) },
		"machineclass": func(t *rapid.T) (any, any) { return drawClass(t), drawClass(t) },
	}
	for name, draw := range pairs {
		t.Run(name, rapid.MakeCheck(func(t *rapid.T) {
			before, after := draw(t)
			main, status, err := diff(before, after)
			if err != nil {
				t.Fatal(err)
			}
			now := encode(t, before)
			for _, patch := range []map[string]any{main, status} {
				if len(patch) == 0 {
					continue
				}
				if now, err = jsonpatch.MergePatch(now, encode(t, patch)); err != nil {
					t.Fatal(err)
				}
			}
			if diff := cmp.Diff(withoutNulls(decode(t, encode(t, after))), withoutNulls(decode(t, now))); diff != "" {
				t.Errorf("patches %s and %s (-want +got):\n%s", encode(t, main), encode(t, status), diff)
			}
		}))
	}
}

func encode(t *rapid.T, value any) []byte {
	text, err := json.Marshal(value)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

func decode(t *rapid.T, text []byte) (value map[string]any) {
	if err := json.Unmarshal(text, &value); err != nil {
		t.Fatal(err)
	}
	return value
}

// withoutNulls removes fields that are null, which a merge patch cannot set.
func withoutNulls(value any) any {
	switch v := value.(type) {
	case map[string]any:
		maps.DeleteFunc(v, func(_ string, field any) bool { return withoutNulls(field) == nil })
	case []any:
		for _, item := range v {
			withoutNulls(item)
		}
	}
	return value
}

func drawMachine(t *rapid.T) *v1alpha1.Machine {
	text, some := rapid.SampledFrom([]string{"", "a", "b<&\u2028"}), rapid.Bool()
	times := rapid.Map(rapid.Int64Range(0, 2), func(s int64) metav1.Time {
		if s == 0 {
			return metav1.Time{}
		}
		return metav1.NewTime(time.Unix(s, 0))
	})
	m := &v1alpha1.Machine{
		ObjectMeta: metav1.ObjectMeta{
			Name:        "m",
			Labels:      rapid.MapOfN(text, text, 0, 3).Draw(t, "labels"),
			Annotations: rapid.MapOfN(text, text, 0, 3).Draw(t, "annotations"),
			Finalizers:  rapid.SliceOfN(text, 0, 2).Draw(t, "finalizers"),
		},
		Spec: v1alpha1.MachineSpec{
			Class:            v1alpha1.ClassSpec{Kind: text.Draw(t, "kind"), Name: text.Draw(t, "class")},
			ProviderID:       text.Draw(t, "provider ID"),
			NodeTemplateSpec: v1alpha1.NodeTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: rapid.MapOfN(text, text, 0, 2).Draw(t, "template")}},
		},
		Status: v1alpha1.MachineStatus{
			LastKnownState: text.Draw(t, "state"),
			CurrentStatus:  v1alpha1.CurrentStatus{LastUpdateTime: times.Draw(t, "updated"), TimeoutActive: some.Draw(t, "timeout")},
		},
	}
	if some.Draw(t, "deleted") {
		m.DeletionTimestamp = new(metav1.NewTime(time.Unix(3, 0)))
	}
	if some.Draw(t, "configured") {
		m.Spec.MachineConfiguration = &v1alpha1.MachineConfiguration{
			MachineDrainTimeout: &metav1.Duration{Duration: time.Duration(rapid.Int64Range(0, 2).Draw(t, "timeout")) * time.Second},
			MaxEvictRetries:     new(rapid.Int32Range(0, 1).Draw(t, "retries")),
		}
	}
	for range rapid.IntRange(0, 2).Draw(t, "conditions") {
		m.Status.Conditions = append(m.Status.Conditions, corev1.NodeCondition{
			Type: corev1.NodeReady, Message: text.Draw(t, "message"), LastHeartbeatTime: times.Draw(t, "heartbeat"),
		})
	}
	for range rapid.IntRange(0, 2).Draw(t, "taints") {
		m.Spec.NodeTemplateSpec.Spec.Taints = append(m.Spec.NodeTemplateSpec.Spec.Taints, corev1.Taint{Key: text.Draw(t, "key")})
	}
	return m
}

func drawClass(t *rapid.T) *v1alpha1.MachineClass {
	spec := rapid.SampledFrom([]string{`null`, `{"a":1,"b":[1,2.5]}`, `{"a":{"c":true}}`}).Draw(t, "spec")
	c := &v1alpha1.MachineClass{
		ObjectMeta:   metav1.ObjectMeta{Name: "c"},
		ProviderSpec: runtime.RawExtension{Raw: []byte(spec)},
	}
	if rapid.Bool().Draw(t, "sized") {
		amount := resource.MustParse(rapid.SampledFrom([]string{"1", "1000m", "2Gi"}).Draw(t, "amount"))
		c.NodeTemplate = &v1alpha1.NodeTemplate{Capacity: corev1.ResourceList{corev1.ResourceCPU: amount}, Zone: "z"}
	}
	return c
}

// BenchmarkDiff measures the difference of a Machine with a Node, whose status changed.
func BenchmarkDiff(b *testing.B) {
	before := &v1alpha1.Machine{
		ObjectMeta: metav1.ObjectMeta{
			Name: "m", Namespace: "n", UID: "u", ResourceVersion: "7", Labels: map[string]string{}, Annotations: map[string]string{},
		},
	}
	for i := range 6 {
		before.Labels[fmt.Sprint("label.example.org/", i)] = "value"
		before.Annotations[fmt.Sprint("annotation.example.org/", i)] = "some longer value of an annotation"
		before.Status.Conditions = append(before.Status.Conditions, corev1.NodeCondition{
			Type: corev1.NodeConditionType(fmt.Sprint("Condition", i)), Status: corev1.ConditionFalse, Reason: "KubeletHasSufficientMemory",
			Message: "kubelet has sufficient memory available", LastHeartbeatTime: metav1.NewTime(time.Unix(1, 0)),
		})
		before.ManagedFields = append(before.ManagedFields, metav1.ManagedFieldsEntry{
			Manager: "replica", FieldsType: "FieldsV1",
			FieldsV1: metav1.NewFieldsV1(`{"f:metadata":{"f:annotations":{".":{},"f:a":{}}},"f:spec":{"f:class":{}}}`),
		})
	}
	after := before.DeepCopy()
	after.Status.CurrentStatus.Phase = "Running"
	b.ReportAllocs()
	for b.Loop() {
		if _, _, err := diff(before, after); err != nil {
			b.Fatal(err)
		}
	}
}
