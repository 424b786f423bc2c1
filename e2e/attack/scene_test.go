//go:build e2e

package attack

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/yaml"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
	machineclientset "github.com/machine-controller-fleet/machine-controller-fleet/client/clientset/versioned"
	machineclient "github.com/machine-controller-fleet/machine-controller-fleet/client/clientset/versioned/typed/machine/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/e2e/harness"
	"github.com/machine-controller-fleet/machine-controller-fleet/membership"
)

const (
	// interval of the checks of a wait.
	interval = 200 * time.Millisecond
	// replicas of the fleet, and its slots.
	replicas, slots = 2, 64
	// concurrentSyncs is how many Machines of one namespace a replica processes at a time, and how
	// many calls with the same credentials.
	concurrentSyncs = 10
	// memoryLimit is that of the chart, in MiB.
	memoryLimit = 1024
	// healthTimeout is how long a machine may be unhealthy.
	healthTimeout = 10 * time.Second
)

// scene is a lab with a victim, and with a cloud and an address that attackers control.
type scene struct {
	ctx    context.Context //nolint:containedctx // it is the test's own, and ends before the lab is stopped
	lab    *harness.Lab
	victim *victim
	cloud  *badCloud
	pids   map[string]int // of the replicas

	sessions map[string]bool // that hold slots
	position harness.AuditPosition

	mu   sync.Mutex
	last []func(t *testing.T) // what is checked when all attacks have ended
}

func newScene(t *testing.T) *scene {
	t.Helper()
	s := &scene{cloud: newBadCloud(t)}
	s.ctx, s.lab = harness.Begin(t, harness.Options{
		Replicas: replicas, CloudEndpoints: s.cloud.endpoints(), Refused: "the fleet may not change",
		FleetFlags: fmt.Sprintf("--slots=%d --concurrent-syncs=%d --metrics-authorization --machine-health-timeout=%s",
			slots, concurrentSyncs, healthTimeout),
	}, nil)
	var err error
	if s.pids, err = s.lab.Pids(); err != nil {
		t.Fatal(err)
	}
	if s.victim, err = newVictim(s.ctx, s.lab); err != nil {
		t.Fatal(err)
	}
	s.cloud.stolen = s.victim.machines[0].Spec.ProviderID
	if s.sessions, err = s.holders(); err != nil {
		t.Fatal(err)
	}
	delete(s.sessions, "") // of slots that move
	if s.position, err = s.lab.AuditEnd(); err != nil {
		t.Fatal(err)
	}
	return s
}

// holders are the sessions that hold slots.
func (s *scene) holders() (map[string]bool, error) {
	bySlot, err := s.lab.Holders(s.ctx)
	sessions := map[string]bool{}
	for _, session := range bySlot {
		sessions[session] = true
	}
	return sessions, err
}

// atEnd has a check run when all attacks have ended.
func (s *scene) atEnd(check func(t *testing.T)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.last = append(s.last, check)
}

// end checks the victim once more, and that the replicas are the same processes, have kept their
// slots and have stayed small.
func (s *scene) end(t *testing.T) {
	t.Helper()
	for _, check := range s.last {
		check(t)
	}
	s.keptSlots(t)
	if err := s.victim.verdict(s.ctx); err != nil {
		t.Error(err)
	}
	pids, err := s.lab.Pids()
	if err != nil {
		t.Fatal(err)
	}
	for i := range replicas {
		name := fmt.Sprint("fleet-", i)
		if pids[name] != s.pids[name] {
			t.Errorf("%s has ended: its process was %d and is %d", name, s.pids[name], pids[name])
			continue
		}
		peak, err := peakMemory(pids[name])
		if err != nil {
			t.Fatal(err)
		}
		t.Logf("%s took up to %d MiB of memory", name, peak)
		if peak > memoryLimit {
			t.Errorf("%s took %d MiB of memory, and has %d in the chart", name, peak, memoryLimit)
		}
	}
}

