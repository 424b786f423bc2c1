package telemetry

import (
	"context"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/klog/v2"

	fleetv1alpha1 "github.com/machine-controller-fleet/machine-controller-fleet/apis/fleet/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
)

// Keys under which lines of the log name objects. docs/operations/logs.md describes them.
const (
	KeyMachine           = "machine"
	KeyMachineSet        = "machineSet"
	KeyMachineDeployment = "machineDeployment"
	KeyMachineClass      = "machineClass"
	KeyNode              = "node"
	KeyPool              = "machineConfigPool"
	KeyKubeletConfig     = "kubeletConfig"
	KeyControllerConfig  = "controllerConfig"
	KeySecret            = "secret"
	KeyNamespace         = "namespace"
	KeyProviderID        = "providerID"
	KeyTraceID           = "traceID"
)

type loggedKey struct{}

// WithObject returns a context whose logs name the object of a pass under a key.
func WithObject(ctx context.Context, key string, object any) context.Context {
	ctx = context.WithValue(ctx, loggedKey{}, key)
	return klog.NewContext(ctx, klog.FromContext(ctx).WithValues(key, object))
}

// NameObject returns the key and the value that name an object in a line of the log; none if the
// logs of ctx name the object of their pass under that key. In JSON the key would be there twice.
func NameObject(ctx context.Context, key string, object any) []any {
	if of, _ := ctx.Value(loggedKey{}).(string); of == key {
		return nil
	}
	return []any{key, object}
}

// keysOf returns the keys and values by which a line about an object names it, without what the
// logs of ctx have already.
func keysOf(ctx context.Context, about runtime.Object) []any {
	switch o := about.(type) {
	case *v1alpha1.Machine:
		keys := NameObject(ctx, KeyMachine, klog.KObj(o))
		if node := o.Labels[v1alpha1.LabelNode]; node != "" {
			keys = append(keys, KeyNode, node)
		}
		if o.Spec.ProviderID != "" {
			keys = append(keys, KeyProviderID, o.Spec.ProviderID)
		}
		return keys
	case *v1alpha1.MachineSet:
		return NameObject(ctx, KeyMachineSet, klog.KObj(o))
	case *v1alpha1.MachineDeployment:
		return NameObject(ctx, KeyMachineDeployment, klog.KObj(o))
	case *v1alpha1.MachineClass:
		return NameObject(ctx, KeyMachineClass, klog.KObj(o))
	case *fleetv1alpha1.MachineConfigPool:
		return NameObject(ctx, KeyPool, o.Name)
	case *fleetv1alpha1.KubeletConfig:
		return NameObject(ctx, KeyKubeletConfig, o.Name)
	case *fleetv1alpha1.ControllerConfig:
		return NameObject(ctx, KeyControllerConfig, o.Name)
	case *corev1.ObjectReference:
		return NameObject(ctx, strings.ToLower(o.Kind[:min(len(o.Kind), 1)])+o.Kind[min(len(o.Kind), 1):], klog.KRef(o.Namespace, o.Name))
	}
	return nil
}
