//go:build e2e

package e2e

import (
	"context"
	"fmt"
	"path/filepath"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/e2e/harness"
)

// quickCloud has VMs that join soon.
const quickCloud = "--create-latency=500ms --delete-latency=500ms --boot-time=1s"

// TestUpstreamAutoscaler runs upstream's cluster-autoscaler, unmodified, with pods that are
// pending: it scales two pools of two zones from zero, tries the other zone where one has no
// capacity, and scales down again.
func TestUpstreamAutoscaler(t *testing.T) {
	up := newUpstream(t)
	lab := startLab(t, "upstream-autoscaler", func(o *harness.Options) {
		o.FleetFlags, o.CloudsimFlags = up.fleetFlags(), quickCloud
	})
	s := newSpace(t, lab, "upstream", "")
	s.workload()
	const most = 3 // pods in sim-1b are as many, so that only sim-1a may grow for others
	s.pool("sim-1a", "sim-1a", 10)
	s.pool("sim-1b", "sim-1b", most)
	up.autoscale(s, filepath.Join(lab.Dir, "admin.kubeconfig"))

	s.load("zoned", most, "sim-1b")
	s.running("sim-1b", most)
	s.scheduled("zoned", most)
	if all, err := s.machines(t.Context(), "sim-1a"); err != nil || len(all) > 0 {
		t.Errorf("machines in the other zone: %d, %v", len(all), err)
	}

	s.must(lab.Cloud.Set(t.Context(), `{"failedZones":["sim-1a"]}`))
	s.load("any", 2, "sim-1a", "sim-1b")
	s.eventually("sim-1a is given up", func(ctx context.Context) error {
		d, err := s.api().MachineDeployments(s.name).Get(ctx, "sim-1a", metav1.GetOptions{})
		const shrunk = 3 // after its creation, and after it has grown
		if err == nil && (d.Generation < shrunk || d.Spec.Replicas > 0) {
			err = fmt.Errorf("it has generation %d and %d replicas", d.Generation, d.Spec.Replicas)
		}
		return err
	})
	s.mostOf("sim-1b", 10)
	s.scheduled("any", 2)
	s.running("sim-1b", 5)
	s.running("sim-1a", 0)

	s.unload("zoned", "any")
	s.running("sim-1b", 0)
	s.removePools("sim-1a", "sim-1b")
}

// TestUpstreamAutoscalerOfLargePools runs two of upstream's cluster-autoscalers for two namespaces,
// of which one gets many pods at once. The fleet loses the replica that they are connected to, is
// scaled, and replaces machines meanwhile. The sizes are those that the pods need, and only the
// Nodes without pods go.
func TestUpstreamAutoscalerOfLargePools(t *testing.T) {
	const burst, after, less, rolled = 200, 50, 45, 60
	up := newUpstream(t)
	lab := startLab(t, "upstream-large", func(o *harness.Options) {
		o.FleetFlags, o.CloudsimFlags, o.Replicas = up.fleetFlags(), quickCloud, mostReplicas
	})
	s, other := newSpace(t, lab, "upstream", ""), newSpace(t, lab, "upstream-other", "")
	for _, of := range []*space{s, other} {
		of.workload()
		of.pool("a", "sim-1a", 300)
		up.autoscale(of, filepath.Join(lab.Dir, "admin.kubeconfig"))
	}
	s.pool("b", "sim-1b", 300)

	s.load("burst", burst, "sim-1a")
	other.load("few", 5, "sim-1a")
	s.eventually("the pool grows", func(ctx context.Context) error {
		d, err := s.api().MachineDeployments(s.name).Get(ctx, "a", metav1.GetOptions{})
		if err == nil && d.Spec.Replicas == 0 {
			err = fmt.Errorf("it has %d replicas", d.Spec.Replicas)
		}
		return err
	})
	s.must(lab.Do(s.Context(), "fleet-0", "kill")) // the one that they are connected to
	s.running("a", burst)
	s.scheduled("burst", burst)
	other.running("a", 5)
	s.must(lab.Restart(s.Context(), "fleet-0"))

	s.resize("burst", after)
	s.running("a", after)
	s.scheduled("burst", after)

	// Up in one pool and down in the other, while slots move.
	s.must(lab.Scale(s.Context(), mostReplicas-1))
	before := s.uids("a")
	s.resize("burst", less)
	s.load("more", 10, "sim-1b")
	s.running("a", less)
	s.running("b", 10)
	s.scheduled("burst", less)
	s.scheduled("more", 10)
	gone := before
	for uid := range s.uids("a") {
		if !before[uid] {
			t.Errorf("machine %s is new: another one than those without pods was deleted", uid)
		}
		delete(gone, uid)
	}
	if len(gone) != after-less {
		t.Errorf("%d machines are gone, want %d", len(gone), after-less)
	}

	s.patch("machinedeployments", "a", `{"spec":{"template":{"metadata":{"labels":{"version":"2"}},"spec":{"nodeTemplate":{"metadata":{"labels":{"version":"2"}}}}}}}`)
	s.resize("burst", rolled)
	s.scheduled("burst", rolled)
	s.lasting("all machines are of the second version", func(ctx context.Context) error {
		all, err := s.machines(ctx, "a")
		for _, m := range all {
			if err == nil && m.Labels["version"] != "2" {
				err = fmt.Errorf("%s is not", m.Name)
			}
		}
		return err
	})
	s.running("a", rolled)
	other.running("a", 5)

	s.unload("burst", "more")
	other.unload("few")
	s.running("a", 0)
	s.running("b", 0)
	other.running("a", 0)
	s.removePools("a", "b")
	other.removePools("a")
}

