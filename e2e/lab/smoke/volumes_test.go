//go:build e2e

package smoke

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"

	"github.com/machine-controller-fleet/machine-controller-fleet/e2e/lab/labtest"
	"github.com/machine-controller-fleet/machine-controller-fleet/e2e/lab/supervise"
	"github.com/machine-controller-fleet/machine-controller-fleet/e2e/simulated/cloudapi"
)

// site is a lab with VMs.
type site struct {
	*testing.T

	lab    lab
	client kubernetes.Interface
	cloud  string
	vms    map[string]string // IDs by name
}

// call makes a call to the cloud.
func call[T any](s *site, method, path string, in any) (out T) {
	s.Helper()
	body, err := json.Marshal(in)
	if err != nil {
		s.Fatal(err)
	}
	req, err := http.NewRequestWithContext(s.Context(), method, s.cloud+path, bytes.NewReader(body))
	if err != nil {
		s.Fatal(err)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		s.Fatal(err)
	}
	defer resp.Body.Close()
	answer, err := io.ReadAll(resp.Body)
	if err == nil && resp.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s: %s", resp.Status, answer)
	}
	if err == nil {
		err = json.Unmarshal(answer, &out)
	}
	if err != nil {
		s.Fatalf("%s %s: %v", method, path, err)
	}
	return out
}

// Volumes follow pods from Node to Node with what was written to them, one VM at a time.
func TestVolumes(t *testing.T) {
	t.Parallel()
	needMachines(t)
	l := newLab(t)
	l.run(t, "up", "--replicas=1", "--cloudsim-flags=--boot-time=0s --detach-latency=100ms")
	var endpoints map[string]string
	l.read(t, "endpoints.json", &endpoints)
	s := &site{T: t, lab: l, client: l.client(t, "target.kubeconfig"), cloud: endpoints["cloudsim"], vms: map[string]string{}}
	t.Cleanup(func() {
		if t.Failed() {
			s.report()
		}
	})
	token := bootstrapToken(t, s.client)
	boot := map[string]cloudapi.BootMode{"vm-a": cloudapi.BootKubelet, "vm-b": cloudapi.BootKubelet, "vm-simulated": cloudapi.BootSimulated}
	for name, mode := range boot {
		s.vms[name] = call[cloudapi.Instance](s, http.MethodPost, cloudapi.PathInstances, cloudapi.CreateInstanceRequest{
			Name: name, Boot: mode, UserData: []byte(token),
		}).ID
	}
	for name, mode := range boot {
		labtest.Until(t, name+" is ready", func(ctx context.Context) error { return s.ready(ctx, name, mode == cloudapi.BootKubelet) })
	}
	t.Run("simulated", func(t *testing.T) { s.in(t).simulated() })
	t.Run("move", func(t *testing.T) { s.in(t).move() })
	t.Run("end", func(t *testing.T) { s.in(t).end() })
}

// report logs the state of the VMs and pods.
func (s *site) report() {
	consoles, _ := filepath.Glob(s.lab.path("cloudsim/vms/*/console.log"))
	for _, command := range [][]string{
		{"curl", "-s", s.cloud + cloudapi.PathAllInstances},
		append([]string{"tail", "-n", "20", "-v", s.lab.path("logs/cloudsim.log")}, consoles...),
		{
			binary(s.T, "kubectl"), "--kubeconfig=" + s.lab.path("target.kubeconfig"), "get", "nodes,pods,pvc,pv,volumeattachments,events", "-o",
			"wide",
		},
	} {
		said, _ := exec.Command(command[0], command[1:]...).CombinedOutput()
		s.Logf("%s", said)
	}
}

func (s *site) in(t *testing.T) *site {
	t.Helper()
	return &site{T: t, lab: s.lab, client: s.client, cloud: s.cloud, vms: s.vms}
}

// ready returns an error while a Node is not ready. A real one has to have registered the CSI
// driver.
func (s *site) ready(ctx context.Context, name string, driver bool) error {
	node, err := s.client.CoreV1().Nodes().Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return err
	}
	for _, condition := range node.Status.Conditions {
		if condition.Type == corev1.NodeReady && condition.Status != corev1.ConditionTrue {
			return errors.New(condition.Message)
		}
	}
	if len(node.Spec.Taints) > 0 {
		return fmt.Errorf("taints %v", node.Spec.Taints)
	}
	if !driver {
		return nil
	}
	csi, err := s.client.StorageV1().CSINodes().Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return err
	}
	for _, d := range csi.Spec.Drivers {
		if d.Name == cloudapi.CSIDriver && d.NodeID == s.vms[name] {
			return nil
		}
	}
	return fmt.Errorf("drivers %v", csi.Spec.Drivers)
}

