package decode

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// Failure is an object that does not decode, with its metadata. It is an error, and stands for the object in lists and
// watches.
type Failure struct { //nolint:errname // it is an object first, and stands for one where there is no error
	metav1.PartialObjectMetadata

	// Cause is what the Go type refuses, with the path of the field where that is known.
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

// Into decodes the object into v, which has those fields alone that somebody needs. Errors: these fields do not decode
// either, or the content was dropped.
func (f *Failure) Into(v any) error {
	if f.raw == nil {
		return fmt.Errorf("the content of %s %s/%s was not kept", f.Kind, f.Namespace, f.Name)
	}
	return json.Unmarshal(f.raw, v)
}

// Small returns the failure without what is large: the object's content and its managed fields.
func (f *Failure) Small() *Failure {
	small := &Failure{PartialObjectMetadata: *f.DeepCopy(), Cause: strings.Clone(f.Cause)}
	small.ManagedFields = nil
	return small
}

// ListError says of a list that it has all items but these.
type ListError struct{ Failures []*Failure }

// Error names the first of them.
func (e *ListError) Error() string {
	if len(e.Failures) == 1 {
		return e.Failures[0].Error()
	}
	return fmt.Sprintf("%v, and %d other objects", e.Failures[0], len(e.Failures)-1)
}

// FailureOf returns the object that an error says cannot be decoded; ok is false for any other error.
func FailureOf(err error) (f *Failure, ok bool) {
	ok = errors.As(err, &f)
	return f, ok
}

// Missing splits the error of a list: failures are what the list lacks because it cannot be decoded, and other is any other
// error, with which there is no list.
func Missing(err error) (failures []*Failure, other error) {
	if list, ok := errors.AsType[*ListError](err); ok {
		return list.Failures, nil
	}
	return nil, err
}
