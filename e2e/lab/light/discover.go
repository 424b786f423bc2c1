package light

import (
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// groups has the resources that kubectl finds, by group and version: plural, kind, short name, and
// whether they are in Namespaces.
var groups = map[string][]metav1.APIResource{
	"v1": {
		{Name: "nodes", SingularName: "node", Kind: "Node", ShortNames: []string{"no"}},
		{Name: "pods", SingularName: "pod", Kind: "Pod", ShortNames: []string{"po"}, Namespaced: true},
		{Name: "secrets", SingularName: "secret", Kind: "Secret", Namespaced: true},
		{Name: "configmaps", SingularName: "configmap", Kind: "ConfigMap", ShortNames: []string{"cm"}, Namespaced: true},
		{Name: "namespaces", SingularName: "namespace", Kind: "Namespace", ShortNames: []string{"ns"}},
		{Name: "persistentvolumes", SingularName: "persistentvolume", Kind: "PersistentVolume", ShortNames: []string{"pv"}},
		{
			Name:         "persistentvolumeclaims",
			SingularName: "persistentvolumeclaim",
			Kind:         "PersistentVolumeClaim",
			ShortNames:   []string{"pvc"},
			Namespaced:   true,
		},
	},
	"coordination.k8s.io/v1": {{Name: "leases", SingularName: "lease", Kind: "Lease", Namespaced: true}},
	"events.k8s.io/v1":       {{Name: "events", SingularName: "event", Kind: "Event", ShortNames: []string{"ev"}, Namespaced: true}},
	"policy/v1": {{
		Name:         "poddisruptionbudgets",
		SingularName: "poddisruptionbudget",
		Kind:         "PodDisruptionBudget",
		ShortNames:   []string{"pdb"},
		Namespaced:   true,
	}},
	"storage.k8s.io/v1": {
		{Name: "volumeattachments", SingularName: "volumeattachment", Kind: "VolumeAttachment"},
		{Name: "csidrivers", SingularName: "csidriver", Kind: "CSIDriver"},
	},
}

// discover answers what the API server has; nil if that is not requested.
func discover(path []string) any {
	switch {
	case len(path) == 1 && path[0] == "api":
		return metav1.APIVersions{TypeMeta: metav1.TypeMeta{Kind: "APIVersions"}, Versions: []string{"v1"}}
	case len(path) == 1 && path[0] == "apis":
		list := metav1.APIGroupList{TypeMeta: metav1.TypeMeta{Kind: "APIGroupList", APIVersion: "v1"}}
		for groupVersion := range groups {
			if group, version, found := strings.Cut(groupVersion, "/"); found {
				is := metav1.GroupVersionForDiscovery{GroupVersion: groupVersion, Version: version}
				list.Groups = append(list.Groups, metav1.APIGroup{Name: group, Versions: []metav1.GroupVersionForDiscovery{is}, PreferredVersion: is})
			}
		}
		return list
	}
	groupVersion := strings.TrimPrefix(strings.TrimPrefix(strings.Join(path, "/"), "apis/"), "api/")
	if groups[groupVersion] == nil {
		return nil
	}
	list := metav1.APIResourceList{TypeMeta: metav1.TypeMeta{Kind: "APIResourceList", APIVersion: "v1"}, GroupVersion: groupVersion}
	for _, resource := range groups[groupVersion] {
		resource.Verbs = metav1.Verbs{"get", "list", "watch", "create", "update", "patch", "delete"}
		list.APIResources = append(list.APIResources, resource)
	}
	return list
}