// TestUpstreamAutoscalersOfALandscape runs one of upstream's cluster-autoscalers for each of three
// namespaces with a target cluster each, all of one fleet. Each scales its own.
func TestUpstreamAutoscalersOfALandscape(t *testing.T) {
	up := newUpstream(t)
	lab := startLab(t, "upstream-landscape", func(o *harness.Options) {
		o.FleetFlags, o.CloudsimFlags, o.Clusters, o.Replicas = up.fleetFlags(), quickCloud, 3, mostReplicas
	})
	members, err := lab.Members()
	if err != nil {
		t.Fatal(err)
	}
	all := make([]*space, len(members))
	for i, m := range members {
		of, kubeconfig, err := lab.Of(m)
		if err != nil {
			t.Fatal(err)
		}
		all[i] = newSpaceBy(t, of, m.Name, func(context.Context, string) error { return nil }) // the lab has prepared it
		s := all[i]
		s.workload()
		s.pool("a", "sim-1a", 10)
		start(s, "hyperkube", "kube-scheduler", "--kubeconfig="+kubeconfig, "--leader-elect=false", "--secure-port=0")
		up.autoscale(s, kubeconfig)
	}
	for i, s := range all {
		s.load("pods", int32(i+1), "sim-1a")
	}
	for i, s := range all {
		s.running("a", i+1)
		s.scheduled("pods", i+1)
	}
	all[0].unload("pods")
	all[0].running("a", 0)
	for i, s := range all[1:] {
		s.running("a", i+2)
		s.unload("pods")
	}
	for _, s := range all {
		s.running("a", 0)
		s.removePools("a")
	}
}

// mayAutoscale lets a ServiceAccount of the namespace scale.
func (s *space) mayAutoscale(account string) {
	s.Helper()
	api := s.lab.Control.RbacV1()
	meta := metav1.ObjectMeta{Name: account, Namespace: s.name}
	_, err := api.Roles(s.name).Create(s.Context(), &rbacv1.Role{ObjectMeta: meta, Rules: []rbacv1.PolicyRule{
		{APIGroups: []string{v1alpha1.GroupName}, Resources: []string{"machinedeployments"}, Verbs: []string{v1alpha1.VerbAutoscale}},
	}}, metav1.CreateOptions{})
	s.must(err)
	_, err = api.RoleBindings(s.name).Create(s.Context(), &rbacv1.RoleBinding{
		ObjectMeta: meta, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: account},
		Subjects: []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Name: account, Namespace: s.name}},
	}, metav1.CreateOptions{})
	s.must(err)
}

// labelTenant is the label of Nodes and pods with the namespace that they belong to: one cluster
// may have the pods of several autoscalers.
const labelTenant = "example.com/tenant"

