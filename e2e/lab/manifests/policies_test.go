package manifests

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"testing"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/admission/plugin/cel"
	"k8s.io/apiserver/pkg/admission/plugin/policy/validating"
	"k8s.io/apiserver/pkg/admission/plugin/webhook/matchconditions"
	celconfig "k8s.io/apiserver/pkg/apis/cel"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/apiserver/pkg/cel/environment"
	"sigs.k8s.io/yaml"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
)

// policy is an admission policy, compiled as the API server compiles it.
type policy struct {
	*admissionregistrationv1.ValidatingAdmissionPolicy

	validator validating.Validator
}

// policiesOf reads and compiles the admission policies of manifests.
func policiesOf(t *testing.T, manifests []byte) []policy {
	t.Helper()
	var found []policy
	bindings := map[string]bool{}
	for reader := utilyaml.NewYAMLReader(bufio.NewReader(bytes.NewReader(manifests))); ; {
		document, err := reader.Read()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		var kind metav1.TypeMeta
		if err := yaml.Unmarshal(document, &kind); err != nil {
			t.Fatal(err)
		}
		switch kind.Kind {
		case "ValidatingAdmissionPolicy":
			p := &admissionregistrationv1.ValidatingAdmissionPolicy{}
			if err := yaml.UnmarshalStrict(document, p); err != nil {
				t.Fatal(err)
			}
			found = append(found, policy{p, compile(t, p)})
		case "ValidatingAdmissionPolicyBinding":
			b := &admissionregistrationv1.ValidatingAdmissionPolicyBinding{}
			if err := yaml.UnmarshalStrict(document, b); err != nil {
				t.Fatal(err)
			}
			bindings[b.Spec.PolicyName] = slices.Contains(b.Spec.ValidationActions, admissionregistrationv1.Deny)
		}
	}
	for _, p := range found {
		if !bindings[p.Name] {
			t.Errorf("policy %s has no binding that denies", p.Name)
		}
	}
	return found
}

func compile(t *testing.T, p *admissionregistrationv1.ValidatingAdmissionPolicy) validating.Validator {
	t.Helper()
	compiler, err := cel.NewCompositedCompiler(environment.MustBaseEnvSet(environment.DefaultCompatibilityVersion()))
	if err != nil {
		t.Fatal(err)
	}
	check := func(what string, result cel.CompilationResult) {
		if result.Error != nil {
			t.Fatalf("policy %s, %s: %v", p.Name, what, result.Error)
		}
	}
	options := cel.OptionalVariableDeclarations{HasAuthorizer: true}
	for _, v := range p.Spec.Variables {
		check("variable "+v.Name,
			compiler.CompileAndStoreVariable(&validating.Variable{Name: v.Name, Expression: v.Expression}, options, environment.NewExpressions))
	}
	var matches, validations []cel.ExpressionAccessor
	for i := range p.Spec.MatchConditions {
		m := (*matchconditions.MatchCondition)(&p.Spec.MatchConditions[i])
		check("match condition "+m.Name, compiler.CompileCELExpression(m, options, environment.NewExpressions))
		matches = append(matches, m)
	}
	for i, v := range p.Spec.Validations {
		c := &validating.ValidationCondition{Expression: v.Expression, Message: v.Message, Reason: v.Reason}
		check(fmt.Sprintf("validation %d", i+1), compiler.CompileCELExpression(c, options, environment.NewExpressions))
		validations = append(validations, c)
	}
	matcher := matchconditions.NewMatcher(compiler.CompileCondition(matches, options, environment.NewExpressions),
		p.Spec.FailurePolicy, "policy", "validate", p.Name)
	none := compiler.CompileCondition(nil, options, environment.NewExpressions)
	return validating.NewValidator(compiler.CompileCondition(validations, options, environment.NewExpressions), matcher, none,
		none, p.Spec.FailurePolicy, nil)
}

// request is a write of an object: without before it creates the object, without after it deletes
// it.
type request struct {
	user          string // "" is a replica
	pod           string // that the token of a replica names; "" is none, as in a lab without pods
	status        bool   // of the subresource
	before, after runtime.Object
}

