package decode

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// Failure is an object that does not decode, with its metadata. It is an error, and takes the place
// of the object in lists and watches.
type Failure struct { //nolint:errname // it is an object first, and replaces one where no error is returned
	metav1.PartialObjectMetadata

	// Cause is the error of the Go type, with the path of the field where that is known.
	Cause string

	raw json.RawMessage // the whole object; nil when it was dropped
}

var (
	_ runtime.Object = (*Failure)(nil)
	_ metav1.Object  = (*Failure)(nil)
	_ error          = (*Failure)(nil)
)

// Error names the object and the cause.
func (f *Failure) Error() string {
	return fmt.Sprintf("%s %s/%s cannot be decoded: %s", f.Kind, f.Namespace, f.Name, f.Cause)
}

// DeepCopyObject copies it, for runtime.Object.
func (f *Failure) DeepCopyObject() runtime.Object {
	return &Failure{PartialObjectMetadata: *f.DeepCopy(), Cause: f.Cause, raw: append(json.RawMessage(nil), f.raw...)}
}

// Into decodes the object into v, a type with the needed fields only. Errors: these fields do not
// decode either, or the content was dropped.
func (f *Failure) Into(v any) error {
	if f.raw == nil {
		return fmt.Errorf("the content of %s %s/%s was not kept", f.Kind, f.Namespace, f.Name)
	}
	return json.Unmarshal(f.raw, v)
}

// Small returns the failure without its large parts: the object's content and its managed fields.
func (f *Failure) Small() *Failure {
	small := &Failure{PartialObjectMetadata: *f.DeepCopy(), Cause: strings.Clone(f.Cause)}
	small.ManagedFields = nil
	return small
}

// ListError reports the items that a list lacks.
type ListError struct{ Failures []*Failure }

// Error names the first of them.
func (e *ListError) Error() string {
	if len(e.Failures) == 1 {
		return e.Failures[0].Error()
	}
	return fmt.Sprintf("%v, and %d other objects", e.Failures[0], len(e.Failures)-1)
}

// FailureOf returns the object that, by this error, cannot be decoded; ok is false for any other
// error.
func FailureOf(err error) (f *Failure, ok bool) {
	ok = errors.As(err, &f)
	return f, ok
}

// Missing splits the error of a list: failures are the items that the list lacks because they
// cannot be decoded, and other is any other error, with which there is no list.
func Missing(err error) (failures []*Failure, other error) {
	if list, ok := errors.AsType[*ListError](err); ok {
		return list.Failures, nil
	}
	return nil, err
}