// pool creates a node group in a zone, without machines. Its class has the Secret of the
// namespace's.
func (s *space) pool(name, zone string, most int) {
	s.Helper()
	classes, err := s.api().MachineClasses(s.name).List(s.Context(), metav1.ListOptions{Limit: 1})
	s.must(err)
	class := harness.Class(s.name, fmt.Sprintf(`{"zone":%q}`, zone))
	class.Name, class.SecretRef = name, classes.Items[0].SecretRef
	class.NodeTemplate = &v1alpha1.NodeTemplate{
		Capacity:     corev1.ResourceList{"cpu": resource.MustParse("4"), "memory": resource.MustParse("16Gi"), "gpu": resource.MustParse("0")},
		InstanceType: "standard-4", Region: "sim-1", Zone: zone,
	}
	_, err = s.api().MachineClasses(s.name).Create(s.Context(), class, metav1.CreateOptions{})
	s.must(err)
	s.deploy(name, 0, func(d *v1alpha1.MachineDeployment) {
		d.Annotations = map[string]string{v1alpha1.AnnotationMaxSize: fmt.Sprint(most)}
		d.Spec.Template.Spec.Class.Name = name
		d.Spec.Template.Spec.NodeTemplateSpec.Labels = map[string]string{labelTenant: s.name}
	})
	s.eventually(name+" is there", func(ctx context.Context) error {
		d, err := s.api().MachineDeployments(s.name).Get(ctx, name, metav1.GetOptions{})
		if err == nil && len(d.Status.Conditions) == 0 {
			err = fmt.Errorf("its status is %+v", d.Status)
		}
		return err
	})
}

// removePools deletes node groups, and waits until nothing is left.
func (s *space) removePools(names ...string) {
	s.Helper()
	for _, name := range names {
		s.remove("machinedeployments", name)
	}
	s.gone()
}

// mostOf sets the maximum of a node group.
func (s *space) mostOf(pool string, most int) {
	s.Helper()
	s.patch("machinedeployments", pool, fmt.Sprintf(`{"metadata":{"annotations":{%q:"%d"}}}`, v1alpha1.AnnotationMaxSize, most))
}

// uids returns the machines of a node group.
func (s *space) uids(pool string) map[types.UID]bool {
	s.Helper()
	all, err := s.machines(s.Context(), pool)
	s.must(err)
	uids := map[types.UID]bool{}
	for _, m := range all {
		uids[m.UID] = true
	}
	return uids
}

// load creates pods, each of which needs a Node for itself, in one of the zones.
func (s *space) load(name string, pods int32, zones ...string) {
	s.Helper()
	labels := map[string]string{"app": name}
	spec := pause()
	spec.TerminationGracePeriodSeconds = new(int64(1))
	spec.NodeSelector = map[string]string{labelTenant: s.name}
	spec.Containers[0].Resources.Requests = corev1.ResourceList{"cpu": resource.MustParse("3")}
	in := corev1.NodeSelectorRequirement{Key: corev1.LabelTopologyZone, Operator: corev1.NodeSelectorOpIn, Values: zones}
	spec.Affinity = &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{
		RequiredDuringSchedulingIgnoredDuringExecution: &corev1.NodeSelector{
			NodeSelectorTerms: []corev1.NodeSelectorTerm{{MatchExpressions: []corev1.NodeSelectorRequirement{in}}},
		},
	}}
	_, err := s.lab.Target.AppsV1().Deployments(s.name).Create(s.Context(), &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: appsv1.DeploymentSpec{
			Replicas: &pods, Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: spec},
		},
	}, metav1.CreateOptions{})
	s.must(err)
}

// resize changes the number of pods of a load.
func (s *space) resize(name string, pods int) {
	s.Helper()
	patch := fmt.Appendf(nil, `{"spec":{"replicas":%d}}`, pods)
	_, err := s.lab.Target.AppsV1().Deployments(s.name).Patch(s.Context(), name, types.MergePatchType, patch, metav1.PatchOptions{})
	s.must(err)
}

// unload deletes the pods of loads.
func (s *space) unload(names ...string) {
	s.Helper()
	for _, name := range names {
		s.must(s.lab.Target.AppsV1().Deployments(s.name).Delete(s.Context(), name, metav1.DeleteOptions{}))
	}
}

// scheduled waits until the pods of a load have Nodes.
func (s *space) scheduled(name string, pods int) {
	s.Helper()
	s.lasting(fmt.Sprintf("%d pods of %s have Nodes", pods, name), func(ctx context.Context) error {
		list, err := s.lab.Target.CoreV1().Pods(s.name).List(ctx, metav1.ListOptions{LabelSelector: "app=" + name})
		if err != nil {
			return err
		}
		on := 0
		for _, pod := range list.Items {
			if pod.Spec.NodeName != "" && pod.DeletionTimestamp == nil {
				on++
			}
		}
		if on != pods {
			return fmt.Errorf("%d have", on)
		}
		return nil
	})
}
