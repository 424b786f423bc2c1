package apitest

import (
	"encoding/json"
	"fmt"

	jsonpatch "gopkg.in/evanphx/json-patch.v4"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// patch merges a patch into an object, or into its status.
func (s *Server) patch(k key, content []byte, subresource string) (object, error) {
	var desired struct {
		Metadata metav1.ObjectMeta `json:"metadata"`
	}
	if err := json.Unmarshal(content, &desired); err != nil {
		return nil, fmt.Errorf("decode the patch: %w", err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	before, ok := s.objects[k.resource][k.NamespacedName]
	if !ok {
		return nil, k.notFound()
	}
	if m := desired.Metadata; m.UID != "" && m.UID != before.GetUID() || m.ResourceVersion != "" && m.ResourceVersion != before.GetResourceVersion() {
		return nil, k.conflict("the patch is for %s of version %s, it is %s of version %s", m.UID, m.ResourceVersion, before.GetUID(), before.GetResourceVersion())
	}
	after, err := s.merged(k, before, content, subresource)
	if err != nil {
		return nil, err
	}
	if apiequality.Semantic.DeepEqual(before, after) {
		return copied(before), nil
	}
	s.store(k, after)
	return copied(after), nil
}

// merged is the object with the patch. The other part, the status or all else, is not changed, regardless of the patch.
func (s *Server) merged(k key, before object, content []byte, subresource string) (object, error) {
	old, err := fields(before)
	if err != nil {
		return nil, err
	}
	document, err := json.Marshal(old)
	if err != nil {
		return nil, fmt.Errorf("encode the object: %w", err)
	}
	document, err = jsonpatch.MergePatch(document, content)
	if err != nil {
		return nil, fmt.Errorf("merge the patch: %w", err)
	}
	now := map[string]json.RawMessage{}
	if err := json.Unmarshal(document, &now); err != nil {
		return nil, fmt.Errorf("decode the object: %w", err)
	}
	if subresource == "status" {
		status := now["status"]
		now, _ = fields(before)
		now["status"] = status
	} else {
		delete(now, "status")
		if status, has := old["status"]; has {
			now["status"] = status
		}
	}
	document, err = json.Marshal(now)
	if err != nil {
		return nil, fmt.Errorf("encode the object: %w", err)
	}
	after := s.kinds[k.resource].empty()
	if err := json.Unmarshal(document, after); err != nil {
		return nil, fmt.Errorf("decode the object: %w", err)
	}
	after.SetResourceVersion(before.GetResourceVersion())
	now, err = fields(after)
	if err != nil {
		return nil, err
	}
	for _, part := range []map[string]json.RawMessage{old, now} {
		for name := range part {
			if name != "metadata" && name != "status" && string(now[name]) != string(old[name]) {
				after.SetGeneration(before.GetGeneration() + 1)
			}
		}
	}
	return after, nil
}

// fields are the parts of an object, encoded.
func fields(o object) (map[string]json.RawMessage, error) {
	document, err := json.Marshal(o)
	if err != nil {
		return nil, fmt.Errorf("encode the object: %w", err)
	}
	parts := map[string]json.RawMessage{}
	if err := json.Unmarshal(document, &parts); err != nil {
		return nil, fmt.Errorf("decode the object: %w", err)
	}
	return parts, nil
}