// keptSlots checks that all slots are held by the sessions from before the attacks, and that each
// of these has renewed its Lease in time.
func (s *scene) keptSlots(t *testing.T) {
	t.Helper()
	// A slot that moves between the replicas has no holder for a moment.
	if err := harness.EventuallyEvery(s.ctx, interval, "all slots are held by the sessions from before", func(context.Context) error {
		now, err := s.holders()
		if err == nil && !maps.Equal(now, s.sessions) {
			err = fmt.Errorf("slots are held by %v, and were by %v", now, s.sessions)
		}
		return err
	}); err != nil {
		t.Error(err)
	}
	requests, err := s.lab.Requests(s.position)
	if err != nil {
		t.Fatal(err)
	}
	config := membership.DefaultConfig()
	last, longest, slowest := map[string]time.Time{}, time.Duration(0), time.Duration(0)
	for _, r := range requests {
		if r.Resource != "leases" || r.Verb != "update" || r.Code != http.StatusOK ||
			!strings.HasPrefix(r.Name, membership.SessionLeaseName(harness.FleetName, "")) {
			continue
		}
		if before, known := last[r.Name]; known {
			longest = max(longest, r.At.Sub(before))
		}
		last[r.Name], slowest = r.At, max(slowest, r.Took)
	}
	t.Logf("the API server took up to %s for a renewal, and the next one was answered within %s", slowest, longest)
	if len(last) != replicas || longest > config.Fence-config.RenewEvery {
		t.Errorf("%d sessions were renewed, the next time within %s; want %d and at most %s",
			len(last), longest, replicas, config.Fence-config.RenewEvery)
	}
}

// peakMemory returns the most memory that a process has had, in MiB.
func peakMemory(pid int) (int, error) {
	text, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "status"))
	if err != nil {
		return 0, fmt.Errorf("read the memory of a process: %w", err)
	}
	for line := range strings.Lines(string(text)) {
		if fields := strings.Fields(line); len(fields) > 1 && fields[0] == "VmHWM:" {
			kib, err := strconv.Atoi(fields[1])
			return kib >> 10, err
		}
	}
	return 0, fmt.Errorf("process %d has no VmHWM", pid)
}

// tenant is a client with the documented rights in one namespace of the control cluster: on the
// four kinds and Secrets, and not on statuses.
type tenant struct {
	*testing.T
	*scene

	user, namespace string
	writesStatus    bool

	api      machineclient.MachineV1alpha1Interface
	secrets  corev1client.SecretInterface
	position harness.AuditPosition
}

// kinds of the machine API.
var kinds = []string{"machinedeployments", "machinesets", "machines", "machineclasses"}

// tenant creates a namespace with a class, and a client that has the rights of the namespace.
func (s *scene) tenant(t *testing.T) *tenant {
	t.Helper()
	_, name, _ := strings.Cut(strings.ToLower(t.Name()), "/all/")
	user := "tenant-" + name
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	must(s.lab.Prepare(s.ctx, name, ""))
	role, err := documentedRole()
	must(err)
	must(s.grant(role, name, user))
	config := as(s.lab.Config, user)
	machines, err := machineclientset.NewForConfig(config)
	must(err)
	core, err := kubernetes.NewForConfig(config)
	must(err)
	position, err := s.lab.AuditEnd()
	must(err)
	a := &tenant{
		T: t, scene: s, user: user, namespace: name, api: machines.MachineV1alpha1(), secrets: core.CoreV1().Secrets(name), position: position,
	}
	t.Cleanup(a.finish)
	a.eventually("the tenant has his rights", func(ctx context.Context) error {
		_, err := a.secrets.Patch(ctx, harness.ClassName, types.MergePatchType, []byte("{}"), metav1.PatchOptions{})
		return err
	})
	return a
}

// documentedRole is the Role of a tenant in docs/operations/access.md.
func documentedRole() (*rbacv1.Role, error) {
	repository, err := harness.Repository()
	if err != nil {
		return nil, err
	}
	page, err := os.ReadFile(filepath.Join(repository, "docs", "operations", "access.md"))
	if err != nil {
		return nil, err
	}
	_, section, _ := strings.Cut(string(page), "\n## What a tenant may do\n")
	_, block, _ := strings.Cut(section, "\n```yaml\n")
	block, _, _ = strings.Cut(block, "\n```\n")
	role := &rbacv1.Role{}
	if err := yaml.UnmarshalStrict([]byte(block), role); err != nil || role.Name == "" {
		return nil, fmt.Errorf("the Role of a tenant in the documentation: %q, %w", role.Name, err)
	}
	return role, nil
}