// refusal returns why policies reject a request; "" when they do not.
func (r request) refusal(t *testing.T, policies []policy) string {
	t.Helper()
	some := r.after
	operation := admission.Update
	var options runtime.Object = &metav1.UpdateOptions{}
	switch {
	case r.before == nil:
		operation, options = admission.Create, &metav1.CreateOptions{}
	case r.after == nil:
		some, operation, options = r.before, admission.Delete, &metav1.DeleteOptions{}
	}
	kind, resource := corev1.SchemeGroupVersion.WithKind("Secret"), "secrets"
	switch some.(type) {
	case *corev1.Node:
		kind, resource = corev1.SchemeGroupVersion.WithKind("Node"), "nodes"
	case *corev1.Pod:
		kind, resource = corev1.SchemeGroupVersion.WithKind("Pod"), "pods"
	case *coordinationv1.Lease:
		kind, resource = coordinationv1.SchemeGroupVersion.WithKind("Lease"), "leases"
	case *v1alpha1.MachineDeployment:
		kind, resource = v1alpha1.SchemeGroupVersion.WithKind("MachineDeployment"), "machinedeployments"
	case *v1alpha1.MachineSet:
		kind, resource = v1alpha1.SchemeGroupVersion.WithKind("MachineSet"), "machinesets"
	case *v1alpha1.Machine:
		kind, resource = v1alpha1.SchemeGroupVersion.WithKind("Machine"), "machines"
	case *v1alpha1.MachineClass:
		kind, resource = v1alpha1.SchemeGroupVersion.WithKind("MachineClass"), "machineclasses"
	}
	subresource := ""
	if r.status {
		subresource = "status"
	}
	who := &user.DefaultInfo{Name: "fleet-0", Groups: []string{"machine-controller-fleet", "system:authenticated"}}
	if r.user != "" {
		who = &user.DefaultInfo{Name: r.user}
	}
	if r.pod != "" {
		who.Extra = map[string][]string{"authentication.kubernetes.io/pod-name": {r.pod}}
	}
	object, _ := some.(metav1.Object)
	gvr := schema.GroupVersionResource{Group: kind.Group, Version: kind.Version, Resource: resource}
	attributes := &admission.VersionedAttributes{
		Attributes: admission.NewAttributesRecord(r.after, r.before, kind, object.GetNamespace(), object.GetName(), gvr, subresource,
			operation, options, false, who),
		VersionedKind: kind, VersionedObject: admission.NewLazyObject(r.after), VersionedOldObject: admission.NewLazyObject(r.before),
	}
	for _, p := range policies {
		if !concerns(p, kind.Group, strings.TrimSuffix(resource+"/"+subresource, "/"), string(operation)) {
			continue
		}
		result := p.validator.Validate(context.Background(), gvr, attributes, nil, nil, celconfig.RuntimeCELCostBudget, mayRestore)
		for _, d := range result.Decisions {
			if d.Evaluation == validating.EvalError {
				t.Errorf("policy %s cannot be evaluated: %s", p.Name, d.Message)
			}
			if d.Action == validating.ActionDeny {
				if d.Reason != metav1.StatusReasonForbidden {
					t.Errorf("policy %s refuses with reason %s, want Forbidden", p.Name, d.Reason)
				}
				return d.Message
			}
		}
	}
	return ""
}

// restorer is a user who has the right to write notes of the fleet, and no other.
const restorer = "restorer"

var mayRestore = authorizer.AuthorizerFunc(func(_ context.Context, a authorizer.Attributes) (authorizer.Decision, string, error) {
	if a.GetUser().GetName() == restorer && a.GetVerb() == "write" && a.GetAPIGroup() == "fleet.machine.sapcloud.io" &&
		a.GetResource() == "notes" && a.GetNamespace() == "" {
		return authorizer.DecisionAllow, "", nil
	}
	return authorizer.DecisionNoOpinion, "", nil
})

// concerns reports whether the constraints of a policy match, as far as the chart makes use of
// them.
func concerns(p policy, group, resource, operation string) bool {
	return slices.ContainsFunc(p.Spec.MatchConstraints.ResourceRules, func(r admissionregistrationv1.NamedRuleWithOperations) bool {
		return slices.Contains(r.APIGroups, group) && slices.Contains(r.Resources, resource) &&
			slices.ContainsFunc(r.Operations, func(o admissionregistrationv1.OperationType) bool { return string(o) == operation })
	})
}

// changed returns a copy of an object with a change.
func changed[T runtime.Object](object T, change func(T)) T {
	c, _ := object.DeepCopyObject().(T)
	change(c)
	return c
}

func secret(namespace, name string) *corev1.Secret {
	return &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, Annotations: map[string]string{"a": "b"}},
		Type:       corev1.SecretTypeOpaque, Data: map[string][]byte{"userData": []byte("boot")},
	}
}

