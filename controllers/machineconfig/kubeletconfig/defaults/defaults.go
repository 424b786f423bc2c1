package defaults

import (
	"errors"
	"fmt"
	"slices"

	ignition "github.com/coreos/ignition/v2/config/v3_5"
	"sigs.k8s.io/yaml"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/fleet/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/controllers/machineconfig/kubeletconfig/fold"
	"github.com/machine-controller-fleet/machine-controller-fleet/controllers/machineconfig/render/merge"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/machineconfig/daemon/desired"
)

// Of returns the KubeletConfiguration that the MachineConfigs of a pool have without the
// generated one, as JSON; nil when they have none. Errors: they cannot be merged, or the file is no
// YAML. No error has contents of the file.
func Of(pool *v1alpha1.MachineConfigPool, configs []*v1alpha1.MachineConfig, fleet merge.Fleet) ([]byte, error) {
	selected, err := merge.Select(pool, configs)
	selected = slices.DeleteFunc(selected, IsGenerated)
	if err != nil || len(selected) == 0 {
		return nil, nil //nolint:nilerr // the pool itself reports what is wrong with its selector
	}
	merged, err := merge.Merge(selected, nil, fleet)
	if err != nil {
		return nil, err
	}
	config, _, err := ignition.ParseCompatibleVersion(merged.Spec.Config.Raw)
	if err != nil {
		return nil, errors.New("the MachineConfigs of the pool result in no Ignition config")
	}
	for _, f := range config.Storage.Files {
		if f.Path != fold.Path {
			continue
		}
		content, err := desired.Content(f.Contents)
		if err != nil {
			return nil, fmt.Errorf("file %s of the MachineConfigs of the pool: %w", fold.Path, err)
		}
		if len(content) > fold.MaxSize {
			return nil, fmt.Errorf("file %s of the MachineConfigs of the pool must have at most %d bytes, got %d",
				fold.Path, fold.MaxSize, len(content))
		}
		document, err := yaml.YAMLToJSONStrict(content)
		if err != nil {
			return nil, fmt.Errorf("file %s of the MachineConfigs of the pool must be a KubeletConfiguration as YAML or JSON", fold.Path)
		}
		return document, nil
	}
	return nil, nil
}

// IsGenerated reports whether a MachineConfig was folded of KubeletConfigs.
func IsGenerated(c *v1alpha1.MachineConfig) bool {
	return c.Annotations[v1alpha1.AnnotationGeneratedBy] == v1alpha1.GeneratedFromKubeletConfigs
}
