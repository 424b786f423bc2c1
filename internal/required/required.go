// Package required finds fields of a configuration that are not set.
//
// Guarantee: a field is required unless it is named as optional, so that a new one is not
// forgotten. A bool is never missing, because false is one of its values.
package required

import (
	"fmt"
	"reflect"
	"slices"
	"strings"
)

// Fields returns an error that names the exported fields of a struct that have their zero value and
// are not optional; nil if there are none.
func Fields(config any, optional ...string) error {
	var missing []string
	value := reflect.ValueOf(config)
	for field, of := range value.Fields() {
		if field.IsExported() && of.Kind() != reflect.Bool && of.IsZero() && !slices.Contains(optional, field.Name) {
			missing = append(missing, field.Name)
		}
	}
	if missing == nil {
		return nil
	}
	return fmt.Errorf("%s: expected all required fields, got none for %s", value.Type(), strings.Join(missing, ", "))
}