func token() *corev1.Secret {
	return &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "kube-system", Name: "bootstrap-token-abcdef",
			Annotations: map[string]string{v1alpha1.AnnotationMachineUID: "u", v1alpha1.AnnotationMachine: "n/m"},
		},
		Type: corev1.SecretTypeBootstrapToken,
		Data: map[string][]byte{
			"token-id": []byte("abcdef"), "token-secret": []byte("0123456789abcdef"),
			"description": []byte("x"), "expiration": []byte("2026-01-02T03:04:05Z"), "usage-bootstrap-authentication": []byte("true"),
		},
	}
}

func node() *corev1.Node {
	return &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{
			Name: "m", Finalizers: []string{"example.org/other"},
			Labels: map[string]string{"kubernetes.io/hostname": "m", "example.node-restriction.kubernetes.io/pool": "a"},
		},
		Spec: corev1.NodeSpec{ProviderID: "cloud:///i-1", PodCIDR: "10.0.0.0/24", PodCIDRs: []string{"10.0.0.0/24"}},
		Status: corev1.NodeStatus{
			Capacity:    corev1.ResourceList{"cpu": resource.MustParse("2"), "memory": resource.MustParse("8Gi")},
			Allocatable: corev1.ResourceList{"cpu": resource.MustParse("2"), "memory": resource.MustParse("8Gi")},
			Conditions:  []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue, Reason: "KubeletReady"}},
			Addresses:   []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: "10.0.0.1"}},
			NodeInfo:    corev1.NodeSystemInfo{MachineID: "i"},
		},
	}
}

func lease(namespace, name string) *coordinationv1.Lease {
	return &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
}

func standIn(gate string) *corev1.Pod {
	return &corev1.Pod{Spec: corev1.PodSpec{SchedulingGates: []corev1.PodSchedulingGate{{Name: gate}}}}
}

// policyCase is a write, and a part of the error; "" for none.
type policyCase struct {
	name string
	request
	want string
}

func runPolicyCases(t *testing.T, policies []policy, cases []policyCase) {
	t.Helper()
	if len(policies) < 2 {
		t.Fatalf("%d policies, want at least two", len(policies))
	}
	for _, tc := range cases {
		t.Run(tc.name, func(t *testing.T) {
			if got := tc.refusal(t, policies); tc.want == "" && got != "" || !strings.Contains(got, tc.want) {
				t.Errorf("refused with %q, want %q", got, tc.want)
			}
			if tc.user = "another"; tc.refusal(t, policies) != "" {
				t.Error("the policy holds for another user, too")
			}
		})
	}
}

