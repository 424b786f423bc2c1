package plan

import "fmt"

// Claim is a change of a field that an exec hook applies.
type Claim struct {
	Field string `json:"field"`
	// Old and New are the field's values as JSON; empty where a config does not set it.
	Old string `json:"old,omitempty"`
	New string `json:"new,omitempty"`
}

// Compare compares the fields of two configs that no transaction can apply, by name, as canonical
// JSON. A field that differs is claimed if there is a hook for it, and else refused. Both results
// are sorted by field.
func Compare(old, desired map[string]string, hooks []string) (claims []Claim, refused []Refusal) {
	names := map[string]bool{}
	for name := range old {
		names[name] = true
	}
	for name := range desired {
		names[name] = true
	}
	hasHook := map[string]bool{}
	for _, name := range hooks {
		hasHook[name] = true
	}
	for _, name := range sortedKeys(names) {
		switch {
		case old[name] == desired[name]:
		case hasHook[name]:
			claims = append(claims, Claim{Field: name, Old: old[name], New: desired[name]})
		default:
			refused = append(refused, Refusal{Field: name, Message: change(old[name], desired[name])})
		}
	}
	return claims, refused
}

// change describes the change of a field that cannot be applied.
func change(old, desired string) string {
	const remedy = "machine-config-daemon does not apply it; replace the machine, revert the field, or install a hook for it"
	switch {
	case old == "":
		return fmt.Sprintf("the field is new; %s", remedy)
	case desired == "":
		return fmt.Sprintf("the field was removed; %s", remedy)
	}
	return fmt.Sprintf("the field has changed; %s", remedy)
}
