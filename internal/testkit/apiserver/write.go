package apiserver

import (
	"encoding/json"
	"fmt"
	"reflect"
	"strings"
	"time"

	jsonpatch "gopkg.in/evanphx/json-patch.v4"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	utiljson "k8s.io/apimachinery/pkg/util/json"
	"k8s.io/apimachinery/pkg/util/strategicpatch"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/client-go/kubernetes/scheme"
)

// protobufMagic is how a body in protobuf begins.
const protobufMagic = "k8s\x00"

// decodeBody reads the body of a request.
func decodeBody(body []byte) (map[string]any, error) {
	if strings.HasPrefix(string(body), protobufMagic) {
		obj, kind, err := scheme.Codecs.UniversalDeserializer().Decode(body, nil, nil)
		if err != nil {
			return nil, apierrors.NewBadRequest("decode the body: " + err.Error())
		}
		obj.GetObjectKind().SetGroupVersionKind(*kind)
		if body, err = json.Marshal(obj); err != nil {
			return nil, apierrors.NewBadRequest("encode the body: " + err.Error())
		}
	}
	document := map[string]any{}
	if err := utiljson.Unmarshal(body, &document); err != nil {
		return nil, apierrors.NewBadRequest("decode the body: " + err.Error())
	}
	return document, nil
}

func (s *Server) create(t target, body []byte) (*Object, error) {
	document, err := decodeBody(body)
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	u := &unstructured.Unstructured{Object: document}
	if u.GetName() == "" {
		u.SetName(fmt.Sprintf("%s%05d", u.GetGenerateName(), s.revision+1))
	}
	t.Name = u.GetName()
	st := s.storeOf(t.resource)
	if st.objects[t.NamespacedName] != nil {
		return nil, apierrors.NewAlreadyExists(t.groupResource(), t.Name)
	}
	u.SetNamespace(t.Namespace)
	u.SetGroupVersionKind(t.group.WithKind(t.kind.name))
	if u.GetResourceVersion() != "" {
		return nil, apierrors.NewBadRequest("resourceVersion should not be set on objects to be created")
	}
	if err := t.validate(u); err != nil {
		return nil, err
	}
	s.born(u, t.kind)
	if t.kind.hasStatus && t.kind.counts {
		delete(document, "status")
	}
	return s.write(st, nil, u)
}

func (s *Server) update(t target, body []byte) (*Object, error) {
	document, err := decodeBody(body)
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	before := s.storeOf(t.resource).objects[t.NamespacedName]
	if before == nil {
		return nil, apierrors.NewNotFound(t.groupResource(), t.Name)
	}
	if u := (&unstructured.Unstructured{Object: document}); u.GetResourceVersion() == "" && (t.kind.counts || t.resource == "leases") {
		return nil, apierrors.NewInvalid(t.group.WithKind(t.kind.name).GroupKind(), t.Name, field.ErrorList{
			field.Invalid(field.NewPath("metadata", "resourceVersion"), "", "must be specified for an update"),
		})
	}
	return s.replace(t, before, document)
}

func (s *Server) patch(t target, as types.PatchType, patch []byte) (*Object, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	before := s.storeOf(t.resource).objects[t.NamespacedName]
	if before == nil {
		return nil, apierrors.NewNotFound(t.groupResource(), t.Name)
	}
	patched, err := apply(t, before, as, patch)
	if err != nil {
		return nil, apierrors.NewBadRequest(err.Error())
	}
	document := map[string]any{}
	if err := utiljson.Unmarshal(patched, &document); err != nil {
		return nil, apierrors.NewBadRequest("decode the patched object: " + err.Error())
	}
	return s.replace(t, before, document)
}

// apply returns the document with the patch.
func apply(t target, before *Object, as types.PatchType, patch []byte) ([]byte, error) {
	switch as { //nolint:exhaustive // the others are rejected
	case types.MergePatchType:
		return jsonpatch.MergePatch(before.raw, patch)
	case types.StrategicMergePatchType:
		like, err := scheme.Scheme.New(schema.GroupVersionKind{Group: t.group.Group, Version: t.group.Version, Kind: t.kind.name})
		if err != nil {
			return nil, fmt.Errorf("strategic merge patches need a kind that is built in: %w", err)
		}
		return strategicpatch.StrategicMergePatch(before.raw, patch, like)
	case types.JSONPatchType:
		decoded, err := jsonpatch.DecodePatch(patch)
		if err != nil {
			return nil, fmt.Errorf("decode the patch: %w", err)
		}
		return decoded.Apply(before.raw)
	}
	return nil, fmt.Errorf("expected a merge, strategic merge or JSON patch, got type %s", as)
}

// replace stores the result of an update or a patch, as far as its path allows; s.mu is held.
func (s *Server) replace(t target, before *Object, document map[string]any) (*Object, error) {
	u := &unstructured.Unstructured{Object: document}
	if uid := u.GetUID(); uid != "" && uid != before.GetUID() {
		return nil, t.conflict("precondition failed: UID in precondition: %s, UID in object meta: %s", uid, before.GetUID())
	}
	if version := u.GetResourceVersion(); version != "" && version != before.GetResourceVersion() {
		return nil, t.conflict("the object has been modified; please apply your changes to the latest version and try again")
	}
	if u.GetName() != before.GetName() {
		return nil, apierrors.NewBadRequest("the name of the object does not match the name on the URL")
	}
	if err := t.validate(u); err != nil {
		return nil, err
	}
	u = restrict(t, before, u)
	if reflect.DeepEqual(u.Object, before.Object) {
		return before, nil
	}
	if before.GetDeletionTimestamp() != nil && len(u.GetFinalizers()) == 0 {
		last, err := newObject(u) // the answer has the object as it was requested, which is not stored
		if err != nil {
			return nil, err
		}
		_, err = s.write(s.storeOf(t.resource), before, nil)
		return last, err
	}
	return s.write(s.storeOf(t.resource), before, u)
}