func TestPoliciesOfTheControlCluster(t *testing.T) {
	t.Parallel()
	const finalizers = "may change the finalizer"
	const leases = "its own Leases"
	s := secret("n", "class")
	held := changed(s, func(s *corev1.Secret) { s.Finalizers = []string{v1alpha1.SecretFinalizerName} })
	runPolicyCases(t, policiesOf(t, FleetControl()), []policyCase{
		{"a Secret gets our finalizer", request{before: s, after: held}, ""},
		{"a Secret loses our finalizer", request{before: held, after: s}, ""},
		{"a large Secret gets our finalizer", request{
			before: changed(s, func(s *corev1.Secret) { s.Data["userData"] = bytes.Repeat([]byte("x"), 1<<20) }),
			after:  changed(held, func(s *corev1.Secret) { s.Data["userData"] = bytes.Repeat([]byte("x"), 1<<20) }),
		}, ""},
		{
			"a Secret gets another finalizer",
			request{before: s, after: changed(s, func(s *corev1.Secret) { s.Finalizers = []string{"x.org/y"} })},
			finalizers,
		},
		{
			"a Secret loses another finalizer",
			request{before: changed(held, func(s *corev1.Secret) { s.Finalizers = append(s.Finalizers, "x.org/y") }), after: held},
			finalizers,
		},
		{
			"the data of a Secret change",
			request{before: s, after: changed(held, func(s *corev1.Secret) { s.Data["userData"] = []byte("x") })},
			finalizers,
		},
		{"the data of a Secret go", request{before: s, after: changed(held, func(s *corev1.Secret) { s.Data = nil })}, finalizers},
		{
			"a Secret gets an annotation", request{before: s, after: changed(held, func(s *corev1.Secret) { s.Annotations["x"] = "y" })}, finalizers,
		},
		{
			"a Secret gets a label",
			request{before: s, after: changed(held, func(s *corev1.Secret) { s.Labels = map[string]string{"x": "y"} })},
			finalizers,
		},
		{"a Secret gets an owner", request{
			before: s, after: changed(held, func(s *corev1.Secret) { s.OwnerReferences = []metav1.OwnerReference{{Name: "x"}} }),
		}, finalizers},
		{"a Secret is made immutable", request{before: s, after: changed(held, func(s *corev1.Secret) { s.Immutable = new(true) })}, finalizers},
		{"a Secret is created", request{after: s}, finalizers},
		{
			"a Secret for a ServiceAccount's token is created",
			request{after: changed(s, func(s *corev1.Secret) { s.Type = corev1.SecretTypeServiceAccountToken })},
			finalizers,
		},
		{"a Secret is deleted", request{before: s}, finalizers},
		// It may be the target cluster, too, whose own policy covers these.
		{"a bootstrap token is created", request{after: token()}, ""},
		{
			"a bootstrap token is changed",
			request{before: token(), after: changed(token(), func(s *corev1.Secret) { s.Data["expiration"] = nil })},
			finalizers,
		},
		{"a bootstrap token is deleted", request{before: token()}, ""},
		{"what is called like one elsewhere", request{after: changed(token(), func(s *corev1.Secret) { s.Namespace = "n" })}, finalizers},

		{"its leader Lease", request{after: lease(FleetNamespace, "fleet-leader")}, ""},
		{
			"its session Lease",
			request{before: lease(FleetNamespace, "fleet-session-fleet-0"), after: lease(FleetNamespace, "fleet-session-fleet-0")},
			"",
		},
		{"a report", request{after: lease(FleetNamespace, "fleet-report-fleet-0")}, ""},
		{"the report of its pod", request{pod: "fleet-0", after: lease(FleetNamespace, "fleet-report-fleet-0")}, ""},
		{"the report of another pod", request{pod: "fleet-1", after: lease(FleetNamespace, "fleet-report-fleet-0")}, "its own report"},
		{
			"the report of another pod is deleted",
			request{pod: "fleet-1", before: lease(FleetNamespace, "fleet-report-fleet-0")},
			"its own report",
		},
		{"a report elsewhere", request{pod: "fleet-0", after: lease("n", "fleet-report-fleet-0")}, leases},
		{"another's session Lease, which the leader empties", request{
			pod: "fleet-1", before: lease(FleetNamespace, "fleet-session-fleet-0"), after: lease(FleetNamespace, "fleet-session-fleet-0"),
		}, ""},
		{"its slot Lease", request{after: lease(FleetNamespace, "fleet-slot-001")}, ""},
		{"its slot Lease elsewhere", request{after: lease("n", "fleet-slot-001")}, leases},
		{"another's Lease", request{after: lease(FleetNamespace, "other-slot-001")}, leases},
		{
			"a Lease of Kubernetes",
			request{before: lease("kube-system", "kube-controller-manager"), after: lease("kube-system", "kube-controller-manager")},
			leases,
		},
		{"MCM's Lease", request{after: lease("n", v1alpha1.LeaseManager)}, ""},
		{
			"MCM's other Lease",
			request{before: lease("n", v1alpha1.LeaseMachineController), after: lease("n", v1alpha1.LeaseMachineController)},
			"",
		},
		{"the deletion budget", request{before: lease("n", v1alpha1.LeaseDeletions), after: lease("n", v1alpha1.LeaseDeletions)}, ""},
		{"its Lease is deleted", request{before: lease(FleetNamespace, "fleet-slot-001")}, ""},
		{"another's Lease is deleted", request{before: lease(FleetNamespace, "x")}, leases},

		{
			"the status of a stand-in",
			request{status: true, before: standIn(v1alpha1.SchedulingGateNever), after: standIn(v1alpha1.SchedulingGateNever)},
			"",
		},
		{"the status of a pod", request{status: true, before: &corev1.Pod{}, after: standIn(v1alpha1.SchedulingGateNever)}, "scheduling gate"},
		{
			"the status of a pod that will run",
			request{status: true, before: standIn("example.com/quota"), after: &corev1.Pod{}},
			"scheduling gate",
		},
	})
}

