package nodesync

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestWithAnnotationAddsOneAndChangesNoOtherPatch(t *testing.T) {
	for name, tc := range map[string]struct{ body, want map[string]any }{
		"nothing": {map[string]any{}, map[string]any{"metadata": map[string]any{"annotations": map[string]any{"key": "value"}}}},
		"all": {
			map[string]any{"spec": 1, "metadata": map[string]any{"labels": 2, "annotations": map[string]any{"other": nil}}},
			map[string]any{"spec": 1, "metadata": map[string]any{"labels": 2, "annotations": map[string]any{"other": nil, "key": "value"}}},
		},
	} {
		before := &Patch{Body: tc.body, AsRead: true}
		got := before.WithAnnotation("key", "value")
		if diff := cmp.Diff(&Patch{Body: tc.want, AsRead: true}, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
		if metadata, ok := tc.body["metadata"].(map[string]any); ok && len(metadata) != 2 || len(tc.body) > 2 {
			t.Errorf("%s: the patch itself has changed: %v", name, tc.body)
		}
		if annotations, ok := original(tc.body); ok && len(annotations) != 1 {
			t.Errorf("%s: the annotations of the patch itself have changed: %v", name, annotations)
		}
	}
}

// original returns the annotations of a patch.
func original(body map[string]any) (annotations map[string]any, ok bool) {
	metadata, _ := body["metadata"].(map[string]any)
	annotations, ok = metadata["annotations"].(map[string]any)
	return annotations, ok
}