// simulated runs a pod with a volume on a simulated Node.
func (s *site) simulated() {
	set := database("simulated", 1)
	set.Spec.Template.Spec.NodeSelector = map[string]string{corev1.LabelHostname: "vm-simulated"}
	s.create(set)
	if at := s.runs("simulated-0"); at != "vm-simulated" {
		s.Errorf("the pod is on %s", at)
	}
	s.attached("simulated-0", "vm-simulated")
}

// move makes pods write to their volumes, and one move to another Node.
func (s *site) move() {
	set := database("db", 2)
	set.Spec.Template.Spec.NodeSelector = map[string]string{"real": "yes"}
	for _, name := range []string{"vm-a", "vm-b"} {
		s.patchNode(name, `{"metadata":{"labels":{"real":"yes"}}}`)
	}
	s.create(set)
	from, other := s.runs("db-0"), s.runs("db-1")
	to := map[string]string{"vm-a": "vm-b", "vm-b": "vm-a"}[from]
	s.says("db-0", "db-0 on "+from)
	s.says("db-1", "db-1 on "+other)
	s.attached("db-0", from)

	const attach, detach = 3 * time.Second, 2 * time.Second
	call[cloudapi.Settings](s, http.MethodPatch, cloudapi.PathSettings, json.RawMessage(fmt.Sprintf(
		`{"latency": {"AttachVolume": {"mean": %q}, "DetachVolume": {"mean": %q}}}`, attach, detach)))
	s.patchNode(from, `{"spec":{"unschedulable":true}}`)
	before := len(s.calls())
	if err := s.client.CoreV1().Pods("default").Delete(s.Context(), "db-0", metav1.DeleteOptions{}); err != nil {
		s.Fatal(err)
	}
	labtest.Until(s.T, "the pod is on another Node", func(ctx context.Context) error {
		pod, err := s.client.CoreV1().Pods("default").Get(ctx, "db-0", metav1.GetOptions{})
		if err == nil && pod.Spec.NodeName != to {
			err = fmt.Errorf("it is on %q", pod.Spec.NodeName)
		}
		return err
	})
	s.runs("db-0")
	s.says("db-0", "db-0 on "+from, "db-0 on "+to)
	s.attached("db-0", to)
	s.says("db-1", "db-1 on "+other)

	var detached, attached *cloudapi.Call
	for _, c := range s.calls()[before:] {
		switch {
		case c.Operation == cloudapi.OpDetachVolume && c.Changed:
			detached = &c
		case c.Operation == cloudapi.OpAttachVolume && c.Changed:
			attached = &c
		}
	}
	switch {
	case detached == nil || attached == nil:
		s.Errorf("in the call log: detach %v, attach %v", detached, attached)
	case detached.Instance != s.vms[from] || attached.Instance != s.vms[to]:
		s.Errorf("detached from %s and attached to %s; want %s and %s", detached.Instance, attached.Instance, s.vms[from], s.vms[to])
	case detached.End.Sub(detached.Start) < detach || attached.End.Sub(attached.Start) < attach || attached.Start.Before(detached.End):
		s.Errorf("detached from %v to %v, attached from %v to %v", detached.Start, detached.End, attached.Start, attached.End)
	}
	s.patchNode(from, `{"spec":{"unschedulable":false}}`)
}

// end ends a VM with a volume: the volume is released when nothing of the VM runs any more.
func (s *site) end() {
	name := s.runs("db-0")
	volume := s.volume("db-0")
	call[cloudapi.Instance](s, http.MethodDelete, strings.Replace(cloudapi.PathInstance, "{id}", s.vms[name], 1), nil)
	labtest.Until(s.T, "the volume is released", func(context.Context) error {
		if at := s.at(volume); at != "" {
			return fmt.Errorf("it is attached to %s", at)
		}
		return nil
	})
	left, err := supervise.WithEnv("CLOUDSIM_VM_DIR", s.lab.path("cloudsim/vms/"+s.vms[name]))
	if err != nil || len(left) > 0 {
		s.Errorf("the volume is free, and processes %v of its VM live: %v", left, err)
	}
}

func (s *site) create(set *appsv1.StatefulSet) {
	s.Helper()
	if _, err := s.client.AppsV1().StatefulSets("default").Create(s.Context(), set, metav1.CreateOptions{}); err != nil {
		s.Fatal(err)
	}
}

