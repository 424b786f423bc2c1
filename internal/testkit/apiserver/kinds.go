package apiserver

import (
	"net/url"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
)

// kind describes a resource.
type kind struct {
	name      string // in objects
	hasStatus bool   // a subresource of that name
	counts    bool   // generations
}

// kinds are the resources that the server has, by their plural, which is unique.
var kinds = map[string]kind{
	"machinedeployments":     {name: "MachineDeployment", hasStatus: true, counts: true},
	"machinesets":            {name: "MachineSet", hasStatus: true, counts: true},
	"machines":               {name: "Machine", hasStatus: true, counts: true},
	"machineclasses":         {name: "MachineClass", counts: true},
	"deployments":            {name: "Deployment", hasStatus: true, counts: true},
	"leases":                 {name: "Lease"},
	"secrets":                {name: "Secret"},
	"namespaces":             {name: "Namespace", hasStatus: true},
	"nodes":                  {name: "Node", hasStatus: true},
	"pods":                   {name: "Pod", hasStatus: true},
	"events":                 {name: "Event"},
	"persistentvolumes":      {name: "PersistentVolume", hasStatus: true},
	"persistentvolumeclaims": {name: "PersistentVolumeClaim", hasStatus: true},
	"volumeattachments":      {name: "VolumeAttachment", hasStatus: true},
	"csidrivers":             {name: "CSIDriver"},
	"machineconfigs":         {name: "MachineConfig", counts: true},
	"machineconfigpools":     {name: "MachineConfigPool", hasStatus: true, counts: true},
	"renderedmachineconfigs": {name: "RenderedMachineConfig", counts: true},
	"kubeletconfigs":         {name: "KubeletConfig", hasStatus: true, counts: true},
	"controllerconfigs":      {name: "ControllerConfig", hasStatus: true, counts: true},
	"configmaps":             {name: "ConfigMap"},
	"poddisruptionbudgets":   {name: "PodDisruptionBudget", hasStatus: true},
}

// target is the resource or object in the path of a request.
type target struct {
	types.NamespacedName

	group       schema.GroupVersion
	resource    string
	subresource string
	kind        kind
}

// targetOf parses a path: /api/<version>/… or /apis/<group>/<version>/…, and then
// [namespaces/<namespace>/]<resource>[/<name>[/<subresource>]].
func targetOf(at *url.URL) (t target, err error) {
	parts := strings.Split(strings.Trim(at.Path, "/"), "/")
	unknown := apierrors.NewGenericServerResponse(404, "", schema.GroupResource{}, "", "no such path: "+at.Path, 0, false)
	switch {
	case len(parts) > 2 && parts[0] == "api":
		t.group, parts = schema.GroupVersion{Version: parts[1]}, parts[2:]
	case len(parts) > 3 && parts[0] == "apis":
		t.group, parts = schema.GroupVersion{Group: parts[1], Version: parts[2]}, parts[3:]
	default:
		return t, unknown
	}
	if len(parts) > 2 && parts[0] == "namespaces" {
		t.Namespace, parts = parts[1], parts[2:]
	}
	var known bool
	t.resource = parts[0]
	if t.kind, known = kinds[t.resource]; !known || len(parts) > 3 {
		return t, unknown
	}
	if len(parts) > 1 {
		t.Name = parts[1]
	}
	if len(parts) > 2 {
		t.subresource = parts[2]
	}
	return t, nil
}

func (t target) groupResource() schema.GroupResource {
	return schema.GroupResource{Group: t.group.Group, Resource: t.resource}
}

// IsResource reports whether a word is the plural of a resource of the server.
func IsResource(word string) bool {
	_, known := kinds[word]
	return known
}
