package connection

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/utils/clock"

	"github.com/machine-controller-fleet/machine-controller-fleet/internal/target/access"
)

// pod returns one with as much as a large one has.
func pod(i int) corev1.Pod {
	of := corev1.Container{
		Name: "c", Image: "registry.example/image:v1", Env: make([]corev1.EnvVar, 20), VolumeMounts: make([]corev1.VolumeMount, 10),
	}
	for j := range of.Env {
		of.Env[j] = corev1.EnvVar{Name: fmt.Sprintf("NAME_%d", j), Value: "some value"}
	}
	for j := range of.VolumeMounts {
		of.VolumeMounts[j] = corev1.VolumeMount{Name: fmt.Sprintf("volume-%d", j), MountPath: "/var/run/secrets/kubernetes.io"}
	}
	return corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("p-%d", i), ManagedFields: []metav1.ManagedFieldsEntry{
			{FieldsV1: metav1.NewFieldsV1(`{"f:metadata":{` + strings.Repeat(`"f:labels":{".":{},"f:app":{}},`, 50) + `"f:x":{}}}`)},
		}},
		Spec:   corev1.PodSpec{Containers: []corev1.Container{of, of, of}},
		Status: corev1.PodStatus{Conditions: make([]corev1.PodCondition, 5), ContainerStatuses: make([]corev1.ContainerStatus, 3)},
	}
}

// A page of large pods is read if it has as many as drains request. Objects of some bytes that take
// gigabytes when they are decoded are not.
func TestAnswersWithTooManyValues(t *testing.T) {
	var page, large corev1.PodList
	for i := range 500 {
		if large.Items = append(large.Items, pod(i)); i < 50 {
			page.Items = append(page.Items, pod(i))
		}
	}
	node := func(conditions int) *corev1.Node {
		return &corev1.Node{Status: corev1.NodeStatus{Conditions: make([]corev1.NodeCondition, conditions)}}
	}
	hidden := []byte{0x0b, 0x0c} // an empty group, which is skipped
	small := `{"kind":"Node","apiVersion":"v1","status":{"conditions":[` + strings.Repeat("{},", maxValues/2) + `{}]}}`
	for _, tc := range []struct {
		name    string
		object  runtime.Object
		more    []byte
		isValid bool
	}{
		{"a page of pods", &page, nil, true},
		{"a page of too many pods", &large, nil, false},
		{"many items", &corev1.NodeList{Items: make([]corev1.Node, MaxItems+2)}, nil, false},
		{"many conditions", node(maxValues + 1), nil, false},
		{"many conditions, and what is no message", node(maxValues + 1), []byte{0x07}, false},
		{"many conditions, and a group", node(maxValues + 1), hidden, false},
	} {
		for _, contentType := range []string{runtime.ContentTypeJSON, runtime.ContentTypeProtobuf} {
			t.Run(tc.name+" as "+contentType, func(t *testing.T) {
				info, _ := runtime.SerializerInfoForMediaType(scheme.Codecs.SupportedMediaTypes(), contentType)
				content, err := runtime.Encode(scheme.Codecs.EncoderForVersion(info.Serializer, corev1.SchemeGroupVersion), tc.object)
				if err != nil {
					t.Fatal(err)
				}
				if content = append(content, tc.more...); contentType == runtime.ContentTypeJSON && len(content) > MaxBody {
					content = []byte(small)
				}
				a := server(t, func(w http.ResponseWriter, _ *http.Request) {
					w.Header().Set("Content-Type", strings.ToUpper(contentType))
					_, _ = w.Write(content)
				})
				c, err := New(access.Policy{}, a, clock.RealClock{})
				if err != nil {
					t.Fatal(err)
				}
				defer c.Close()
				client, err := kubernetes.NewForConfig(c.Config())
				if err != nil {
					t.Fatal(err)
				}
				if _, err = client.CoreV1().Pods("").List(t.Context(), metav1.ListOptions{}); tc.isValid != (err == nil) ||
					!tc.isValid && !strings.Contains(err.Error(), (&tooManyValuesError{}).Error()) {
					t.Errorf("got %v", err)
				}
			})
		}
	}
}

// What is in a text counts for nothing, and a document ends with its last character.
func TestValuesOfJSON(t *testing.T) {
	for document, want := range map[string]counter{
		`{"a":"{[,}]"}`:         {values: 1},
		`{"a":"\"},","b":"\\"}`: {values: 2},
		`[[],[1,2]]`:            {values: 5, items: 1},
		`{"items":[{},{},{}]}`:  {values: 7, items: 2},
	} {
		var c counter
		for i := range len(document) {
			if ended := c.next(document[i]); ended != (i == len(document)-1) {
				t.Errorf("%s: ends at character %d: %t", document, i, ended)
			}
		}
		if c != want {
			t.Errorf("%s: got %+v, want %+v", document, c, want)
		}
	}
}
