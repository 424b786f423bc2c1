package telemetry

import (
	"context"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/trace"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/bounded"
)

// Keys of attributes of spans. Those that OpenTelemetry's semantic conventions define have their names; docs/operations/tracing.md
// describes all.
const (
	keyKey        = attribute.Key("key")
	controllerKey = attribute.Key("controller")
	rootUIDKey    = attribute.Key("root.uid")

	namespaceKey = attribute.Key("k8s.namespace.name")
	nodeKey      = attribute.Key("k8s.node.name")
	nodeUIDKey   = attribute.Key("k8s.node.uid")

	machineKey       = attribute.Key("machine.name")
	machineUIDKey    = attribute.Key("machine.uid")
	setKey           = attribute.Key("machineset.name")
	setUIDKey        = attribute.Key("machineset.uid")
	deploymentKey    = attribute.Key("machinedeployment.name")
	deploymentUIDKey = attribute.Key("machinedeployment.uid")
	generationKey    = attribute.Key("generation")

	verdictKey = attribute.Key("verdict")
	reasonKey  = attribute.Key("reason")

	providerKey   = attribute.Key("provider")
	driverCodeKey = attribute.Key("driver.code")
	retryAfterKey = attribute.Key("driver.retry_after_seconds")
	errorTypeKey  = attribute.Key("error.type")
)

// mostName is how many bytes of a name, a reason or a UID a span has. Names of objects are shorter; others may have written what is
// longer.
const mostName = 256

// text returns an attribute with a text of bounded length.
func text(key attribute.Key, value string) attribute.KeyValue {
	return key.String(bounded.Text(value, mostName))
}

// About names the object of a pass on the span in ctx, and links the span to the one that created or last sized the object. Nothing
// happens where the span is not recorded.
func About(ctx context.Context, object metav1.Object) {
	span := trace.SpanFromContext(ctx)
	if !span.IsRecording() {
		return
	}
	span.SetAttributes(identity(object)...)
	LinkTo(ctx, object.GetAnnotations()[v1alpha1.AnnotationTraceparent])
}

// identity returns the attributes that name an object.
func identity(object metav1.Object) []attribute.KeyValue {
	name, uid := object.GetName(), string(object.GetUID())
	namespace := text(namespaceKey, object.GetNamespace())
	switch o := object.(type) {
	case *v1alpha1.Machine:
		attributes := []attribute.KeyValue{namespace, text(machineKey, name), text(machineUIDKey, uid)}
		if node := o.Labels[v1alpha1.LabelNode]; node != "" {
			attributes = append(attributes, text(nodeKey, node))
		}
		return attributes
	case *v1alpha1.MachineSet:
		return []attribute.KeyValue{namespace, text(setKey, name), text(setUIDKey, uid), generationKey.Int64(o.Generation)}
	case *v1alpha1.MachineDeployment:
		return []attribute.KeyValue{namespace, text(deploymentKey, name), text(deploymentUIDKey, uid), generationKey.Int64(o.Generation)}
	case *corev1.Node:
		return []attribute.KeyValue{text(nodeKey, name), text(nodeUIDKey, uid)}
	}
	return []attribute.KeyValue{namespace}
}