// grant gives a user a Role in a namespace.
func (s *scene) grant(role *rbacv1.Role, namespace, user string) error {
	role.Namespace = namespace
	_, err1 := s.lab.Control.RbacV1().Roles(namespace).Create(s.ctx, role, metav1.CreateOptions{})
	_, err2 := s.lab.Control.RbacV1().RoleBindings(namespace).Create(s.ctx, &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: role.Name}, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: role.Name},
		Subjects: []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: user}},
	}, metav1.CreateOptions{})
	return errors.Join(err1, err2)
}

// withStatus is an attack of a tenant that may write statuses, too, which the documentation says
// not to grant.
func withStatus(attack func(*tenant)) func(*tenant) {
	return func(a *tenant) {
		a.Helper()
		a.must(a.grant(&rbacv1.Role{
			ObjectMeta: metav1.ObjectMeta{Name: "status"},
			Rules: []rbacv1.PolicyRule{{
				APIGroups: []string{v1alpha1.GroupName}, Resources: []string{"machines/status", "machinesets/status", "machinedeployments/status"},
				Verbs: []string{"patch"},
			}},
		}, a.namespace, a.user))
		a.eventually("the tenant may write statuses", func(ctx context.Context) error {
			_, err := a.api.Machines(a.namespace).Patch(ctx, "none", types.MergePatchType, []byte("{}"), metav1.PatchOptions{}, "status")
			return notFound(err)
		})
		a.writesStatus = true
		attack(a)
	}
}

// as returns the access of another user.
func as(config *rest.Config, user string, groups ...string) *rest.Config {
	config = rest.CopyConfig(config)
	config.Impersonate = rest.ImpersonationConfig{UserName: user, Groups: groups}
	config.WarningHandler = rest.NoWarnings{} // of fields that do not exist
	return config
}

// finish logs the cost of an attack, and checks the victim.
func (a *tenant) finish() {
	if err := a.victim.verdict(a.ctx); err != nil {
		a.Error(err)
	}
	requests, err := a.lab.Requests(a.position)
	if err != nil {
		a.Error(err)
		return
	}
	all, writes := 0, 0
	for _, r := range requests {
		if !r.IsFleet() || r.Namespace != a.namespace {
			continue
		}
		all++
		if r.IsWrite() {
			writes++
		}
	}
	a.Logf("it cost the fleet %d requests in the attacker's namespace, %d of them writes", all, writes)
	if a.Failed() {
		found, _ := a.lab.Kubectl(a.ctx, "-n", a.namespace, "get", "mcd,mcs,mc,mcc,events", "-o", "wide")
		a.Logf("in namespace %s:\n%s", a.namespace, found)
	}
}

func (a *tenant) must(err error) {
	a.Helper()
	if err != nil {
		a.Fatal(err)
	}
}

// eventually waits until check returns nil.
func (a *tenant) eventually(what string, check func(context.Context) error) {
	a.Helper()
	a.must(harness.EventuallyEvery(a.ctx, interval, what, check))
}

// secret creates a Secret.
func (a *tenant) secret(name string, data map[string]string) {
	a.Helper()
	_, err := a.secrets.Create(a.ctx, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: name}, StringData: data}, metav1.CreateOptions{})
	a.must(err)
}

// class creates a class with a Secret of the same name, for a cloud.
func (a *tenant) class(name, endpoint string, change ...func(*v1alpha1.MachineClass)) {
	a.Helper()
	a.secret(name, map[string]string{v1alpha1.SecretKeyUserData: harness.UserData, "endpoint": endpoint})
	class := harness.Class(a.namespace, "")
	class.Name, class.SecretRef.Name = name, name
	for _, f := range change {
		f(class)
	}
	_, err := a.api.MachineClasses(a.namespace).Create(a.ctx, class, metav1.CreateOptions{})
	a.must(err)
}