// database is a StatefulSet each pod of which writes to a volume where it runs, and prints all that
// is written there.
func database(name string, replicas int32) *appsv1.StatefulSet {
	labels := map[string]string{"app": name}
	return &appsv1.StatefulSet{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: appsv1.StatefulSetSpec{
			Replicas: &replicas, ServiceName: name, Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: labels},
				Spec: corev1.PodSpec{Containers: []corev1.Container{{
					Name: "main", Image: "registry.example.com/database:v1",
					Command: []string{
						"sh", "-ec", `trap 'exit 0' TERM; echo "$(hostname) on $NODE" >> /data/file; cat /data/file; while :; do sleep 0.1; done`,
					},
					Env: []corev1.EnvVar{
						{Name: "NODE", ValueFrom: &corev1.EnvVarSource{FieldRef: &corev1.ObjectFieldSelector{FieldPath: "spec.nodeName"}}},
					},
					VolumeMounts: []corev1.VolumeMount{{Name: "data", MountPath: "/data"}},
				}}},
			},
			VolumeClaimTemplates: []corev1.PersistentVolumeClaim{{
				ObjectMeta: metav1.ObjectMeta{Name: "data"},
				Spec: corev1.PersistentVolumeClaimSpec{
					AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
					Resources:   corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")}},
				},
			}},
		},
	}
}

// runs waits until a pod does, and returns its Node.
func (s *site) runs(name string) (node string) {
	s.Helper()
	labtest.Until(s.T, name+" runs", func(ctx context.Context) error {
		pod, err := s.client.CoreV1().Pods("default").Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		if node = pod.Spec.NodeName; pod.Status.Phase != corev1.PodRunning || pod.DeletionTimestamp != nil {
			return fmt.Errorf("it is %s on %q: %v", pod.Status.Phase, node, pod.Status.Conditions)
		}
		return nil
	})
	return node
}

// says checks the lines of a pod's log.
func (s *site) says(name string, lines ...string) {
	s.Helper()
	want := strings.Join(lines, "\n") + "\n"
	labtest.Until(s.T, name+" says what is in its volume", func(ctx context.Context) error {
		log, err := s.client.CoreV1().Pods("default").GetLogs(name, &corev1.PodLogOptions{}).DoRaw(ctx)
		if err == nil && string(log) != want {
			err = fmt.Errorf("it says %q, want %q", log, want)
		}
		return err
	})
}

// volume returns the cloud's ID of a pod's volume.
func (s *site) volume(pod string) string {
	s.Helper()
	claim, err := s.client.CoreV1().PersistentVolumeClaims("default").Get(s.Context(), "data-"+pod, metav1.GetOptions{})
	if err != nil {
		s.Fatal(err)
	}
	pv, err := s.client.CoreV1().PersistentVolumes().Get(s.Context(), claim.Spec.VolumeName, metav1.GetOptions{})
	if err != nil {
		s.Fatal(err)
	}
	return pv.Spec.CSI.VolumeHandle
}

// at returns the VM that a volume is attached to.
func (s *site) at(volume string) string {
	s.Helper()
	return call[cloudapi.Volume](s, http.MethodGet, strings.Replace(cloudapi.PathVolume, "{id}", volume, 1), nil).AttachedTo
}

// attached checks that the volume of a pod is attached to a VM.
func (s *site) attached(pod, vm string) {
	s.Helper()
	if at := s.at(s.volume(pod)); at != s.vms[vm] {
		s.Errorf("the volume of %s is attached to %q, want %s", pod, at, s.vms[vm])
	}
}

func (s *site) patchNode(name, patch string) {
	s.Helper()
	_, err := s.client.CoreV1().Nodes().Patch(s.Context(), name, types.MergePatchType, []byte(patch), metav1.PatchOptions{})
	if err != nil {
		s.Fatal(err)
	}
}

// calls reads the cloud's call log.
func (s *site) calls() (all []cloudapi.Call) {
	s.Helper()
	file, err := os.Open(s.lab.path("cloudsim-calls.jsonl"))
	if err != nil {
		s.Fatal(err)
	}
	defer file.Close()
	for lines := bufio.NewScanner(file); lines.Scan(); {
		var c cloudapi.Call
		if err := json.Unmarshal(lines.Bytes(), &c); err != nil {
			s.Fatal(err)
		}
		all = append(all, c)
	}
	return all
}
