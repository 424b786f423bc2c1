package validation

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
)

// NodeGroup has what the annotations of a MachineDeployment set for the cluster-autoscaler.
type NodeGroup struct {
	// Min and Max are the sizes that it may set, Min at most Max.
	Min, Max int32

	// The options are nil where no annotation sets them.
	UtilizationThreshold, GPUUtilizationThreshold                  *float64
	UnneededTime, UnreadyTime, MaxProvisionTime, MaxStartupTime    *time.Duration
	ZeroOrMax, AllowNonAtomicScaleUpToMax, IgnoreDaemonSetsOfUsage *bool
}

// HasOptions reports whether an annotation sets an option.
func (g NodeGroup) HasOptions() bool {
	return g != NodeGroup{Min: g.Min, Max: g.Max}
}

// NodeGroupOf returns the node group that a MachineDeployment with these annotations is; it is not
// ok if it is none, also because a limit is invalid. remarks are the annotations without an effect,
// each with what was expected.
func NodeGroupOf(annotations map[string]string) (g NodeGroup, ok bool, remarks []string) {
	r := reader{annotations: annotations}
	most, isGroup := r.size(v1alpha1.AnnotationMaxSize)
	least, hasLeast := r.size(v1alpha1.AnnotationMinSize)
	_, named := annotations[v1alpha1.AnnotationMaxSize]
	invalid := len(r.remarks) > 0
	switch {
	case hasLeast && !named:
		r.remark(v1alpha1.AnnotationMinSize, "has no effect without "+v1alpha1.AnnotationMaxSize)
	case hasLeast && isGroup && least > most:
		invalid = true
		r.remark(v1alpha1.AnnotationMinSize, fmt.Sprintf("expected at most %d, which %s is; without that it is no node group",
			most, v1alpha1.AnnotationMaxSize))
	}
	if !isGroup || invalid {
		return NodeGroup{}, false, r.remarks
	}
	g = NodeGroup{Min: least, Max: most}
	g.UtilizationThreshold = r.share(v1alpha1.AnnotationUtilizationThreshold)
	g.GPUUtilizationThreshold = r.share(v1alpha1.AnnotationGPUUtilizationThreshold)
	g.UnneededTime = r.duration(v1alpha1.AnnotationUnneededTime)
	g.UnreadyTime = r.duration(v1alpha1.AnnotationUnreadyTime)
	g.MaxProvisionTime = r.duration(v1alpha1.AnnotationMaxProvisionTime)
	g.MaxStartupTime = r.duration(v1alpha1.AnnotationMaxStartupTime)
	g.ZeroOrMax = r.boolean(v1alpha1.AnnotationZeroOrMax)
	g.AllowNonAtomicScaleUpToMax = r.boolean(v1alpha1.AnnotationNonAtomicScaleUp)
	g.IgnoreDaemonSetsOfUsage = r.boolean(v1alpha1.AnnotationIgnoreDaemonSets)
	return g, true, r.remarks
}

// RemarksOnNodeGroup returns which annotations of a node group have no effect, and why.
func RemarksOnNodeGroup(annotations map[string]string) []string {
	_, _, remarks := NodeGroupOf(annotations)
	return remarks
}

// reader reads annotations, and collects remarks on invalid ones.
type reader struct {
	annotations map[string]string
	remarks     []string
}

func (r *reader) remark(key, text string) {
	r.remarks = append(r.remarks, fmt.Sprintf("metadata.annotations[%s]: %s", key, text))
}

func (r *reader) invalid(key, value, expected string) {
	r.remark(key, fmt.Sprintf("expected %s, got %.40q; it has no effect", expected, value))
}

// option returns the value of an option: of the fleet's annotation, else that of Gardener's fork.
func (r *reader) option(key string) (from, value string, ok bool) {
	if value, ok := r.annotations[key]; ok {
		return key, value, true
	}
	from = v1alpha1.GardenerAutoscalerDomain + strings.TrimPrefix(key, v1alpha1.AutoscalerDomain)
	value, ok = r.annotations[from]
	return from, value, ok
}

func (r *reader) size(key string) (n int32, ok bool) {
	value, named := r.annotations[key]
	if !named {
		return 0, false
	}
	number, err := strconv.ParseInt(value, 10, 32)
	if err != nil || number < 0 || number > MaxReplicas {
		r.invalid(key, value, fmt.Sprintf("a number from 0 to %d", MaxReplicas))
		return 0, false
	}
	return int32(number), true
}

func (r *reader) share(key string) *float64 {
	from, value, ok := r.option(key)
	if !ok {
		return nil
	}
	share, err := strconv.ParseFloat(value, 64)
	if err != nil || !(share >= 0 && share <= 1) { // not a number is neither
		r.invalid(from, value, "a number from 0 to 1")
		return nil
	}
	return &share
}

func (r *reader) duration(key string) *time.Duration {
	from, value, ok := r.option(key)
	if !ok {
		return nil
	}
	duration, err := time.ParseDuration(value)
	if err != nil || duration < 0 {
		r.invalid(from, value, "a duration such as 10m")
		return nil
	}
	return &duration
}

func (r *reader) boolean(key string) *bool {
	from, value, ok := r.option(key)
	if !ok {
		return nil
	}
	is, err := strconv.ParseBool(value)
	if err != nil {
		r.invalid(from, value, "true or false")
		return nil
	}
	return &is
}
