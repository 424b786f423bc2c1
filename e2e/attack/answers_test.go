//go:build e2e

package attack

import (
	"fmt"
	"maps"
	"net/http"
	"path"
	"slices"
	"strings"

	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/restmapper"

	"github.com/machine-controller-fleet/machine-controller-fleet/e2e/harness"
)

// try is a write of an object, or of a subresource of it, whose answer may have the object. None
// changes anything.
type try struct{ method, contentType, body string }

// tries returns what can be sent to an object: most cannot be carried out.
func tries(object *unstructured.Unstructured) (all []try) {
	self := fmt.Sprintf(`"apiVersion":%q,"kind":%q,"metadata":{"name":%q`, object.GetAPIVersion(), object.GetKind(), object.GetName())
	patches := []string{
		`{}`, `[`, `{"metadata":{"finalizers":{}}}`, `{"metadata":{"labels":[]}}`, `{"type":{}}`, `{"kind":"X","apiVersion":"x/y"}`,
		`{"metadata":{"resourceVersion":"1"}}`,
	}
	for contentType, bodies := range map[string][]string{
		"application/merge-patch+json":           patches,
		"application/strategic-merge-patch+json": append([]string{`{"metadata":{"$patch":"replace"}}`, `{"$patch":"x"}`}, patches...),
		"application/json-patch+json": {
			`[]`, `[{"op":"add","path":"/metadata/finalizers","value":{}}]`, `[{"op":"replace","path":"/type","value":{}}]`,
			`[{"op":"test","path":"/metadata/uid","value":"x"}]`, `[{"op":"copy","from":"/metadata/uid","path":"/metadata/finalizers"}]`,
			`[{"op":"remove","path":"/none"}]`, `{}`,
		},
		"application/apply-patch+yaml": {
			`{` + self + `,"finalizers":{}}}`, `{` + self + `,"labels":{"a":"b"}},"type":{}}`, `{` + self + `}}`, `{}`, `[`,
		},
		"application/apply-patch+cbor": {"\xd9\xd9\xf7\xa0", "\xff"},
		"text/plain":                   {`{}`},
	} {
		for _, body := range bodies {
			all = append(all, try{http.MethodPatch, contentType, body})
		}
	}
	for _, body := range []string{
		`{` + self + `}}`, `{` + self + `,"resourceVersion":"1"}}`, `{` + self + `,"finalizers":{}}}`, `{}`, `[`, ``,
	} {
		all = append(all, try{http.MethodPut, "application/json", body}, try{http.MethodPost, "application/json", body})
	}
	for _, body := range []string{
		``, `{"propagationPolicy":"Foreground"}`, `{"preconditions":{"resourceVersion":"1"}}`, `{"gracePeriodSeconds":{}}`,
	} {
		all = append(all, try{http.MethodDelete, "application/json", body})
	}
	return all
}

// answersToAStolenToken sends all that the fleet's rights let it write, with all content types and
// in both clusters, to objects that these rights do not let it read. No answer has content of one.
func answersToAStolenToken(a *tenant) {
	_, err := a.lab.Target.CoreV1().Secrets(metav1.NamespaceSystem).Create(a.ctx, &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Name: "another-secret"}, StringData: map[string]string{"token": adminSecret},
	}, metav1.CreateOptions{})
	a.must(err)
	sent := map[string]int{}
	for cluster, config := range map[string]*rest.Config{"control": a.lab.Config, "target": a.lab.TargetConfig} {
		thief, err := kubernetes.NewForConfig(as(config, "thief", fleetGroup))
		a.must(err)
		admin, err := dynamic.NewForConfig(config)
		a.must(err)
		known, err := restmapper.GetAPIGroupResources(thief.Discovery())
		a.must(err)
		mapper := restmapper.NewDiscoveryRESTMapper(known)
		for _, namespace := range []string{metav1.NamespaceSystem, harness.FleetNamespace, victimNamespace} {
			rights := a.rightsOf(thief, namespace)
			for what, verbs := range rights {
				name, part, _ := strings.Cut(what.Resource, "/")
				object := what
				if object.Resource = name; slices.ContainsFunc(rights[object], func(verb string) bool { return verb == "get" || verb == "list" }) {
					continue
				}
				resource, err := mapper.ResourceFor(object.WithVersion(""))
				if err != nil {
					continue // such as what another replica of the API server will serve
				}
				if found := a.oneOf(admin.Resource(resource), namespace); found != nil {
					for verb, n := range a.showNothing(thief, pathOf(resource, found, part), verbs, found) {
						sent[fmt.Sprint(cluster, " ", verb, " ", what.Resource)] += n
					}
				}
			}
		}
	}
	a.Logf("to objects that the fleet cannot read it may send %v", sent)
	for _, what := range []string{"target delete secrets", "control update events"} {
		if sent[what] == 0 {
			a.Errorf("%s was not tried: there was no such object, or the fleet has lost a right that it needs", what)
		}
	}
}

