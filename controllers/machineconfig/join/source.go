package join

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"sync"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/fleet/v1alpha1"
	machinev1alpha1 "github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
	fleetclient "github.com/machine-controller-fleet/machine-controller-fleet/client/clientset/versioned/typed/fleet/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/controllers/machineconfig/join/stamp"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/objectcache"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/ownerref"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/required"
)

const (
	// MaxContent is how many bytes the value of a placeholder has at most. No VM takes more user data.
	MaxContent = 64 << 10
	// mostRemembered is how many contents a replica remembers: those of as many pools, of which
	// machines are created at a time.
	mostRemembered = 16
)

// Pools are the pools that this process knows.
type Pools interface {
	// Ready reports whether all were listed.
	Ready() bool
	Pools() []*v1alpha1.MachineConfigPool
}

// SourceConfig is the configuration of a Source. All fields are required.
type SourceConfig struct {
	// Fleet reads RenderedMachineConfigs in the target cluster.
	Fleet fleetclient.RenderedMachineConfigsGetter
	Pools Pools
	// View shows the owners of machines.
	View *objectcache.View
}

// Validate returns an error that names the required fields that are not set.
func (c SourceConfig) Validate() error { return required.Fields(c) }

// Source has the first configurations of machines. Create one with New. It is safe for concurrent
// use.
type Source struct {
	cfg SourceConfig

	mu         sync.Mutex
	remembered map[string]map[string]string // values by configuration
	order      []string                     // of remembered, the oldest first
}

// NewSource returns a Source that remembers nothing. Errors: those of Config.Validate.
func NewSource(cfg SourceConfig) (*Source, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	return &Source{cfg: cfg, remembered: map[string]map[string]string{}}, nil
}

// Values returns the values of the placeholders for a machine. problem is why there are none, as a
// sentence for the machine's status: a change of a pool ends it. Errors: the request, or pools that
// are not listed yet.
func (s *Source) Values(ctx context.Context, m *machinev1alpha1.Machine) (values map[string]string, problem string, err error) {
	if !s.cfg.Pools.Ready() {
		return nil, "", fmt.Errorf("find the MachineConfigPool of machine %s/%s: pools are not listed yet", m.Namespace, m.Name)
	}
	if metav1.GetControllerOfNoCopy(m) == nil {
		return nil, "it belongs to no MachineDeployment and no MachineSet to which a MachineConfigPool could refer", nil
	}
	root, known := s.rootOf(m)
	if !known {
		return nil, "",
			fmt.Errorf("find the MachineConfigPool of machine %s/%s: its MachineSet, or the MachineDeployment of that, is not shown yet",
				m.Namespace, m.Name)
	}
	config, problem := stamp.First(m, root, s.cfg.Pools.Pools())
	if problem != "" {
		return nil, problem, nil
	}
	if values := s.recall(config); values != nil {
		return values, "", nil
	}
	o, err := s.cfg.Fleet.RenderedMachineConfigs().Get(ctx, config, metav1.GetOptions{})
	if err != nil {
		return nil, "", fmt.Errorf("read RenderedMachineConfig %s: %w", config, err)
	}
	if !o.Verify() {
		return nil, "",
			fmt.Errorf("RenderedMachineConfig %s has not the content that its name stands for; delete it, so that it is rendered again", config)
	}
	values, err = Encode(o)
	if err != nil {
		return nil, "", err
	}
	if size := len(values[machinev1alpha1.PlaceholderMachineConfig]); size > MaxContent {
		return nil, fmt.Sprintf("RenderedMachineConfig %s has %d bytes as base64 of its gzip, and no user data has room for more than %d; "+
			"make its MachineConfigs smaller",
			config, size, MaxContent), nil
	}
	s.remember(config, values)
	return values, "", nil
}

// rootOf returns the root of a machine that pools can refer to.
func (s *Source) rootOf(m *machinev1alpha1.Machine) (v1alpha1.MachineReference, bool) {
	root, known := ownerref.RootOf(s.cfg.View, m)
	if !known {
		return v1alpha1.MachineReference{}, false
	}
	return stamp.ReferenceTo(root), true
}

func (s *Source) recall(config string) map[string]string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return maps.Clone(s.remembered[config])
}

func (s *Source) remember(config string, values map[string]string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.remembered[config] != nil {
		return
	}
	if len(s.order) == mostRemembered {
		delete(s.remembered, s.order[0])
		s.order = slices.Delete(s.order, 0, 1)
	}
	s.remembered[config], s.order = maps.Clone(values), append(s.order, config)
}

// Encode returns the values of the placeholders for a RenderedMachineConfig. Equal objects have
// equal values. Errors: it cannot be encoded.
func Encode(o *v1alpha1.RenderedMachineConfig) (map[string]string, error) {
	kept := v1alpha1.RenderedMachineConfig{
		TypeMeta: metav1.TypeMeta{APIVersion: v1alpha1.SchemeGroupVersion.String(), Kind: "RenderedMachineConfig"}, Spec: o.Spec,
	}
	kept.Name = o.Name
	content, err := json.Marshal(kept)
	if err != nil {
		return nil, fmt.Errorf("encode RenderedMachineConfig %s: %w", o.Name, err)
	}
	config, err := compressed(content)
	if err != nil {
		return nil, fmt.Errorf("compress RenderedMachineConfig %s: %w", o.Name, err)
	}
	raw := o.Spec.Config.Raw
	if len(raw) == 0 {
		raw = []byte(`{"ignition":{"version":"3.5.0"}}`)
	}
	ignition, err := compressed(raw)
	if err != nil {
		return nil, fmt.Errorf("compress the Ignition config of %s: %w", o.Name, err)
	}
	return map[string]string{
		machinev1alpha1.PlaceholderMachineConfig: config, machinev1alpha1.PlaceholderMachineConfigName: o.Name,
		machinev1alpha1.PlaceholderMachineConfigIgnition: ignition,
	}, nil
}

// compressed returns the base64 of the gzip of a content.
func compressed(content []byte) (string, error) {
	var out bytes.Buffer
	w, err := gzip.NewWriterLevel(&out, gzip.BestCompression)
	if err != nil {
		return "", err //nolint:wrapcheck // the level is a constant
	}
	if _, err := w.Write(content); err != nil {
		return "", err //nolint:wrapcheck // the caller names the object
	}
	if err := w.Close(); err != nil {
		return "", err //nolint:wrapcheck // the caller names the object
	}
	return base64.StdEncoding.EncodeToString(out.Bytes()), nil
}
