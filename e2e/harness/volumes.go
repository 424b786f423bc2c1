package harness

import (
	"context"
	"net/http"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/machine-controller-fleet/machine-controller-fleet/e2e/simulated/cloudapi"
)

// Volumes returns all volumes of the cloud, each with the VM that it is attached to. It is a call
// of the cloud like others, with latency, faults and a line in the call log.
func (c *Cloud) Volumes(ctx context.Context) ([]cloudapi.Volume, error) {
	var all cloudapi.VolumeList
	err := send(ctx, http.MethodGet, c.endpoint+cloudapi.PathVolumes, nil, &all)
	return all.Items, err
}

// StatefulSet is one whose pods have a volume each, in place of a database. A pod adds a line to a
// file there, with its name and its Node, and logs the content of the file. It ends at once when it
// is terminated.
func StatefulSet(namespace, name string, replicas int32) *appsv1.StatefulSet {
	labels := map[string]string{"app": name}
	return &appsv1.StatefulSet{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: namespace},
		Spec: appsv1.StatefulSetSpec{
			Replicas: &replicas, ServiceName: name, Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: labels},
				Spec: corev1.PodSpec{Containers: []corev1.Container{{
					Name: "main", Image: "none",
					Command: []string{
						"sh", "-ec", `trap 'exit 0' TERM; echo "$(hostname) on $NODE" >> /data/file; cat /data/file; while :; do sleep 0.1; done`,
					},
					Env: []corev1.EnvVar{{
						Name: "NODE", ValueFrom: &corev1.EnvVarSource{FieldRef: &corev1.ObjectFieldSelector{FieldPath: "spec.nodeName"}},
					}},
					VolumeMounts: []corev1.VolumeMount{{Name: "data", MountPath: "/data"}},
				}}},
			},
			VolumeClaimTemplates: []corev1.PersistentVolumeClaim{{
				ObjectMeta: metav1.ObjectMeta{Name: "data"},
				Spec: corev1.PersistentVolumeClaimSpec{
					AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
					Resources: corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{
						corev1.ResourceStorage: resource.MustParse("1Gi"),
					}},
				},
			}},
		},
	}
}
