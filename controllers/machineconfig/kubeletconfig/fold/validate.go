package fold

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/fleet/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/bounded"
)

const (
	// apiVersion and kindName are those of the document that kubelets read.
	apiVersion = "kubelet.config.k8s.io/v1beta1"
	kindName   = "KubeletConfiguration"
	// MaxSize is how many bytes the settings of one KubeletConfig may have.
	MaxSize = 64 << 10
	// mostText is how many bytes of a name or a value a message has.
	mostText = 60
)

// short returns a name or a value for a message.
func short(text string) string { return bounded.Text(text, mostText) }

// forbidden are fields that a KubeletConfig must not have, with the reason: a dot separates the
// levels.
var forbidden = map[string]string{
	"cgroupDriver":            "must be that of the container runtime, which the template of the Nodes configures",
	"clusterDNS":              "is set for the whole cluster, in the ControllerConfig",
	"clusterDomain":           "is set for the whole cluster, in the ControllerConfig",
	"failSwapOn":              "depends on how Nodes are installed, and is set in the template of the Nodes",
	"featureGates":            "are set for the whole cluster, in the template of the Nodes",
	"memorySwap.swapBehavior": "depends on how Nodes are installed, and is set in the template of the Nodes",
	"runOnce":                 "has the kubelet end, and the Node be lost",
	"staticPodPath":           "is set in the template of the Nodes: another one removes the static pods of the control plane",
}

// span is the range of a number, both ends included.
type span struct{ least, most int64 }

// ranges are those of numbers.
var ranges = map[string]span{
	"containerLogMaxFiles":        {2, math.MaxInt32},
	"containerLogMaxWorkers":      {1, math.MaxInt32},
	"eventBurst":                  {0, math.MaxInt32},
	"eventRecordQPS":              {0, math.MaxInt32},
	"healthzPort":                 {0, 65535},
	"imageGCHighThresholdPercent": {0, 100},
	"imageGCLowThresholdPercent":  {0, 100},
	"iptablesDropBit":             {0, 31},
	"iptablesMasqueradeBit":       {0, 31},
	"kubeAPIBurst":                {0, math.MaxInt32},
	"kubeAPIQPS":                  {0, math.MaxInt32},
	"logging.verbosity":           {0, 10},
	"maxOpenFiles":                {0, math.MaxInt64},
	"maxParallelImagePulls":       {1, math.MaxInt32},
	"maxPods":                     {0, math.MaxInt32},
	"nodeLeaseDurationSeconds":    {0, math.MaxInt32},
	"nodeStatusMaxImages":         {-1, math.MaxInt32},
	"oomScoreAdj":                 {-1000, 1000},
	"podPidsLimit":                {-1, math.MaxInt64},
	"podsPerCore":                 {0, math.MaxInt32},
	"port":                        {0, 65535},
	"readOnlyPort":                {0, 65535},
	"registryBurst":               {0, math.MaxInt32},
	"registryPullQPS":             {0, math.MaxInt32},
}

// signals lists the eviction signals of a kubelet.
var signals = []string{
	"containerfs.available", "containerfs.inodesFree", "imagefs.available", "imagefs.inodesFree", "memory.available", "nodefs.available",
	"nodefs.inodesFree", "pid.available",
}

// amounts are fields with amounts by name, and whether shares are allowed; nil names are any.
var amounts = map[string]struct {
	names  []string
	shares bool
}{
	"evictionHard":           {signals, true},
	"evictionSoft":           {signals, true},
	"evictionMinimumReclaim": {signals, true},
	"kubeReserved":           {nil, false},
	"systemReserved":         {nil, false},
}

// Check returns what is wrong with the settings of a KubeletConfig by themselves, or nil.
func Check(c *v1alpha1.KubeletConfig) error {
	_, err := read(c)
	return err
}

// read returns the settings of a KubeletConfig.
func read(c *v1alpha1.KubeletConfig) (map[string]any, error) {
	settings, err := decode(c.Spec.KubeletConfig.Raw)
	if err != nil {
		return nil, fmt.Errorf("spec.kubeletConfig %w", err)
	}
	for _, path := range slices.Sorted(maps.Keys(forbidden)) {
		if _, has := at(settings, path); has {
			return nil, fmt.Errorf("spec.kubeletConfig.%s %s. Remove it", path, forbidden[path])
		}
	}
	if err := checkValues(settings); err != nil {
		return nil, fmt.Errorf("spec.kubeletConfig.%w", err)
	}
	return settings, nil
}