func TestPoliciesOfTheTargetClusterAboutSecrets(t *testing.T) {
	t.Parallel()
	const which, machines, expires = "of the Secrets here", "with the annotation", "must expire"
	const beyond = "no groups and no usages"
	admin := secret("kube-system", "admin-token")
	groups := func(groups string) *corev1.Secret {
		return changed(token(), func(s *corev1.Secret) { s.Data["auth-extra-groups"] = []byte(groups) })
	}
	signing := changed(token(), func(s *corev1.Secret) { s.Data["usage-bootstrap-signing"] = []byte("true") })
	foreign := changed(token(), func(s *corev1.Secret) { delete(s.Annotations, v1alpha1.AnnotationMachineUID) })
	runPolicyCases(t, policiesOf(t, FleetTarget()), []policyCase{
		{"a token is created", request{after: token()}, ""},
		{"a token is deleted or read", request{before: token()}, ""},
		{"a token that never expires", request{after: changed(token(), func(s *corev1.Secret) { delete(s.Data, "expiration") })}, expires},
		{"a token is created with groups", request{after: groups("system:bootstrappers:a,system:bootstrappers:b")}, beyond},
		{"a token is created for signing", request{after: signing}, beyond},
		{
			"a token is created with what is not known yet",
			request{after: changed(token(), func(s *corev1.Secret) { s.Data["usage-x"] = []byte("true") })},
			beyond,
		},
		{"another's token is deleted or read", request{before: foreign}, machines},
		{"a token of no machine", request{after: foreign}, machines},
		{
			"a token of another type",
			request{after: changed(token(), func(s *corev1.Secret) { s.Type = corev1.SecretTypeServiceAccountToken })},
			which,
		},
		{"a ServiceAccount's token", request{after: changed(secret("kube-system", "x"), func(s *corev1.Secret) {
			s.Type = corev1.SecretTypeServiceAccountToken
			s.Annotations[corev1.ServiceAccountNameKey] = "admin"
		})}, which},
		{"another Secret is deleted or read", request{before: admin}, which},
	})
}

// TestTokensWithGroupsAndSigning uses the policies of a chart whose values give both to bootstrap
// tokens.
func TestTokensWithGroupsAndSigning(t *testing.T) {
	t.Parallel()
	const beyond = "no groups and no usages"
	rendered, err := os.ReadFile("testdata/tokens.yaml")
	if err != nil {
		t.Fatal(err)
	}
	groups := func(groups string) *corev1.Secret {
		return changed(token(), func(s *corev1.Secret) {
			s.Data["auth-extra-groups"], s.Data["usage-bootstrap-signing"] = []byte(groups), []byte("true")
		})
	}
	runPolicyCases(t, policiesOf(t, rendered), []policyCase{
		{"a token without either", request{after: token()}, ""},
		{"a token with both", request{after: groups("system:bootstrappers:a,system:bootstrappers:b")}, ""},
		{"a token with one group", request{after: groups("system:bootstrappers:a")}, beyond},
		{"a token with another group", request{after: groups("system:bootstrappers:a,system:bootstrappers:b,system:bootstrappers:c")}, beyond},
	})
}

// TestPoliciesOfOneClusterForBoth applies both policies about Secrets to the same cluster.
func TestPoliciesOfOneClusterForBoth(t *testing.T) {
	t.Parallel()
	const finalizers = "may change the finalizer"
	admin := secret("kube-system", "admin-token")
	held := changed(admin, func(s *corev1.Secret) { s.Finalizers = []string{v1alpha1.SecretFinalizerName} })
	class := secret("tenant", "class")
	longer := changed(token(), func(s *corev1.Secret) { s.Data["expiration"] = []byte("2026-01-02T04:04:05Z") })
	for _, serves := range []string{"all", "kube-system", "tenant"} {
		t.Run(serves, func(t *testing.T) {
			t.Parallel()
			rendered, err := os.ReadFile("testdata/one-cluster-" + serves + ".yaml")
			if err != nil {
				t.Fatal(err)
			}
			runPolicyCases(t, policiesOf(t, rendered), []policyCase{
				{"another Secret of kube-system gets our finalizer", request{before: admin, after: held}, ""},
				{"another Secret of kube-system loses our finalizer", request{before: held, after: admin}, ""},
				{"another Secret of kube-system is changed", request{
					before: admin, after: changed(admin, func(s *corev1.Secret) { s.Data["userData"] = nil }),
				}, finalizers},
				{"another Secret of kube-system is created", request{after: admin}, finalizers},
				{"another Secret of kube-system is deleted or read", request{before: admin}, finalizers},
				{"a class' Secret gets our finalizer", request{
					before: class, after: changed(class, func(s *corev1.Secret) { s.Finalizers = held.Finalizers }),
				}, ""},
				{"a class' Secret is changed", request{
					before: class, after: changed(class, func(s *corev1.Secret) { s.Data["userData"] = nil }),
				}, finalizers},
				{"what is called like a token elsewhere", request{
					after: changed(token(), func(s *corev1.Secret) { s.Namespace = "tenant" }),
				}, finalizers},
				{"a token is created", request{after: token()}, ""},
				{"a token is changed", request{before: token(), after: longer}, finalizers},
				{"a token is deleted or read", request{before: token()}, ""},
			})
		})
	}
}
