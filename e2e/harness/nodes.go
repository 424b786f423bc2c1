package harness

import (
	"context"
	"encoding/json"
	"fmt"
	"path/filepath"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// AnnotateNode sets an annotation of a Node of the target cluster.
func (l *Lab) AnnotateNode(ctx context.Context, node, key, value string) error {
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"annotations": map[string]string{key: value}}})
	if err != nil {
		return fmt.Errorf("encode a patch: %w", err)
	}
	if _, err := l.Target.CoreV1().Nodes().Patch(ctx, node, types.MergePatchType, patch, metav1.PatchOptions{}); err != nil {
		return fmt.Errorf("annotate Node %s: %w", node, err)
	}
	return nil
}

// MachineFile returns the path on this computer of a file that the daemon in a VM with a real kubelet configures.
func (l *Lab) MachineFile(vm, name string) string {
	return filepath.Join(l.Dir, "cloudsim", "vms", vm, "root", filepath.FromSlash(name))
}