// decode reads a JSON object.
func decode(document []byte) (map[string]any, error) {
	document = bytes.TrimSpace(document)
	switch {
	case len(document) > MaxSize:
		return nil, fmt.Errorf("must have at most %d bytes, got %d", MaxSize, len(document))
	case len(document) == 0 || string(document) == "null":
		return map[string]any{}, nil
	}
	decoder := json.NewDecoder(bytes.NewReader(document))
	decoder.UseNumber()
	var value any
	if err := decoder.Decode(&value); err != nil || decoder.More() {
		return nil, errors.New("must be one JSON object")
	}
	settings, ok := value.(map[string]any)
	if !ok {
		return nil, errors.New("must be an object")
	}
	return settings, nil
}

// checkValues checks the types and ranges of settings. Errors begin with the path of the field.
func checkValues(settings map[string]any) error {
	if problem := object(fields).check("", settings); problem != "" {
		return errors.New(problem)
	}
	for field, want := range map[string]string{"apiVersion": apiVersion, "kind": kindName} {
		if got, has := settings[field]; has && got != want {
			return fmt.Errorf("%s must be %s or absent", field, want)
		}
	}
	for _, path := range slices.Sorted(maps.Keys(ranges)) {
		value, _ := at(settings, path)
		number, ok := value.(json.Number)
		if !ok {
			continue // absent, or removed
		}
		n, err := number.Int64()
		if s := ranges[path]; err != nil || n < s.least || n > s.most {
			return fmt.Errorf("%s must be from %d to %d, got %s", path, s.least, s.most, short(number.String()))
		}
	}
	for _, path := range slices.Sorted(maps.Keys(amounts)) {
		values, _ := settings[path].(map[string]any)
		if err := checkAmounts(path, values); err != nil {
			return err
		}
	}
	return nil
}

func checkAmounts(path string, values map[string]any) error {
	rule := amounts[path]
	for _, name := range slices.Sorted(maps.Keys(values)) {
		written, ok := values[name].(string)
		switch {
		case rule.names != nil && !slices.Contains(rule.names, name):
			return fmt.Errorf("%s[%s] does not exist. There are: %s", path, short(name), strings.Join(rule.names, ", "))
		case !ok: // removed
		case rule.shares && isShare(written):
		case !quantity.parses(written) || strings.HasPrefix(written, "-"):
			return fmt.Errorf("%s[%s] must be a quantity that is not negative, such as 500Mi, got %q", path, short(name), short(written))
		}
	}
	return nil
}

// isShare reports whether a text is a percentage from 0% to 100%.
func isShare(written string) bool {
	number, ok := strings.CutSuffix(written, "%")
	percent, err := strconv.ParseFloat(number, 64)
	return ok && err == nil && percent >= 0 && percent <= 100
}

// checkTogether returns what is wrong with values that are valid by themselves, or nil.
func checkTogether(settings map[string]any) error {
	low, high := integer(settings, "imageGCLowThresholdPercent", 80), integer(settings, "imageGCHighThresholdPercent", 85)
	if low >= high {
		return fmt.Errorf("imageGCLowThresholdPercent is %d, and must be less than imageGCHighThresholdPercent, which is %d", low, high)
	}
	if serial, _ := settings["serializeImagePulls"].(bool); serial && integer(settings, "maxParallelImagePulls", 1) > 1 {
		return errors.New("maxParallelImagePulls must not be more than 1 while serializeImagePulls is true")
	}
	reserved, _ := settings["systemReservedCgroup"].(string)
	if system, _ := settings["systemCgroups"].(string); reserved != "" && system != "" && reserved != system {
		return errors.New("systemReservedCgroup must be the same as systemCgroups")
	}
	soft, _ := settings["evictionSoft"].(map[string]any)
	grace, _ := settings["evictionSoftGracePeriod"].(map[string]any)
	for _, name := range slices.Sorted(maps.Keys(soft)) {
		if grace[name] == nil {
			return fmt.Errorf("evictionSoft[%s] must have a grace period in evictionSoftGracePeriod", short(name))
		}
	}
	return nil
}

// integer returns a number, or what the kubelet takes for one that is absent.
func integer(settings map[string]any, field string, absent int64) int64 {
	number, ok := settings[field].(json.Number)
	if !ok {
		return absent
	}
	n, err := number.Int64()
	if err != nil {
		return absent
	}
	return n
}

// at returns the value at a path, and whether there is one.
func at(settings map[string]any, path string) (any, bool) {
	first, rest, deeper := strings.Cut(path, ".")
	value, has := settings[first]
	if !deeper {
		return value, has
	}
	inner, ok := value.(map[string]any)
	if !ok {
		return nil, false
	}
	return at(inner, rest)
}