// rightsOf returns what a client may do in a namespace with objects of any name.
func (a *tenant) rightsOf(client kubernetes.Interface, namespace string) map[schema.GroupResource][]string {
	a.Helper()
	review, err := client.AuthorizationV1().SelfSubjectRulesReviews().Create(a.ctx, &authorizationv1.SelfSubjectRulesReview{
		Spec: authorizationv1.SelfSubjectRulesReviewSpec{Namespace: namespace},
	}, metav1.CreateOptions{})
	a.must(err)
	rights := map[schema.GroupResource][]string{}
	for _, rule := range review.Status.ResourceRules {
		if len(rule.ResourceNames) > 0 { // what it may write by names it may read by them: TestWhatMayBeWrittenMayBeRead
			continue
		}
		for _, group := range rule.APIGroups {
			for _, resource := range rule.Resources {
				what := schema.GroupResource{Group: group, Resource: resource}
				if strings.Contains(group+resource, "*") {
					a.Errorf("the fleet has a right to %v %s", rule.Verbs, what)
				}
				rights[what] = append(rights[what], rule.Verbs...)
			}
		}
	}
	return rights
}

// oneOf returns an object of a namespace, or one without; nil if there is none. Bootstrap tokens of
// machines are the fleet's own.
func (a *tenant) oneOf(client dynamic.NamespaceableResourceInterface, namespace string) *unstructured.Unstructured {
	list, err := client.List(a.ctx, metav1.ListOptions{})
	if err != nil {
		return nil // such as a review, which cannot be listed
	}
	i := slices.IndexFunc(list.Items, func(o unstructured.Unstructured) bool {
		return (o.GetNamespace() == namespace || o.GetNamespace() == "") && !strings.HasPrefix(o.GetName(), "bootstrap-token-")
	})
	if i < 0 {
		return nil
	}
	return &list.Items[i]
}

func pathOf(resource schema.GroupVersionResource, object *unstructured.Unstructured, part string) string {
	elements := []string{"/apis", resource.Group, resource.Version}
	if resource.Group == "" {
		elements = []string{"/api", resource.Version}
	}
	if namespace := object.GetNamespace(); namespace != "" {
		elements = append(elements, "namespaces", namespace)
	}
	return path.Join(append(elements, resource.Resource, object.GetName(), part)...)
}

// contentOf returns the longest plain text of an object outside its metadata that is not part of
// its name, or its UID.
func contentOf(object *unstructured.Unstructured) string {
	longest := string(object.GetUID())
	var walk func(value any)
	walk = func(value any) {
		switch is := value.(type) {
		case map[string]any:
			for _, key := range slices.Sorted(maps.Keys(is)) {
				walk(is[key])
			}
		case []any:
			for _, item := range is {
				walk(item)
			}
		case string:
			isPlain := !strings.ContainsFunc(is, func(r rune) bool { return r < ' ' || r > '~' || strings.ContainsRune(`"\<>&`, r) })
			if isPlain && len(is) > len(longest) && !strings.Contains(object.GetName(), is) {
				longest = is
			}
		}
	}
	for key, value := range object.Object {
		if key != "metadata" && key != "kind" && key != "apiVersion" {
			walk(value)
		}
	}
	return longest
}

// showNothing sends what can be tried with some verbs to a path, and returns how many of each were
// sent.
func (a *tenant) showNothing(client kubernetes.Interface, path string, verbs []string, object *unstructured.Unstructured) map[string]int {
	a.Helper()
	sent, content := map[string]int{}, contentOf(object)
	for _, try := range tries(object) {
		verb := map[string]string{
			http.MethodPatch: "patch", http.MethodPut: "update", http.MethodPost: "create", http.MethodDelete: "delete",
		}[try.method]
		if !slices.Contains(verbs, verb) && !slices.Contains(verbs, "*") {
			continue
		}
		result := client.CoreV1().RESTClient().Verb(try.method).AbsPath(path).Param("dryRun", metav1.DryRunAll).Param("fieldManager", "thief").
			SetHeader("Content-Type", try.contentType).Body([]byte(try.body)).Do(a.ctx)
		body, _ := result.Raw() // that of an error, too
		sent[verb]++
		if answer := fmt.Sprint(string(body), result.Error()); strings.Contains(answer, content) {
			a.Errorf("%s %s with the %s %s shows an object that may not be read: %.500s", try.method, path, try.contentType, try.body, answer)
		}
	}
	return sent
}
