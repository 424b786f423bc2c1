package runner

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// Required returns an error that names the fields of the Config of a controller that are not set; nil if all are.
func Required(controller string, isSet map[string]bool) error {
	isMissing := maps.Clone(isSet)
	maps.DeleteFunc(isMissing, func(_ string, is bool) bool { return is })
	if len(isMissing) == 0 {
		return nil
	}
	return fmt.Errorf("%s: expected all required fields of Config, got none for %s", controller, strings.Join(slices.Sorted(maps.Keys(isMissing)), ", "))
}