// validate rejects a Lease with a negative number of transitions. Nothing else is validated.
func (t target) validate(u *unstructured.Unstructured) error {
	path := field.NewPath("spec", "leaseTransitions")
	if n, _, _ := unstructured.NestedInt64(u.Object, "spec", "leaseTransitions"); t.resource == "leases" && n < 0 {
		return apierrors.NewInvalid(t.group.WithKind(t.kind.name).GroupKind(), t.Name, field.ErrorList{
			field.Invalid(path, n, "must be greater than or equal to 0"),
		})
	}
	return nil
}

// restrict reverts the parts of a write that its path must not change, and sets the fields that the
// server decides.
func restrict(t target, before *Object, u *unstructured.Unstructured) *unstructured.Unstructured {
	next := u.DeepCopy()
	switch {
	case t.subresource == "status" && t.kind.counts:
		next = before.DeepCopy()
		setOrRemove(next.Object, "status", u.Object["status"])
		return next
	case t.subresource == "status": // of a built-in kind, whose metadata can be written with it
		setOrRemove(next.Object, "spec", before.Object["spec"])
	case t.kind.hasStatus:
		setOrRemove(next.Object, "status", before.Object["status"])
	}
	next.SetGroupVersionKind(before.GroupVersionKind())
	next.SetNamespace(before.GetNamespace())
	next.SetUID(before.GetUID())
	next.SetResourceVersion(before.GetResourceVersion())
	next.SetCreationTimestamp(before.GetCreationTimestamp())
	next.SetDeletionTimestamp(before.GetDeletionTimestamp())
	next.SetGeneration(before.GetGeneration())
	if t.kind.counts && !sameSpec(before.Object, next.Object) {
		next.SetGeneration(before.GetGeneration() + 1)
	}
	return next
}

func setOrRemove(document map[string]any, field string, value any) {
	if value == nil {
		delete(document, field)
		return
	}
	document[field] = value
}

// sameSpec reports whether two objects differ in metadata and status only.
func sameSpec(a, b map[string]any) bool {
	rest := func(document map[string]any) map[string]any {
		all := map[string]any{}
		for field, value := range document {
			if field != "metadata" && field != "status" {
				all[field] = value
			}
		}
		return all
	}
	return reflect.DeepEqual(rest(a), rest(b))
}

func (s *Server) delete(t target, body []byte, dryRun bool) (*Object, error) {
	var options metav1.DeleteOptions
	if len(body) > 0 {
		document, err := decodeBody(body)
		if err != nil {
			return nil, err
		}
		raw, err := json.Marshal(document)
		if err != nil {
			return nil, apierrors.NewBadRequest("encode the options: " + err.Error())
		}
		if err := json.Unmarshal(raw, &options); err != nil {
			return nil, apierrors.NewBadRequest("decode the options: " + err.Error())
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	st := s.storeOf(t.resource)
	before := st.objects[t.NamespacedName]
	if before == nil {
		return nil, apierrors.NewNotFound(t.groupResource(), t.Name)
	}
	if p := options.Preconditions; p != nil {
		if p.UID != nil && *p.UID != before.GetUID() || p.ResourceVersion != nil && *p.ResourceVersion != before.GetResourceVersion() {
			return nil, t.conflict("precondition failed: %v, it is %s of version %s", p, before.GetUID(), before.GetResourceVersion())
		}
	}
	grace := graceOf(t, before, options.GracePeriodSeconds)
	switch {
	case dryRun:
		return before, nil
	case len(before.GetFinalizers()) == 0 && grace == 0:
		_, err := s.write(st, before, nil)
		return before, err
	case before.GetDeletionTimestamp() != nil:
		return before, nil
	}
	u := before.DeepCopy()
	at := metav1.NewTime(s.now().Add(time.Duration(grace) * time.Second).Truncate(time.Second))
	u.SetDeletionTimestamp(&at)
	u.SetDeletionGracePeriodSeconds(&grace)
	if t.kind.counts {
		u.SetGeneration(u.GetGeneration() + 1)
	}
	return s.write(st, before, u)
}

// graceOf returns for how many seconds a deleted object stays: a pod on a Node, which its kubelet
// removes, unless it has ended.
func graceOf(t target, o *Object, requested *int64) int64 {
	node, _, _ := unstructured.NestedString(o.Object, "spec", "nodeName")
	phase, _, _ := unstructured.NestedString(o.Object, "status", "phase")
	grace, found, _ := unstructured.NestedInt64(o.Object, "spec", "terminationGracePeriodSeconds")
	switch {
	case t.resource != "pods" || node == "" || phase == "Succeeded" || phase == "Failed":
		return 0
	case requested != nil:
		return *requested
	case found:
		return grace
	}
	return 30
}
