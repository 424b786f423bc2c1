package bridge

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"

	mcm "github.com/gardener/machine-controller-manager/pkg/apis/machine/v1alpha1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/driver"
)

// noUserData is the user data of requests that create nothing: MCM's drivers reject a Secret
// without any.
const noUserData = "# not needed"

// target contains the objects that a request of Machine Controller Manager names.
type target struct {
	machine *mcm.Machine
	class   *mcm.MachineClass
	secret  *corev1.Secret
}

// targetOf returns a target for a driver of Machine Controller Manager. Without user data it is
// that of the Secret, if it has any. Errors: InvalidArgument for a Machine without a UID.
func (d *Driver) targetOf(op driver.Op, t driver.Target, userData []byte) (target, error) {
	if t.Machine != nil && t.Machine.UID == "" {
		return target{}, driver.Errorf(op, driver.InvalidArgument, "the Machine has no UID")
	}
	created := target{class: &mcm.MachineClass{}}
	err := convert(t.Class, created.class, func(class *v1alpha1.MachineClass) { class.ProviderSpec = runtime.RawExtension{} })
	if t.Class != nil {
		created.class.ProviderSpec = runtime.RawExtension{Raw: t.Class.ProviderSpec.Raw} // which may be no JSON
	}
	if t.Machine != nil {
		created.machine = &mcm.Machine{}
		err = errors.Join(err, convert(t.Machine, created.machine, func(m *v1alpha1.Machine) {
			if !d.options.PassProviderID {
				m.Spec.ProviderID = ""
			}
		}))
	}
	if err != nil {
		return target{}, driver.Errorf(op, driver.InvalidArgument, "%w", err)
	}
	data := maps.Clone(t.Secret)
	if data == nil {
		data = map[string][]byte{}
	}
	switch {
	case userData != nil:
		data[v1alpha1.SecretKeyUserData] = userData
	case len(data[v1alpha1.SecretKeyUserData]) == 0:
		data[v1alpha1.SecretKeyUserData] = []byte(noUserData)
	}
	created.secret = &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: created.class.Name, Namespace: created.class.Namespace}, Data: data}
	return created, nil
}

// convert copies an object to the same type of Machine Controller Manager, by its JSON, with a
// change of the copy that is read.
func convert[From, To any](from *From, to *To, change func(*From)) error {
	if from == nil {
		return nil
	}
	object := *from
	change(&object)
	raw, err := json.Marshal(&object)
	if err == nil {
		err = json.Unmarshal(raw, to)
	}
	if err != nil {
		return fmt.Errorf("convert an object for Machine Controller Manager's driver: %w", err)
	}
	return nil
}

// tagged returns the target with the Machine's UID among the tags of its provider spec.
func (d *Driver) tagged(op driver.Op, t target, uid types.UID) (target, error) {
	if d.options.TagField == "" {
		return t, nil
	}
	spec, tags := map[string]json.RawMessage{}, map[string]string{}
	err := json.Unmarshal(t.class.ProviderSpec.Raw, &spec)
	if raw := spec[d.options.TagField]; err == nil && raw != nil {
		err = json.Unmarshal(raw, &tags)
	}
	if err != nil {
		return target{}, driver.Errorf(op, driver.InvalidArgument,
			"providerSpec: expected an object with the field %s, an object of strings: %w", d.options.TagField, err)
	}
	if tags == nil {
		tags = map[string]string{}
	}
	tags[TagUID] = string(uid)
	if spec[d.options.TagField], err = json.Marshal(tags); err == nil {
		t.class = t.class.DeepCopy()
		t.class.ProviderSpec.Raw, err = json.Marshal(spec)
	}
	if err != nil {
		return target{}, driver.Errorf(op, driver.InvalidArgument, "encode the provider spec: %w", err)
	}
	return t, nil
}
