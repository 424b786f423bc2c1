package objectcache

import (
	"runtime"
	"strconv"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func heap() int64 {
	runtime.GC()
	runtime.GC()
	var now runtime.MemStats
	runtime.ReadMemStats(&now)
	return int64(now.HeapAlloc)
}

func names[T any](n int, value T) map[string]T {
	all := map[string]T{}
	for i := range n {
		all[strconv.Itoa(i)] = value
	}
	return all
}

// Elements of some bytes in the encoding of an object count what they take when they are decoded.
func TestSizeOfIsTheMemoryOfAnObject(t *testing.T) {
	const n = 20_000
	for name, tc := range map[string]struct {
		in, out interface {
			Marshal() ([]byte, error)
			Unmarshal(from []byte) error
		}
	}{
		"terms of a volume": {&corev1.PersistentVolume{Spec: corev1.PersistentVolumeSpec{NodeAffinity: &corev1.VolumeNodeAffinity{
			Required: &corev1.NodeSelector{NodeSelectorTerms: make([]corev1.NodeSelectorTerm, n)},
		}}}, &corev1.PersistentVolume{}},
		"containers": {&corev1.Pod{Spec: corev1.PodSpec{Containers: make([]corev1.Container, n)}}, &corev1.Pod{}},
		"claims": {&corev1.Pod{Spec: corev1.PodSpec{Volumes: func() (all []corev1.Volume) {
			for range n {
				all = append(all, corev1.Volume{VolumeSource: corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{}}})
			}
			return all
		}()}}, &corev1.Pod{}},
		"finalizers": {&corev1.Node{ObjectMeta: metav1.ObjectMeta{Finalizers: make([]string, n)}}, &corev1.Node{}},
		"capacity": {&corev1.Node{Status: corev1.NodeStatus{Capacity: func() corev1.ResourceList {
			all := corev1.ResourceList{}
			for name, quantity := range names(n, resource.Quantity{}) {
				all[corev1.ResourceName(name)] = quantity
			}
			return all
		}()}}, &corev1.Node{}},
		"conditions": {&corev1.Node{Status: corev1.NodeStatus{Conditions: make([]corev1.NodeCondition, n)}}, &corev1.Node{}},
		"labels":     {&corev1.Node{ObjectMeta: metav1.ObjectMeta{Labels: names(n, "")}}, &corev1.Node{}},
	} {
		t.Run(name, func(t *testing.T) {
			content, err := tc.in.Marshal()
			if err != nil {
				t.Fatal(err)
			}
			before := heap()
			if err := tc.out.Unmarshal(content); err != nil {
				t.Fatal(err)
			}
			took, size := heap()-before, SizeOf(tc.out)
			t.Logf("%d bytes take %d of memory, and count %d", len(content), took, size)
			if float64(took) > 1.3*float64(size) || float64(size) > 2*float64(took) {
				t.Errorf("an object of %d bytes takes %d of memory, and counts %d", len(content), took, size)
			}
			runtime.KeepAlive(tc.out)
			runtime.KeepAlive(content)
		})
	}
}

// Of objects without a type the values of all fields count, and nil for nothing.
func TestSizeOfAnyObject(t *testing.T) {
	if size := SizeOf(map[string]any{"a": []any{"0123456789", int64(1)}}); size < 100 || size > 400 {
		t.Errorf("got %d bytes", size)
	}
	if SizeOf(nil) != 0 || SizeOf((*corev1.Node)(nil)) > 16 {
		t.Error("nil takes memory")
	}
	if now, zero := SizeOf(&corev1.Node{ObjectMeta: metav1.ObjectMeta{CreationTimestamp: metav1.Now()}}), SizeOf(&corev1.Node{}); now != zero {
		t.Errorf("a time counts %d bytes with its location", now-zero)
	}
}
