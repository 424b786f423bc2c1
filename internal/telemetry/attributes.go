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

// Keys of attributes of spans. Those that OpenTelemetry's semantic conventions define have their
// names, all others are below mcf; docs/operations/tracing.md describes all.
const (
	keyKey        = attribute.Key("mcf.key")
	controllerKey = attribute.Key("mcf.controller")
	rootUIDKey    = attribute.Key("mcf.root.uid")
	idlePassesKey = attribute.Key("mcf.passes_without_effect")
	conflictKey   = attribute.Key("mcf.conflict")

	// ReplicaKey, SessionKey, SlotKey, EpochKey, leaderKey and FromKey name owners.
	ReplicaKey = attribute.Key("mcf.replica")
	SessionKey = attribute.Key("mcf.session")
	SlotKey    = attribute.Key("mcf.slot")
	EpochKey   = attribute.Key("mcf.epoch")
	leaderKey  = attribute.Key("mcf.leader")
	FromKey    = attribute.Key("mcf.from")

	namespaceKey = attribute.Key("k8s.namespace.name")
	nodeKey      = attribute.Key("k8s.node.name")
	nodeUIDKey   = attribute.Key("k8s.node.uid")

	machineKey       = attribute.Key("mcf.machine.name")
	machineUIDKey    = attribute.Key("mcf.machine.uid")
	setKey           = attribute.Key("mcf.machineset.name")
	setUIDKey        = attribute.Key("mcf.machineset.uid")
	deploymentKey    = attribute.Key("mcf.machinedeployment.name")
	deploymentUIDKey = attribute.Key("mcf.machinedeployment.uid")
	generationKey    = attribute.Key("mcf.generation")

	verdictKey    = attribute.Key("mcf.verdict")
	reasonKey     = attribute.Key("mcf.reason")
	reasonTextKey = attribute.Key("mcf.reason.text")

	providerKey   = attribute.Key("mcf.provider")
	driverCodeKey = attribute.Key("mcf.driver.code")
	retryAfterKey = attribute.Key("mcf.driver.retry_after_seconds")
	errorTypeKey  = attribute.Key("error.type")
)

// mostName is how many bytes of a name, a reason or a UID a span has. Names of objects are shorter;
// others may have written what is longer.
const mostName = 256

// text returns an attribute with a text of bounded length.
func text(key attribute.Key, value string) attribute.KeyValue {
	return key.String(bounded.Text(value, mostName))
}

// About names the object of a pass on the span in ctx, and links the span to the one that created
// or last sized the object. Nothing happens where the span is not recorded.
func About(ctx context.Context, object metav1.Object) {
	span := trace.SpanFromContext(ctx)
	if !span.IsRecording() {
		return
	}
	span.SetAttributes(identity(object)...)
	LinkTo(ctx, originOf(object))
}

// originOf returns the traceparent of the span that created or last sized an object.
func originOf(object metav1.Object) string {
	return object.GetAnnotations()[v1alpha1.AnnotationTraceparent]
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
