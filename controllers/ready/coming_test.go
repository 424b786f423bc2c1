package ready

import (
	"maps"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
)

func TestIntents(t *testing.T) {
	seen := []*metav1.ObjectMeta{{Annotations: map[string]string{v1alpha1.AnnotationOrdinal: "3"}}, {Name: "of another set"}}
	for _, tc := range []struct {
		name, intents string
		coming        int32
		doomed        map[types.UID]bool
	}{
		{"none", "", 0, nil},
		{"one is seen, one is not", `{"set":"s","next":5,"create":[3,4]}`, 1, nil},
		{"two are to go", `{"set":"s","next":5,"delete":[{"name":"a","uid":"1"},{"name":"b","uid":"2","failed":true}]}`, 0, map[types.UID]bool{"1": true, "2": true}},
		{"of another set", `{"set":"other","next":5,"create":[4],"delete":[{"name":"a","uid":"1"}]}`, 0, nil},
		{"of nobody in particular", `{"next":5,"create":[4]}`, 1, nil},
		{"more than can be", `{"set":"s","next":5,"create":[4` + strings.Repeat(",4", MostIntents) + `],"delete":[{"name":"a","uid":"1"}]}`, 0, nil},
		{"not to be read", `{"create":`, 0, nil},
	} {
		t.Run(tc.name, func(t *testing.T) {
			set := &v1alpha1.MachineSet{ObjectMeta: metav1.ObjectMeta{UID: "s", Annotations: map[string]string{v1alpha1.AnnotationIntents: tc.intents}}}
			if got := Coming(set, seen); got != tc.coming {
				t.Errorf("%d are coming, want %d", got, tc.coming)
			}
			if got := Doomed(set); !maps.Equal(got, tc.doomed) {
				t.Errorf("doomed are %v, want %v", got, tc.doomed)
			}
		})
	}
}
