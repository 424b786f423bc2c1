package objectcache

import (
	"reflect"
	"time"
)

const (
	// bytesOfEntry are for an entry of a map, in addition to its key and value, and bytesOfAllocation
	// for a text, a list or an object that is allocated by itself.
	bytesOfEntry, bytesOfAllocation = 16, 16
	// growthOfMap is how many times the memory of its entries a map takes: it doubles when it grows.
	growthOfMap = 2
	// deepest is how deep objects are; what is below it counts for nothing.
	deepest = 64
)

// SizeOf returns about how many bytes of memory an object takes, with all that it refers to: an
// element of two bytes in its encoding can be hundreds.
func SizeOf(obj any) int64 {
	if obj == nil {
		return 0
	}
	value := reflect.ValueOf(obj)
	return int64(value.Type().Size()) + referred(value, deepest)
}

// referred returns how much memory a value refers to, in addition to its own.
func referred(v reflect.Value, depth int) (bytes int64) {
	if depth == 0 || isPlain(v.Kind()) {
		return 0
	}
	depth--
	switch v.Kind() { //nolint:exhaustive // others refer to nothing that objects have
	case reflect.String:
		if v.Len() > 0 {
			bytes = int64(v.Len()) + bytesOfAllocation
		}
	case reflect.Pointer, reflect.Interface:
		if v.IsNil() || v.Type() == reflect.TypeFor[*time.Location]() {
			return 0
		}
		to := v.Elem()
		bytes = int64(to.Type().Size()) + bytesOfAllocation + referred(to, depth)
	case reflect.Slice:
		if v.IsNil() {
			return 0
		}
		bytes = int64(v.Cap())*int64(v.Type().Elem().Size()) + bytesOfAllocation + ofElements(v, depth)
	case reflect.Array:
		bytes = ofElements(v, depth)
	case reflect.Struct:
		for i := range v.NumField() { //nolint:modernize // Fields makes a description of each, too
			bytes += referred(v.Field(i), depth)
		}
	case reflect.Map:
		entry := int64(v.Type().Key().Size()+v.Type().Elem().Size()) + bytesOfEntry
		bytes = int64(v.Len()) * entry * growthOfMap
		for entries := v.MapRange(); entries.Next(); {
			bytes += referred(entries.Key(), depth) + referred(entries.Value(), depth)
		}
	}
	return bytes
}

// ofElements returns how much memory the elements of a list refer to.
func ofElements(v reflect.Value, depth int) (bytes int64) {
	if isPlain(v.Type().Elem().Kind()) {
		return 0
	}
	for i := range v.Len() {
		bytes += referred(v.Index(i), depth)
	}
	return bytes
}

// isPlain reports whether values of a kind refer to nothing.
func isPlain(kind reflect.Kind) bool { return kind >= reflect.Bool && kind <= reflect.Complex128 }