// mayWriteNotes gives the tenant a right that no tenant has: to write the fleet's notes. So it is
// tested how the fleet handles forged notes where the chart's policy does not reject them.
func (a *tenant) mayWriteNotes() {
	a.Helper()
	rbac, name := a.lab.Control.RbacV1(), "notes-of-"+a.namespace
	_, err := rbac.ClusterRoles().Create(a.ctx, &rbacv1.ClusterRole{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Rules: []rbacv1.PolicyRule{
			{APIGroups: []string{"fleet.machine.sapcloud.io"}, Resources: []string{"notes"}, Verbs: []string{"write"}},
		},
	}, metav1.CreateOptions{})
	a.must(err)
	_, err = rbac.ClusterRoleBindings().Create(a.ctx, &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: name}, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: name},
		Subjects: []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: a.user}},
	}, metav1.CreateOptions{})
	a.must(err)
}

// named returns a name for a Machine whose VM joins: Nodes of all tenants have their machines'
// names.
func (a *tenant) named(name string) string { return a.namespace + "-" + name }

// machine creates a Machine.
func (a *tenant) machine(name, class string, change ...func(*v1alpha1.Machine)) *v1alpha1.Machine {
	a.Helper()
	m := &v1alpha1.Machine{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: a.namespace},
		Spec:       v1alpha1.MachineSpec{Class: v1alpha1.ClassSpec{Kind: "MachineClass", Name: class}},
	}
	for _, f := range change {
		f(m)
	}
	created, err := a.api.Machines(a.namespace).Create(a.ctx, m, metav1.CreateOptions{})
	a.must(err)
	return created
}

// deploy creates a MachineDeployment of the namespace's class.
func (a *tenant) deploy(name string, n int32, change ...func(*v1alpha1.MachineDeployment)) {
	a.Helper()
	d := harness.Deployment(a.namespace, name, n)
	for _, f := range change {
		f(d)
	}
	_, err := a.api.MachineDeployments(a.namespace).Create(a.ctx, d, metav1.CreateOptions{})
	a.must(err)
}

// get reads a Machine.
func (a *tenant) get(ctx context.Context, name string) (*v1alpha1.Machine, error) {
	return a.api.Machines(a.namespace).Get(ctx, name, metav1.GetOptions{})
}

// reports waits until a machine's last operation has a code and some words, and returns its text,
// which is one printable line that is not too long.
func (a *tenant) reports(name, code string, words ...string) (text string) {
	a.Helper()
	a.eventually(fmt.Sprintf("machine %s reports %s, %q", name, code, words), func(ctx context.Context) error {
		m, err := a.get(ctx, name)
		if err != nil {
			return err
		}
		op := m.Status.LastOperation
		text = op.Description
		err = nil
		if op.ErrorCode != code {
			err = errors.Join(err, fmt.Errorf("its code is %q", op.ErrorCode))
		}
		for _, word := range words {
			if !strings.Contains(text, word) {
				err = errors.Join(err, fmt.Errorf("it does not contain %q", word))
			}
		}
		if err != nil {
			err = fmt.Errorf("last operation %+v: %w", op, err)
		}
		return err
	})
	if len(text) > maxText || strings.ContainsFunc(text, func(r rune) bool { return r < ' ' || r == 0x7f }) {
		a.Errorf("machine %s reports %d bytes: %q", name, len(text), text)
	}
	return text
}

// maxText is the largest text of a status, in bytes: a message of a cloud has 1 KiB, and some words
// precede it.
const maxText = 1200

// running waits until a machine runs.
func (a *tenant) running(name string) (m *v1alpha1.Machine) {
	a.Helper()
	a.eventually("machine "+name+" runs", func(ctx context.Context) (err error) {
		if m, err = a.get(ctx, name); err == nil && m.Status.CurrentStatus.Phase != v1alpha1.MachineRunning {
			err = fmt.Errorf("its status is %+v", m.Status)
		}
		return err
	})
	return m
}

// remove deletes a Machine.
func (a *tenant) remove(name string) {
	a.Helper()
	a.must(a.api.Machines(a.namespace).Delete(a.ctx, name, metav1.DeleteOptions{}))
}

// gone waits until a Machine is gone.
func (a *tenant) gone(name string) {
	a.Helper()
	a.eventually("machine "+name+" is gone", func(ctx context.Context) error {
		m, err := a.get(ctx, name)
		if err == nil {
			return fmt.Errorf("it still exists: %+v", m.Status)
		}
		return notFound(err)
	})
}
